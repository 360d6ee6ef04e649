"""All cameras' limits in one place: counts in, alert messages out, everything kept in the database.

Thread: used on the event loop alone.
"""

import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable

from sqlalchemy import Connection, delete, or_, select
from sqlalchemy.dialects import postgresql, sqlite

from uepnet.model.cameras import CameraSettings
from uepnet.service.cameras.database import Database, alerts
from uepnet.service.cameras.limits import CameraWatch, Change
from uepnet.service.cameras.wire import Alert, AlertEvent, AlertMessage, LimitReport
from uepnet.service.cameras.writer import Task, Writer
from uepnet.service.schemas import Camera

MAX_RECENT = 500
KEPT_SECONDS = 90 * 86_400.0

Sink = Callable[[AlertMessage], None]


class AlertDesk:
    def __init__(self, writer: Writer | None, database: Database | None) -> None:
        self._writer, self._database = writer, database
        self._watches: dict[str, CameraWatch] = {}
        self._open: dict[str, Alert] = {}
        self._recent: deque[Alert] = deque(maxlen=MAX_RECENT)  # newest first
        self.sinks: list[Sink] = []

    def load(self, stored: Iterable[Alert]) -> None:
        """What the database knows of alerts, where this process did not evaluate them itself."""
        known = list(stored)
        self._open = {alert.id: alert for alert in known if alert.ended is None}
        ended = sorted((alert for alert in known if alert.ended is not None), key=lambda alert: -(alert.ended or 0))
        self._recent = deque(ended, maxlen=MAX_RECENT)

    def configure(self, cameras: dict[str, CameraSettings]) -> None:
        """Watch these cameras; alerts of limits that are gone end."""
        now = time.time()
        for name in [name for name in self._watches if name not in cameras]:
            self._publish(self._watches.pop(name).close(now))
        for name, settings in cameras.items():
            before = self._watches.get(name)
            if before is not None and before.settings == settings:
                continue
            mine = [alert for alert in (*self._open.values(), *self._recent) if alert.camera == name]
            watch = CameraWatch(name, settings, now, mine)
            if before is not None:
                watch.last_time, watch.last_arrival = before.last_time, before.last_arrival
            self._watches[name] = watch
            gone = [("ended", one.model_copy(update={"ended": now, "end_reason": "removed"})) for one in watch.orphans]
            watch.orphans = []
            self._publish([("ended", alert) for _, alert in gone])
        for alert in [alert for alert in self._open.values() if alert.camera not in cameras]:
            self._publish([("ended", alert.model_copy(update={"ended": now, "end_reason": "removed"}))])

    def stop_watching(self) -> None:
        """Another replica evaluates from now on."""
        self._watches = {}

    def observe(self, seen: Camera) -> None:
        watch = self._watches.get(seen.camera)
        if watch is not None:
            self._publish(watch.observe(seen, time.time()))

    def tick(self, now: float) -> None:
        for watch in self._watches.values():
            self._publish(watch.tick(now))

    def reports(self, camera: str, now: float) -> list[LimitReport]:
        watch = self._watches.get(camera)
        return [] if watch is None else watch.reports(now)

    def open(self, camera: str | None = None) -> list[Alert]:
        found = [alert for alert in self._open.values() if camera in (None, alert.camera)]
        return sorted(found, key=lambda alert: -alert.opened)

    def recent(self) -> list[Alert]:
        return list(self._recent)

    def acknowledge(self, identity: str, moment: float | None = None) -> Alert | None:
        """The alert, now acknowledged; None where there is no such alert."""
        alert = self._open.get(identity) or next((one for one in self._recent if one.id == identity), None)
        if alert is None or alert.acknowledged is not None:
            return alert
        alert = alert.model_copy(update={"acknowledged": time.time() if moment is None else moment})
        if identity in self._open:
            self._open[identity] = alert
        else:
            self._recent = deque((alert if one.id == identity else one for one in self._recent), maxlen=MAX_RECENT)
        self._store(alert)
        self._tell("acknowledged", alert)
        return alert

    def _publish(self, changes: list[Change]) -> None:
        for event, alert in changes:
            known = self._open.get(alert.id)
            if known is not None and known.acknowledged is not None:
                alert = alert.model_copy(update={"acknowledged": known.acknowledged})
            if alert.ended is None:
                self._open[alert.id] = alert
            else:
                self._open.pop(alert.id, None)
                self._recent.appendleft(alert)
            self._store(alert)
            self._tell(event, alert)

    def _tell(self, event: AlertEvent, alert: Alert) -> None:
        message = AlertMessage(event=event, id=uuid.uuid4().hex, time=time.time(), alert=alert)
        for sink in self.sinks:
            sink(message)

    def _store(self, alert: Alert) -> None:
        if self._writer is not None and self._database is not None:
            self._writer.put(store_alert(self._database, alert))


def store_alert(database: Database, alert: Alert) -> Task:
    insert = (postgresql if database.shared else sqlite).insert
    row = {
        "id": alert.id,
        "camera": alert.camera,
        "opened": int(1000 * alert.opened),
        "ended": None if alert.ended is None else int(1000 * alert.ended),
        "acknowledged": alert.acknowledged is not None,
        "content": alert.model_dump_json(),
    }

    def task(connection: Connection) -> None:
        changed = {name: row[name] for name in ("ended", "acknowledged", "content")}
        statement = insert(alerts).values(row)
        # Another replica may acknowledge an alert while this one ends it: what has ended stays so.
        goes_on = or_(alerts.c.ended.is_(None), statement.excluded.ended.is_not(None))
        connection.execute(statement.on_conflict_do_update(index_elements=["id"], set_=changed, where=goes_on))
        oldest = int(1000 * (time.time() - KEPT_SECONDS))
        connection.execute(delete(alerts).where(alerts.c.ended < oldest))

    return task


def stored_alerts(connection: Connection) -> list[Alert]:
    """All open alerts, and the newest of those that have ended."""
    open_rows = connection.execute(select(alerts.c.content).where(alerts.c.ended.is_(None))).scalars()
    recent = select(alerts.c.content).where(alerts.c.ended.is_not(None)).order_by(alerts.c.ended.desc())
    rows = [*open_rows, *connection.execute(recent.limit(MAX_RECENT)).scalars()]
    return [Alert.model_validate_json(row) for row in rows]
