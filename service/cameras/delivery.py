"""Alert messages to webhooks: signed, tried again until they are taken, at least once.

A message is kept in the database until its receiver has taken it, so a restart delivers it too. The signature is
`X-Uepnet-Signature: sha256=HEX`, the HMAC-SHA256 of "TIMESTAMP.BODY" with the shared secret, where TIMESTAMP is
`X-Uepnet-Timestamp`. The id of a message is the same in every attempt.
"""

import hashlib
import hmac
import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx
from sqlalchemy import Connection, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from uepnet import __version__
from uepnet.service.cameras.database import Database, deliveries
from uepnet.service.cameras.wire import AlertMessage
from uepnet.service.cameras.writer import Step, Task, Writer
from uepnet.service.metrics import Metrics

FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 1.0, 300.0
GIVE_UP_SECONDS = 24 * 3600.0
MAX_WAITING = 10_000
KEEP_SECONDS = 2.0  # a message that the database has not taken by then is sent all the same

log = logging.getLogger(__name__)


class Delivery(NamedTuple):
    receiver: str
    message: str  # AlertMessage as JSON
    id: str
    made: float

    @property
    def key(self) -> str:
        return f"{self.id}:{self.receiver}"


Send = Callable[[Delivery], None]


class Outbox:
    """Which messages their receivers have not taken yet, kept in the database where there is one.

    A message is sent once it is kept, and its alert with it: a process that is killed in between would forget an
    alert of which a receiver has heard, and never tell its end.
    """

    def __init__(self, writer: Writer | None, database: Database | None) -> None:
        self._writer, self._database = writer, database
        self._lock = threading.Lock()
        self._unkept: dict[str, tuple[Delivery, Send]] = {}

    def add(self, delivery: Delivery, send: Send) -> None:
        if self._writer is None or self._database is None:
            send(delivery)
            return
        with self._lock:
            self._unkept[delivery.key] = (delivery, send)
        self._writer.put(Step(_stored(self._database, delivery), lambda: self._send(delivery.key)))

    def send_late(self, now: float) -> None:
        """Send what the database does not take. Call it about once a second."""
        with self._lock:
            late = [key for key, (delivery, _) in self._unkept.items() if now - delivery.made > KEEP_SECONDS]
        for key in late:
            self._send(key)

    def _send(self, key: str) -> None:
        with self._lock:
            found = self._unkept.pop(key, None)
        if found is not None:
            delivery, send = found
            send(delivery)

    def done(self, delivery: Delivery) -> None:
        if self._writer is not None:
            key = delivery.key

            def task(connection: Connection) -> None:
                connection.execute(delete(deliveries).where(deliveries.c.id == key))

            self._writer.put(task)


def waiting(connection: Connection) -> list[Delivery]:
    rows = connection.execute(select(deliveries).order_by(deliveries.c.made)).mappings()
    return [Delivery(row["receiver"], row["content"], row["id"].partition(":")[0], row["made"] / 1000) for row in rows]


def _stored(database: Database, delivery: Delivery) -> Task:
    insert = (postgresql if database.shared else sqlite).insert
    row = {"id": delivery.key, "receiver": delivery.receiver, "made": int(1000 * delivery.made)}

    def task(connection: Connection) -> None:
        values = {**row, "content": delivery.message}
        connection.execute(insert(deliveries).values(values).on_conflict_do_nothing())

    return task


class WebhookSender:
    """One webhook, with a thread of its own: a slow receiver delays no other."""

    def __init__(
        self,
        url: str,
        secret: str | None,
        outbox: Outbox,
        metrics: Metrics,
        first_retry_seconds: float = FIRST_RETRY_SECONDS,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.receiver = f"webhook {url}"
        parts = urlsplit(url)  # a password or a token in it is not to be logged
        self._name = f"{parts.scheme}://{parts.hostname}"
        self._url, self._secret, self._outbox, self._metrics = url, secret, outbox, metrics
        self._first_retry_seconds = first_retry_seconds
        self._waiting: deque[Delivery] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._failing = False
        self._http = httpx.Client(timeout=10.0, transport=transport, follow_redirects=False)
        self._thread = threading.Thread(target=self._run, name="uepnet-webhook", daemon=True)
        self._thread.start()

    def send(self, message: AlertMessage) -> None:
        delivery = Delivery(self.receiver, message.model_dump_json(), message.id, time.time())
        self._outbox.add(delivery, self.take_up)

    def take_up(self, delivery: Delivery) -> None:
        """Also for what an earlier process left undelivered."""
        with self._changed:
            if any(one.id == delivery.id for one in self._waiting):
                return
            self._waiting.append(delivery)
            if len(self._waiting) > MAX_WAITING:
                self._drop(self._waiting.popleft(), "too many messages wait")
            self._changed.notify()

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(2.0)
        self._http.close()

    def _run(self) -> None:
        pause = self._first_retry_seconds
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._stopping)
                if self._stopping:
                    return
                delivery = self._waiting[0]
            trouble = self._attempt(delivery)
            if trouble is None:
                pause = self._first_retry_seconds
            elif time.time() - delivery.made > GIVE_UP_SECONDS:
                self._drop(delivery, trouble)
            else:
                self._metrics.deliveries.labels("failed").inc()
                if not self._failing:
                    log.warning("%s did not take an alert (%s); trying again", self._name, trouble)
                self._failing = True
                with self._changed:
                    self._changed.wait_for(lambda: self._stopping, pause * random.uniform(0.75, 1.25))
                pause = min(2 * pause, LAST_RETRY_SECONDS)
                continue
            with self._changed:
                if self._waiting and self._waiting[0] is delivery:
                    self._waiting.popleft()

    def _attempt(self, delivery: Delivery) -> str | None:
        """None where the receiver has taken it, else why not."""
        body = delivery.message.encode()
        stamp = str(int(time.time()))
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"uepnet/{__version__}",
            "X-Uepnet-Delivery": delivery.id,
            "X-Uepnet-Timestamp": stamp,
        }
        if self._secret is not None:
            headers["X-Uepnet-Signature"] = signature(self._secret, stamp, body)
        try:
            # Only the status counts: what follows it may never end.
            with self._http.stream("POST", self._url, content=body, headers=headers) as answer:
                pass
        except httpx.HTTPError as error:
            return type(error).__name__
        except RuntimeError:  # the client was closed while this waited: the service stops
            return "stopping"
        if not answer.is_success:
            return f"status {answer.status_code}"
        self._metrics.deliveries.labels("delivered").inc()
        if self._failing:
            log.warning("%s takes alerts again", self._name)
        self._failing = False
        self._outbox.done(delivery)
        return None

    def _drop(self, delivery: Delivery, why: str) -> None:
        log.error("an alert was not delivered to %s and is dropped (%s)", self._name, why)
        self._metrics.deliveries.labels("dropped").inc()
        self._outbox.done(delivery)


def signature(secret: str, timestamp: str, body: bytes) -> str:
    digest = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return f"sha256={digest}"
