"""What the database keeps of alerts while several replicas write about the same one."""

from pathlib import Path

from uepnet.service.cameras.alert_desk import store_alert, stored_alerts
from uepnet.service.cameras.database import Database
from uepnet.service.cameras.wire import Alert

OPEN = Alert(id="one", camera="gate", kind="people", text="gate: 60 people, limit 50.", started=1.0, opened=1.0)


def stored(database: Database, *alerts: Alert) -> Alert:
    for alert in alerts:
        with database.writing() as connection:
            store_alert(database, alert)(connection)
    with database.reading() as connection:
        (found,) = stored_alerts(connection)
    return found


def test_an_alert_that_has_ended_is_not_opened_again_by_a_replica_that_has_not_heard_of_it(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'h.sqlite'}")
    ended = OPEN.model_copy(update={"ended": 4e9, "end_reason": "cleared"})
    acknowledged = OPEN.model_copy(update={"acknowledged": 3.0})
    assert stored(database, OPEN, ended, acknowledged) == ended
    both = ended.model_copy(update={"acknowledged": 5.0})
    assert stored(database, both) == both
    database.close()
