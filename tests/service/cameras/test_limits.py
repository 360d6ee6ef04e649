"""Limits: a flicker alerts once, stale counts neither raise nor hold, a restart repeats nothing."""

from typing import Any

import pytest

from uepnet.model.cameras import CameraSettings, Limit
from uepnet.service.cameras.limits import CameraWatch, Change
from uepnet.service.cameras.wire import Alert
from uepnet.service.schemas import Camera, ModelSummary, RangeAnswer, ZoneAnswer

MODEL = ModelSummary(name="toy", version="1", precision="fp32", device="cpu")
QUIET = {"silent_seconds": None, "frozen_seconds": None, "unfamiliar_seconds": None, "saturated_seconds": None}


def seen(time: float, count: float, zones: list[ZoneAnswer] | None = None, **fields: Any) -> Camera:
    low = fields.pop("low", count - 5)
    bounds = None if low is None else RangeAnswer(low=low, high=count + 5, level=0.9)
    shared = {"width": 64, "height": 64, "warnings": [], "model": MODEL, "request_id": "r", "digest": f"{time}"}
    return Camera(camera="gate", count=count, range=bounds, zones=zones or [], time=time, **(shared | fields))


def watch(*limits: Limit, now: float = 0.0, alerts: list[Alert] | None = None, **fields: Any) -> CameraWatch:
    settings = CameraSettings(limits=limits, **({**QUIET, "smooth_seconds": 0} | fields))
    return CameraWatch("gate", settings, now, alerts or [])


def names(changes: list[Change]) -> list[str]:
    return [event for event, _ in changes]


def feed(watched: CameraWatch, counts: list[float], start: float = 0.0, step: float = 1.0) -> list[Change]:
    return [
        change for index, count in enumerate(counts) for change in watched.observe(seen(start + index * step, count))
    ]


def test_an_alert_is_raised_and_ends_below_its_clear_level() -> None:
    changes = feed(watch(Limit(people=50, clear_below=45)), [40, 50, 46, 45, 44, 40])
    assert names(changes) == ["opened", "ended"]
    (_, opened), (_, ended) = changes
    assert (opened.opened, opened.limit, opened.text) == (1.0, 50, "gate: 50 people, limit 50.")
    assert (ended.ended, ended.end_reason, ended.peak, ended.id) == (4.0, "cleared", 50, opened.id)


def test_a_count_that_flickers_about_the_limit_alerts_once() -> None:
    flicker = [49, 51] * 40
    assert names(feed(watch(Limit(people=50)), flicker)) == ["opened"]
    smoothed = watch(Limit(people=50, for_seconds=5), smooth_seconds=5)
    assert names(feed(smoothed, [30, 30, 90, 30, 30, 30, 95, 30, 30, 30])) == []


def test_a_crowd_that_sways_about_the_limit_alerts_once_in_five_minutes() -> None:
    """Each swing clears the limit and reaches it again; without a pause these were fourteen alerts."""
    sway = ([55] * 10 + [40] * 10) * 14
    assert names(feed(watch(Limit(people=50), smooth_seconds=5), sway)) == ["opened", "ended"]


def test_the_limit_has_to_be_reached_for_a_while() -> None:
    limit = Limit(people=50, for_seconds=3)
    assert names(feed(watch(limit), [50, 50, 50, 40, 50, 50])) == []
    ((event, alert),) = feed(watch(limit), [50, 50, 50, 50])
    assert (event, alert.started, alert.opened) == ("opened", 0.0, 3.0)


def test_after_an_alert_there_is_a_pause() -> None:
    limit = Limit(people=50, cooldown_seconds=10)
    assert names(feed(watch(limit), [50, 0, 60, 60, 60])) == ["opened", "ended"]
    assert names(feed(watch(limit), [50, 0, *[60] * 12])) == ["opened", "ended", "opened"]


def test_an_alert_is_certain_once_even_the_low_end_reaches_the_limit() -> None:
    watched = watch(Limit(people=50))
    ((_, first),) = watched.observe(seen(0, 52))
    assert not first.certain
    ((event, second),) = watched.observe(seen(1, 60))
    assert (event, second.certain, second.id) == ("certain", True, first.id)
    assert watched.observe(seen(2, 61)) == []
    ((_, alone),) = watch(Limit(people=50)).observe(seen(0, 90))
    assert alone.certain
    ((_, unknown),) = watch(Limit(people=50)).observe(seen(0, 90, low=None))
    assert not unknown.certain


def test_zones_and_density_have_limits_of_their_own() -> None:
    zone = ZoneAnswer(
        name="doors", count=60, range=RangeAnswer(low=30, high=70, level=0.9), people_per_square_metre=4.0
    )
    limits = (Limit(zone="doors", people=50), Limit(zone="doors", per_square_metre=3.5), Limit(per_square_metre=5))
    changes = watch(*limits).observe(seen(0, 500, [zone], people_per_square_metre=6.0))
    assert [(alert.zone, alert.kind, alert.value, alert.certain) for _, alert in changes] == [
        ("doors", "people", 60, False),
        ("doors", "per_square_metre", 4.0, False),
        (None, "per_square_metre", 6.0, True),
    ]
    assert changes[2][1].text == "gate: 6.00 people per square metre in the densest 10 m², limit 5."
    unknown = zone.model_copy(update={"people_per_square_metre": None})
    assert watch(limits[1]).observe(seen(0, 500, [unknown])) == []


def test_a_silent_camera_holds_no_alert_and_raises_its_own() -> None:
    watched = watch(Limit(people=50), silent_seconds=10)
    feed(watched, [60])
    assert watched.tick(9.9) == []
    changes = watched.tick(10.0)
    assert [(event, alert.kind, alert.end_reason) for event, alert in changes] == [
        ("ended", "people", "silent"),
        ("opened", "silent", None),
    ]
    assert watched.tick(11.0) == []
    assert names(watched.observe(seen(12.0, 60))) == ["ended", "opened"]


def test_a_camera_that_never_came_is_silent_too() -> None:
    watched = watch(silent_seconds=10, now=100.0)
    assert watched.tick(109) == []
    ((event, alert),) = watched.tick(110)
    assert (event, alert.kind, alert.text) == ("opened", "silent", "gate: no count for 10 seconds.")


def test_a_gap_begins_the_wait_anew() -> None:
    watched = watch(Limit(people=50, for_seconds=5), silent_seconds=10)
    assert names(watched.observe(seen(0, 60)) + watched.observe(seen(11, 60))) == []
    assert names(watched.observe(seen(16, 60))) == ["opened"]


def test_counts_out_of_order_change_nothing() -> None:
    watched = watch(Limit(people=50))
    assert names(watched.observe(seen(10, 40)) + watched.observe(seen(9, 90)) + watched.observe(seen(10, 90))) == []


def test_identical_frames_are_a_frozen_camera() -> None:
    watched = watch(frozen_seconds=3)
    changes = [change for time in range(6) for change in watched.observe(seen(time, 5, digest="same"))]
    assert [(event, alert.kind) for event, alert in changes] == [("opened", "frozen")]
    assert names(watched.observe(seen(7, 5, digest="other"))) == ["ended"]
    moving = watch(frozen_seconds=3)
    assert [moving.observe(seen(time, 5)) for time in range(6)] == [[]] * 6


def test_a_frozen_camera_stays_frozen_over_a_restart() -> None:
    before = watch(frozen_seconds=3)
    ((_, alert),) = [change for time in range(6) for change in before.observe(seen(time, 5, digest="same"))]
    after = watch(frozen_seconds=3, now=6.0, alerts=[alert])
    assert [after.observe(seen(time, 5, digest="same")) for time in (7, 8)] == [[], []]
    assert names(after.observe(seen(9, 5, digest="other"))) == ["ended"]


@pytest.mark.parametrize("kind", ["saturated", "unfamiliar"])
def test_what_the_model_says_of_the_scene_alerts_too(kind: str) -> None:
    watched = watch(**{f"{kind}_seconds": 2})
    changes = [change for time in range(4) for change in watched.observe(seen(time, 5, **{kind: True}))]
    assert [(event, alert.kind) for event, alert in changes] == [("opened", kind)]
    assert names(watched.observe(seen(5, 5, **{kind: False}))) == ["ended"]


def test_an_open_alert_goes_on_after_a_restart() -> None:
    before = watch(Limit(people=50))
    ((_, alert),) = feed(before, [60])
    after = watch(Limit(people=50), now=2.0, alerts=[alert])
    assert feed(after, [60, 60], start=3) == []
    ((event, ended),) = after.observe(seen(6, 10))
    assert (event, ended.id) == ("ended", alert.id)


def test_the_pause_after_an_alert_is_kept_over_a_restart() -> None:
    limit = Limit(people=50, cooldown_seconds=10)
    changes = feed(watch(limit), [50, 0])
    again = watch(limit, now=2.0, alerts=[alert for _, alert in changes[-1:]])
    assert names(feed(again, [60] * 8, start=2.0)) == []
    assert names(feed(again, [60] * 2, start=10.0)) == ["opened"]


def test_an_alert_of_a_limit_that_is_gone_ends() -> None:
    ((_, alert),) = feed(watch(Limit(people=50)), [60])
    changed = watch(Limit(people=70), alerts=[alert])
    assert [(event, one.end_reason) for event, one in changed.close(5.0)] == [("ended", "removed")]
    assert changed.open_alerts() == []


def test_reports_say_how_each_limit_stands() -> None:
    watched = watch(Limit(people=50, for_seconds=5), Limit(people=10), Limit(people=500), silent_seconds=10)
    assert {report.state for report in watched.reports(0)} == {"unknown"}
    watched.observe(seen(0, 60))
    assert [report.state for report in watched.reports(1)] == ["reached", "alert", "clear"]
    watched.tick(20)
    assert {(report.state, report.value) for report in watched.reports(20)} == {("unknown", None)}
