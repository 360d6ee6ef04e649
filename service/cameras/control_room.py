"""What the service does with cameras beside counting: their settings, latest pictures, history, limits and alerts.

Thread: all methods run on the event loop, unless they say otherwise. Once a second `_beat` lets time pass for the
limits, and speaks to the database in a thread: which replica evaluates limits (a lease), what the others counted.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import Connection, delete, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from uepnet.model.camera_file import CameraFile, load_cameras
from uepnet.model.cameras import CameraSettings
from uepnet.model.errors import OutputError
from uepnet.service.cameras import database as tables
from uepnet.service.cameras.alert_desk import AlertDesk, stored_alerts
from uepnet.service.cameras.database import Database, database_reason, default_url
from uepnet.service.cameras.delivery import Delivery, Outbox, WebhookSender, waiting
from uepnet.service.cameras.history import History, Reading, Retention
from uepnet.service.cameras.latest import Cameras
from uepnet.service.cameras.measure import KeptPicture
from uepnet.service.cameras.mqtt import MqttPublisher
from uepnet.service.cameras.shared_state import queue_observation, store_latest, store_settings
from uepnet.service.cameras.wire import Alert, AlertMessage, CameraState
from uepnet.service.cameras.writer import Writer
from uepnet.service.errors import Refused
from uepnet.service.metrics import Metrics
from uepnet.service.schemas import Camera
from uepnet.service.settings import Settings

BEAT_SECONDS = 1.0
ANSWER_SECONDS = 3.0  # a database that says nothing for so long is away
LEASE_SECONDS = 6.0
LEASE = "alerts"
DEFAULTS = CameraSettings()

log = logging.getLogger(__name__)


@dataclass
class _News:
    """What one beat read from the database."""

    leads: bool
    settings: dict[str, CameraSettings] | None = None
    counted: list[Camera] = field(default_factory=list)  # by other replicas, for the limits
    latest: list[Camera] = field(default_factory=list)  # by other replicas, to be shown
    alerts: list[Alert] | None = None
    deliveries: list[Delivery] = field(default_factory=list)


class ControlRoom(Collector):
    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        """Reads the camera file and opens the history; raises UepnetError with one sentence."""
        self._metrics = metrics
        self._id = uuid.uuid4().hex
        self.file = CameraFile(cameras={}) if settings.cameras is None else load_cameras(settings.cameras)
        self._from_file = {name: entry.settings for name, entry in self.file.cameras.items()}
        self._changed: dict[str, CameraSettings] = {}  # over HTTP; these override the file
        self.database = _open(settings.history)
        self.history = None if self.database is None else History(self.database)
        self._writer: Writer | None = None
        if self.database is not None and self.history is not None:
            retention = Retention(
                3600 * settings.history_raw_hours,
                86_400 * settings.history_minute_days,
                86_400 * settings.history_hour_days,
            )
            self._writer = Writer(self.database, self.history, metrics, retention)
        self.cameras = Cameras(settings, metrics, self.is_configured, lambda name: self.settings_of(name).stale_seconds)
        self.desk = AlertDesk(self._writer, self.database)
        self._pictures: dict[str, KeptPicture] = {}
        self._outbox = Outbox(self._writer, self.database)
        self._senders = [
            WebhookSender(hook.url, self.file.secret(hook.secret_env), self._outbox, metrics)
            for hook in self.file.notify.webhooks
        ]
        broker = self.file.notify.mqtt
        self._mqtt = None
        if broker is not None:
            self._mqtt = MqttPublisher(broker, self.file.secret(broker.password_env), self._outbox, metrics)
        self.desk.sinks += [*(sender.send for sender in self._senders), self._tell_alert]
        if self._mqtt is not None:
            self.desk.sinks.append(self._mqtt.send)
        self.leads = False
        self._silent: set[str] = set()
        self._known: set[str] = set()
        self._late = 0
        self._changed_at = 0.0
        metrics.add(self)

    # Settings -------------------------------------------------------------------------------------------------

    def is_configured(self, name: str) -> bool:
        return name in self._changed or name in self._from_file

    def settings_of(self, name: str) -> CameraSettings:
        return self._changed.get(name) or self._from_file.get(name) or DEFAULTS

    def overrides_file(self, name: str) -> bool:
        return name in self._changed and name in self._from_file

    def all_settings(self) -> dict[str, CameraSettings]:
        return self._from_file | self._changed

    def change(self, name: str, settings: CameraSettings | None) -> None:
        """Keep settings that override the file's; None goes back to the file's."""
        if self._writer is None or self.database is None:
            raise Refused("history-off", "Changes of cameras are kept in the history database, and the history is off.")
        if settings is None:
            self._changed.pop(name, None)
        else:
            self._changed[name] = settings
        self._changed_at = time.monotonic()
        self._pictures.pop(name, None)  # it may show what is masked now
        self._writer.put(store_settings(self.database, name, settings))
        if self.leads:
            self.desk.configure(self.all_settings())
        self._tell_state(name)

    # Counts ---------------------------------------------------------------------------------------------------

    def note(self, camera: Camera, picture: KeptPicture | None = None) -> None:
        """A count of this process."""
        self._keep(camera)
        if time.time() - camera.time >= self.settings_of(camera.camera).stale_seconds:
            return  # counted late: it belongs into the history alone
        if not self.cameras.note(camera):
            return
        # A picture that was under way while its settings changed may show what is masked now.
        if picture is not None and picture.settings == self.settings_of(camera.camera):
            self._pictures[camera.camera] = replace(picture, time=camera.time)
        if self.leads:
            self._evaluate(camera)
        elif self._writer is not None:
            content = camera.model_dump_json()
            self._writer.put(lambda connection: queue_observation(connection, content))
        if self._writer is not None and self.database is not None and self.database.shared:
            self._writer.put(store_latest(self.database, camera))
        self._tell_state(camera.camera)

    def show(self, camera: Camera) -> None:
        """A count of another replica, which has kept and evaluated it."""
        with suppress(Refused):  # no room: this replica remembers max_cameras, as any
            if self.cameras.note(camera):
                self._tell_state(camera.camera)

    def picture(self, name: str) -> KeptPicture | None:
        return self._pictures.get(name) if self.settings_of(name).keep_picture else None

    def state(self, name: str) -> CameraState | None:
        now, latest = time.time(), self.cameras.get(name)
        if latest is None and not self.is_configured(name):
            return None
        silent = latest is None or now - latest.time >= self.settings_of(name).stale_seconds
        picture = self.picture(name)
        return CameraState(
            camera=name,
            count=None if silent or latest is None else latest.count,
            range=None if silent or latest is None else latest.range,
            zones=[] if silent or latest is None else latest.zones,
            width=None if latest is None else latest.width,
            height=None if latest is None else latest.height,
            warnings=[] if latest is None else latest.warnings,
            time=None if latest is None else latest.time,
            model=None if latest is None else latest.model,
            request_id=None if latest is None else latest.request_id,
            people_per_square_metre=None if silent or latest is None else latest.people_per_square_metre,
            last_count=None if latest is None else latest.count,
            last_time=None if latest is None else latest.time,
            silent=silent,
            configured=self.is_configured(name),
            limits=self.desk.reports(name, now),
            alerts=len(self.desk.open(name)),
            picture=None if picture is None else picture.time,
        )

    def states(self) -> list[CameraState]:
        names = {camera.camera for camera in self.cameras.latest()} | set(self.all_settings())
        return [state for name in sorted(names) if (state := self.state(name)) is not None]

    def acknowledge(self, identity: str) -> Alert:
        alert = self.desk.acknowledge(identity)
        if alert is None:
            raise Refused("not-found", "There is no alert with this id.")
        return alert

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The life of the room: while the app runs."""
        beating = asyncio.create_task(self._run())
        try:
            yield
        finally:
            beating.cancel()
            with suppress(asyncio.CancelledError):
                await beating
            await asyncio.to_thread(self._close)

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily("uepnet_alert_open", "1 while an alert is open", labels=["camera", "zone", "kind"])
        for labels in {(alert.camera, alert.zone or "", alert.kind) for alert in self.desk.open()}:
            family.add_metric(labels, 1)
        return [family]

    # The beat -------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        failing = False
        asking: asyncio.Task[_News] | None = None
        try:
            while True:
                asking = asking or asyncio.create_task(asyncio.to_thread(self._ask))
                # Limits must not wait for a database that hangs: the question goes on, and so does the beat.
                await asyncio.wait({asking}, timeout=0 if failing else ANSWER_SECONDS)
                # Better two alerts than none: without the database every replica evaluates what it counts.
                news, trouble = _News(leads=True), "it is silent"
                if asking.done():
                    try:
                        news, trouble = asking.result(), ""
                    except SQLAlchemyError as error:
                        trouble = database_reason(error)
                    asking = None
                if trouble and not failing:
                    log.warning("the history database does not answer (%s)", trouble)
                elif failing and not trouble:
                    log.warning("the history database answers again")
                failing = bool(trouble)
                self._take(news)
                self._outbox.send_late(time.time())
                await asyncio.sleep(BEAT_SECONDS)
        finally:
            if asking is not None:
                asking.cancel()

    def _take(self, news: _News) -> None:
        # What was changed here a moment ago may not be in the database yet.
        settled = time.monotonic() - self._changed_at > 5.0
        if settled and news.settings is not None and news.settings != self._changed:
            self._take_over(news.settings)
        for camera in news.latest:
            self.show(camera)
        if news.alerts is not None and not self.leads:
            self.desk.load(news.alerts)
        elif news.alerts is not None:
            for alert in news.alerts:
                if alert.acknowledged is not None:
                    self.desk.acknowledge(alert.id, alert.acknowledged)
        if news.leads and not self.leads:
            self.leads = True
            self.desk.configure(self.all_settings())
            self._take_up(news.deliveries)
        elif not news.leads and self.leads:
            log.warning("another replica evaluates the limits now")
            self.leads = False
            self.desk.stop_watching()
        for camera in news.counted:
            self._evaluate(camera)
        if self.leads:
            self.desk.tick(time.time())
        self._tell_silence()

    def _take_over(self, changed: dict[str, CameraSettings]) -> None:
        """Settings that the database has: from before the start, or changed in another replica."""
        for name in set(changed) | set(self._changed):
            if changed.get(name) != self._changed.get(name):
                self._pictures.pop(name, None)  # it may show what is masked now
                if name in changed and name in self._from_file:
                    log.info("%s: settings that were saved over HTTP override the camera file", name)
        self._changed = changed
        if self.leads:
            self.desk.configure(self.all_settings())

    def _tell_silence(self) -> None:
        """Once for each camera that falls silent: nobody should go on with its last count."""
        now = time.time()
        latest = {camera.camera: camera for camera in self.cameras.latest()}
        silent = {name for name, one in latest.items() if now - one.time >= self.settings_of(name).stale_seconds}
        for name in silent - self._silent:
            self._tell_state(name)
            if self._mqtt is not None and self.leads:
                self._mqtt.show_silent(latest[name])
        if self._mqtt is not None and self.leads:
            for name in self._known - latest.keys():
                self._mqtt.forget(name)
        self._silent, self._known = silent, set(latest)

    def _ask(self) -> _News:
        """Thread: a worker's."""
        database = self.database
        if database is None:
            return _News(leads=True)
        with database.writing() as connection:
            news = _News(leads=self._hold_lease(database, connection))
            if news.leads:
                taken = delete(tables.observations).returning(tables.observations.c.id, tables.observations.c.content)
                rows = sorted(connection.execute(taken).all())
                news.counted = [Camera.model_validate_json(content) for _, content in rows]
        shared = database.shared
        with database.reading() as connection:
            if shared or not self.leads:
                changed = connection.execute(select(tables.cameras.c.camera, tables.cameras.c.settings)).all()
                news.settings = {name: CameraSettings.model_validate_json(content) for name, content in changed}
                news.alerts = stored_alerts(connection)
            if news.leads and not self.leads:
                news.deliveries = waiting(connection)
            if shared:
                newer = select(tables.latest.c.content).where(tables.latest.c.time > self._late)
                news.latest = [Camera.model_validate_json(row) for row in connection.execute(newer).scalars()]
                # Clocks differ a little, and rows come late: a few seconds are read twice.
                self._late = max([self._late, *(int(1000 * one.time) - 5000 for one in news.latest)])
        return news

    def _hold_lease(self, database: Database, connection: Connection) -> bool:
        now = int(1000 * time.time())
        row = {"name": LEASE, "holder": self._id, "until": now + int(1000 * LEASE_SECONDS)}
        dialect = postgresql if database.shared else sqlite
        connection.execute(dialect.insert(tables.leases).values(row).on_conflict_do_nothing())
        free = or_(tables.leases.c.holder == self._id, tables.leases.c.until < now)
        taken = connection.execute(update(tables.leases).where(tables.leases.c.name == LEASE, free).values(row))
        return taken.rowcount == 1

    # Inside ---------------------------------------------------------------------------------------------------

    def _evaluate(self, camera: Camera) -> None:
        if self._mqtt is not None:
            self._mqtt.show(camera)  # before its alerts: a receiver knows the camera then
        self.desk.observe(camera)
        if self._mqtt is not None:
            self._mqtt.show_alert(camera.camera, bool(self.desk.open(camera.camera)))

    def _take_up(self, deliveries: list[Delivery]) -> None:
        """Messages that an earlier process did not deliver."""
        receivers: dict[str, WebhookSender | MqttPublisher] = {sender.receiver: sender for sender in self._senders}
        if self._mqtt is not None:
            receivers[self._mqtt.receiver] = self._mqtt
        for delivery in deliveries:
            if delivery.receiver in receivers:
                receivers[delivery.receiver].take_up(delivery)
            else:
                self._outbox.done(delivery)

    def _keep(self, camera: Camera) -> None:
        if self._writer is None:
            return
        moment, bounds = round(1000 * camera.time), camera.range
        low, high = (None, None) if bounds is None else (bounds.low, bounds.high)
        rows = [Reading(camera.camera, "", moment, camera.count, low, high, camera.people_per_square_metre)]
        for zone in camera.zones:
            low, high = (None, None) if zone.range is None else (zone.range.low, zone.range.high)
            rows.append(Reading(camera.camera, zone.name, moment, zone.count, low, high, zone.people_per_square_metre))
        self._writer.put(*rows)

    def _tell_state(self, name: str) -> None:
        if self.cameras.has_listeners:
            state = self.state(name)
            if state is not None:
                self.cameras.tell("count", name, state.model_dump_json())

    def _tell_alert(self, message: AlertMessage) -> None:
        self.cameras.tell("alert", message.id, message.model_dump_json())
        self._tell_state(message.alert.camera)
        if self._mqtt is not None:
            self._mqtt.show_alert(message.alert.camera, bool(self.desk.open(message.alert.camera)))

    def _close(self) -> None:
        """Thread: a worker's."""
        for sender in self._senders:
            sender.stop()
        if self._mqtt is not None:
            self._mqtt.stop()
        if self._writer is not None:
            self._writer.stop()
        if self.database is not None:
            with suppress(SQLAlchemyError), self.database.writing() as connection:
                connection.execute(delete(tables.leases).where(tables.leases.c.holder == self._id))
            self.database.close()


def _open(url: str | None) -> Database | None:
    if url is not None and url.strip().lower() == "off":
        return None
    if url is not None:
        return Database(url)
    try:
        return Database(default_url())
    except OutputError as error:
        # Nobody asked for this file: the service counts without it, and says so.
        log.warning("%s The history is off; set UEPNET_HISTORY to a database or to off.", error)
        return None
