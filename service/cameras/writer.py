"""Write-behind: counting hands rows over and goes on; one thread writes them, at most half a second later.

While the database cannot be written (a full disk, a server that is away) rows wait in memory, up to a bound;
past it the oldest are dropped and counted. Counting goes on, a metric and one log line say what is wrong.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from uepnet.service.cameras.database import Database, database_reason
from uepnet.service.cameras.history import History, Reading, Retention
from uepnet.service.metrics import Metrics

Task = Callable[[Connection], None]  # a change in the database; must bear to be done twice

FLUSH_SECONDS = 0.4
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 0.5, 30.0
MAX_PENDING = 200_000
ROWS_PER_TRANSACTION = 5_000
PRUNE_SECONDS = 600.0

log = logging.getLogger(__name__)


class Step(NamedTuple):
    """A change in the database, and what follows once it is there; `then` runs in the writing thread."""

    task: Task
    then: Callable[[], None]


Item = Reading | Task | Step


class Writer:
    """`put` may be called from any thread; the writing happens in one thread of its own."""

    def __init__(self, database: Database, history: History, metrics: Metrics, retention: Retention) -> None:
        self._database, self._history, self._metrics = database, history, metrics
        self._retention = retention
        self._pending: deque[Item] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._urgent = False
        self._failing = False
        self._next_prune = time.monotonic() + 5.0
        metrics.history_ok.set(1)
        self._thread = threading.Thread(target=self._run, name="uepnet-history", daemon=True)
        self._thread.start()

    def put(self, *items: Item) -> None:
        with self._changed:
            self._pending.extend(items)
            self._urgent = self._urgent or any(not isinstance(item, Reading) for item in items)
            dropped = len(self._pending) - MAX_PENDING
            for _ in range(max(0, dropped)):
                self._pending.popleft()
            if dropped > 0:
                self._metrics.history_dropped.inc(dropped)
            self._changed.notify()

    @property
    def failing(self) -> bool:
        return self._failing

    def stop(self, seconds: float = 5.0) -> None:
        """Write what is left, for at most so long."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(seconds)
        if self._pending:
            log.warning("%d rows of the history could not be written before the end", len(self._pending))

    def _run(self) -> None:
        pause = FIRST_RETRY_SECONDS
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._stopping, PRUNE_SECONDS / 4)
                # Rows gather for a moment: one transaction for all cameras. Alerts do not wait.
                self._changed.wait_for(lambda: self._urgent or self._stopping, FLUSH_SECONDS)
                self._urgent = False
                batch = [self._pending.popleft() for _ in range(min(len(self._pending), ROWS_PER_TRANSACTION))]
                stopping = self._stopping
            if batch and not self._write(batch):
                with self._changed:
                    self._pending.extendleft(reversed(batch))
                    self._changed.wait_for(lambda: self._stopping, pause)
                pause = min(2 * pause, LAST_RETRY_SECONDS)
                if stopping:
                    return
                continue
            pause = FIRST_RETRY_SECONDS
            self._metrics.history_pending.set(len(self._pending))
            if stopping and not self._pending:
                return
            if not stopping:
                self._prune()

    def _write(self, batch: list[Item]) -> bool:
        """Whether the batch is done with: written, or dropped because no database would take it."""
        readings = [item for item in batch if isinstance(item, Reading)]
        try:
            with self._database.writing() as connection:
                written = self._history.add(connection, readings) if readings else 0
                for item in batch:
                    if not isinstance(item, Reading):
                        task = item.task if isinstance(item, Step) else item
                        task(connection)
        except SQLAlchemyError as error:
            self._history.forget_series()
            self._note_failure(error)
            if _may_pass(error):
                self._metrics.history_pending.set(len(batch) + len(self._pending))
                return False
            log.exception("%d rows of the history were refused by the database and are lost", len(batch))
            self._metrics.history_dropped.inc(len(batch))
            return True
        self._metrics.history_written.inc(written)
        if self._failing:
            log.warning("the history can be written again")
        self._failing = False
        self._metrics.history_ok.set(1)
        for item in batch:
            if isinstance(item, Step):
                item.then()
        return True

    def _note_failure(self, error: SQLAlchemyError) -> None:
        self._metrics.history_errors.inc()
        self._metrics.history_ok.set(0)
        if not self._failing:
            log.error("the history cannot be written (%s); counting goes on, trying again", database_reason(error))
        self._failing = True

    def _prune(self) -> None:
        if time.monotonic() < self._next_prune:
            return
        self._next_prune = time.monotonic() + PRUNE_SECONDS
        try:
            self._history.prune(self._retention)
        except SQLAlchemyError as error:
            log.warning("old rows of the history could not be deleted (%s)", database_reason(error))


def _may_pass(error: SQLAlchemyError) -> bool:
    """Whether the same rows may be taken later: the disk is full, the server is away, another one writes."""
    if isinstance(error, (OperationalError, PoolTimeout)):
        return True
    return isinstance(error, DBAPIError) and error.connection_invalidated
