"""Counts over time as a picture: one or many recordings, their ranges, zones, gaps and alerts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import isnan, nan
from pathlib import Path

from matplotlib import dates
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from uepnet.model.errors import InputError, OutputError
from uepnet.service.recording import Record, read_records, time_text

# Told apart by the colour-blind, too (Okabe and Ito).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
ALERT_COLOUR = "#B00020"
LABEL_SHARE = 0.08  # of the time axis, as much as a label takes


@dataclass
class Series:
    """One recording as columns. A gap is a row of NaN: lines and bands break there."""

    label: str
    seconds: list[float] = field(default_factory=list)
    count: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    zones: dict[str, list[float]] = field(default_factory=dict)
    clock: bool = False  # seconds are since 1970

    def add(self, record: Record) -> None:
        bounds = record.get("range") or {}
        zones = {zone["name"]: zone["count"] for zone in record.get("zones", ())}
        for name in zones:
            self.zones.setdefault(name, [nan] * len(self.seconds))
        self.seconds.append(record["timestamp"])
        self.count.append(record.get("count", nan))
        self.low.append(bounds.get("low", nan))
        self.high.append(bounds.get("high", nan))
        for name, counts in self.zones.items():
            counts.append(zones.get(name, nan))
        self.clock = self.clock or "time" in record

    def moment(self, second: float) -> str:
        """A moment of this recording, for people."""
        if not self.clock:
            tenth = int(10 * second) % 10  # else a short stretch would end when it began
            return time_text(second) + (f".{tenth}" if tenth else "")
        return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


@dataclass(frozen=True, slots=True)
class Alert:
    """A stretch in which a recording reached the threshold; `end` is None where it still does at the end."""

    label: str
    start: float
    end: float | None
    peak: float


def load_series(path: Path) -> list[Series]:
    """A recording's cameras, each a series; one without a camera is called after its file."""
    found: dict[str, Series] = {}
    for record in read_records(path):
        label = record.get("camera") or path.name.removesuffix(".jsonl")
        found.setdefault(label, Series(label)).add(record)
    if not found:
        raise InputError(f"{path} holds no counts.")
    return list(found.values())


def alerts(series: Series, threshold: float) -> list[Alert]:
    """When the count reached the threshold and for how long. A gap ends nothing and begins nothing."""
    found: list[Alert] = []
    start, peak = None, 0.0
    for second, count in zip(series.seconds, series.count, strict=True):
        if count >= threshold:
            start, peak = (second, count) if start is None else (start, max(peak, count))
        elif count < threshold and start is not None:
            found.append(Alert(series.label, start, second, peak))
            start = None
    if start is not None:
        found.append(Alert(series.label, start, None, peak))
    return found


def draw(series: Sequence[Series], path: Path, alert: float | None = None, title: str | None = None) -> None:
    """Write the picture; the suffix (.png, .svg, .pdf) says in which format."""
    clock = all(line.clock for line in series)
    zoned = len(series) == 1 and bool(series[0].zones)
    figure = Figure(figsize=(11, 7 if zoned else 4.8), layout="constrained")
    axes: Sequence[Axes] = figure.subplots(2, sharex=True, height_ratios=(3, 2)) if zoned else [figure.subplots()]
    colours = _cycled(COLOURS, len(series))
    for line, colour in zip(series, colours, strict=True):
        _draw_line(axes[0], line, _moments(line, clock), colour)
    if alert is not None:
        _mark_alerts(axes[0], series, colours, alert, clock)
        axes[0].axhline(alert, color=ALERT_COLOUR, linewidth=1, linestyle="--", label=f"alert {alert:g}")
    if zoned:
        _draw_zones(axes[1], series[0], _moments(series[0], clock))
    for each in axes:
        _dress(each, clock)
    axes[0].set_title(title or (series[0].label if len(series) == 1 else "People over time"), loc="left")
    axes[-1].set_xlabel("time (UTC)" if clock else "time since the beginning")
    try:
        figure.savefig(path, dpi=130)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}.") from None
    except ValueError:
        raise InputError(f"{path}: a picture ends in .png, .svg or .pdf.") from None


def _moments(line: Series, clock: bool) -> list[float]:
    """What stands on the time axis: days since 1970 (matplotlib's dates), or seconds since the beginning."""
    if clock:
        return [second / 86_400 for second in line.seconds]
    origin = line.seconds[0] if line.clock else 0.0
    return [second - origin for second in line.seconds]


def _draw_line(axes: Axes, line: Series, moments: list[float], colour: str) -> None:
    axes.plot(moments, line.count, color=colour, linewidth=1.5, label=line.label)
    alone = _alone(line.count)
    axes.plot([moments[n] for n in alone], [line.count[n] for n in alone], ".", color=colour)
    axes.fill_between(moments, line.low, line.high, color=colour, alpha=0.18, linewidth=0)


def _draw_zones(axes: Axes, line: Series, moments: list[float]) -> None:
    for (name, counts), colour in zip(line.zones.items(), _cycled(COLOURS[1:], len(line.zones)), strict=True):
        axes.plot(moments, counts, color=colour, linewidth=1.2, label=name)
        alone = _alone(counts)
        axes.plot([moments[n] for n in alone], [counts[n] for n in alone], ".", color=colour)
    axes.set_title("zones", loc="left", fontsize="medium")


def _alone(counts: Sequence[float]) -> list[int]:
    """Which counts have a gap or nothing on either side: no line leads to them, a dot must show them."""
    unknown = [True, *map(isnan, counts), True]
    return [n for n in range(len(counts)) if unknown[n : n + 3] == [True, False, True]]


def _mark_alerts(axes: Axes, series: Sequence[Series], colours: Sequence[str], threshold: float, clock: bool) -> None:
    """A mark in the line's colour where it reached the threshold, with the time beside it where there is room."""
    marks: list[tuple[float, float, str]] = []
    for line, colour in zip(series, colours, strict=True):
        moments = dict(zip(line.seconds, _moments(line, clock), strict=True))
        marks += [(moments[alert.start], alert.start, colour) for alert in alerts(line, threshold)]
    left, right = axes.get_xlim()
    free_from = left
    for x, second, colour in sorted(marks):
        axes.plot([x], [threshold], marker="^", color=colour, markeredgecolor=ALERT_COLOUR, markersize=7, linestyle="")
        if x < free_from:
            continue
        free_from = x + LABEL_SHARE * (right - left)
        text = datetime.fromtimestamp(second, UTC).strftime("%H:%M:%S") if clock else time_text(x)
        axes.annotate(
            text,
            (x, threshold),
            (4, -14),
            textcoords="offset points",
            color=ALERT_COLOUR,
            fontsize="small",
            bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1},
        )


def _dress(axes: Axes, clock: bool) -> None:
    axes.set_ylim(bottom=0)
    axes.set_ylabel("people")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=7))
    if clock:
        locator = dates.AutoDateLocator()  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    else:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda second, _: time_text(max(0.0, second))))
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def _cycled(colours: Sequence[str], number: int) -> list[str]:
    return [colours[index % len(colours)] for index in range(number)]
