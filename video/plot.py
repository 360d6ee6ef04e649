"""Counts over time as a picture: one or many recordings, their ranges, zones, gaps and alerts."""

from collections.abc import Sequence
from datetime import datetime, tzinfo
from math import isnan
from pathlib import Path

from matplotlib import dates
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, Locator, MaxNLocator

from uepnet.model.errors import InputError
from uepnet.model.outputs import picture_format, whole_file
from uepnet.model.smoothing import Hysteresis
from uepnet.video.recording import time_text
from uepnet.video.series import Series, breaches

PICTURE_FORMATS = (".png", ".svg", ".pdf")
# Colour-blind people can tell them apart, too (Okabe and Ito).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
ALERT_COLOUR = "#B00020"
LABEL_SHARE = 0.08  # of the time axis: the width of a label
STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, *(60 * step for step in (1, 2, 5, 10, 15, 30)))
HOUR_STEPS = tuple(3600 * step for step in (1, 2, 3, 6, 12, 24, 48, 96, 168))


class TimeLocator(Locator):
    """Ticks at round times since the beginning: 15 s, 5 min, 2 h."""

    def __call__(self) -> list[float]:
        low, high = sorted(self.axis.get_view_interval())  # type: ignore[union-attr]
        return self.tick_values(low, high)

    def tick_values(self, vmin: float, vmax: float) -> list[float]:
        step = next((step for step in STEPS + HOUR_STEPS if (vmax - vmin) / step <= 10), HOUR_STEPS[-1])
        first, last = round(vmin / step), round(vmax / step)
        return [number * step for number in range(first, last + 1) if vmin <= number * step <= vmax]


def draw(series: Sequence[Series], path: Path, alert: Hysteresis | None = None, title: str | None = None) -> None:
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
        level = alert.raise_at
        axes[0].axhline(level, color=ALERT_COLOUR, linewidth=1, linestyle="--", label=f"alert {level:g}")
    if zoned:
        _draw_zones(axes[1], series[0], _moments(series[0], clock))
    zone = datetime.fromtimestamp(series[0].seconds[0]).astimezone().tzinfo if clock else None
    for each in axes:
        _dress(each, clock, zone)
    axes[0].set_title(title or (series[0].label if len(series) == 1 else "People over time"), loc="left")
    axes[-1].set_xlabel(_axis_name(series, clock))
    try:
        with whole_file(path) as file:
            kind = picture_format(path)
            note = {"Software" if kind == "png" else "Creator": "uepnet plot"}  # so that it may be replaced on --resume
            figure.savefig(file, dpi=130, format=kind, metadata=note)
    except ValueError:
        raise InputError(f"{path}: a picture's name ends in .png, .svg or .pdf.") from None


def _axis_name(series: Sequence[Series], clock: bool) -> str:
    if not clock:
        return "time since the beginning"
    return f"local time ({datetime.fromtimestamp(series[0].seconds[0]).astimezone():%Z})"


def _moments(line: Series, clock: bool) -> list[float]:
    """Places on the time axis: days since 1970 (matplotlib's dates), or seconds since the beginning."""
    if clock:
        return [second / 86_400 for second in line.seconds]
    origin = line.seconds[0] if line.clock else 0.0
    return [second - origin for second in line.seconds]


def _draw_line(axes: Axes, line: Series, moments: list[float], colour: str) -> None:
    """The smoothed counts, if any, over the faint counts of single frames; the range as a band."""
    smoothed = line.best is not line.count
    if smoothed:
        axes.plot(moments, line.count, color=colour, linewidth=0.8, alpha=0.35)
    axes.plot(moments, line.best, color=colour, linewidth=1.5, label=line.label)
    alone = _alone(line.best)
    axes.plot([moments[n] for n in alone], [line.best[n] for n in alone], ".", color=colour)
    name = None if line.level is None else f"{line.level:.0%} range"
    axes.fill_between(moments, line.low, line.high, color=colour, alpha=0.18, linewidth=0, label=name)


def _draw_zones(axes: Axes, line: Series, moments: list[float]) -> None:
    for (name, counts), colour in zip(line.zones.items(), _cycled(COLOURS[1:], len(line.zones)), strict=True):
        axes.plot(moments, counts, color=colour, linewidth=1.2, label=name)
        alone = _alone(counts)
        axes.plot([moments[n] for n in alone], [counts[n] for n in alone], ".", color=colour)
    axes.set_title("zones", loc="left", fontsize="medium")


def _alone(counts: Sequence[float]) -> list[int]:
    """Counts with a gap or nothing on either side: no line leads to them, so they are drawn as dots."""
    unknown = [True, *map(isnan, counts), True]
    return [n for n in range(len(counts)) if unknown[n : n + 3] == [True, False, True]]


def _mark_alerts(axes: Axes, series: Sequence[Series], colours: Sequence[str], rule: Hysteresis, clock: bool) -> None:
    """A mark in the line's colour where each alert begins, with the time next to it where there is room."""
    marks: list[tuple[float, str, str]] = []
    for line, colour in zip(series, colours, strict=True):
        moments = dict(zip(line.seconds, _moments(line, clock), strict=True))
        for breach in breaches(line, rule):
            x = moments.get(breach.start, min(moments.values()))
            local = datetime.fromtimestamp(breach.start).astimezone()
            marks.append((x, f"{local:%H:%M:%S}" if clock else time_text(x), colour))
    left, right = axes.get_xlim()
    free_from = left
    for x, text, colour in sorted(marks):
        axes.plot(
            [x], [rule.raise_at], marker="^", color=colour, markeredgecolor=ALERT_COLOUR, markersize=7, linestyle=""
        )
        if x < free_from:
            continue
        free_from = x + LABEL_SHARE * (right - left)
        axes.annotate(
            text,
            (x, rule.raise_at),
            (4, -14),
            textcoords="offset points",
            color=ALERT_COLOUR,
            fontsize="small",
            bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1},
        )


def _dress(axes: Axes, clock: bool, zone: tzinfo | None) -> None:
    axes.set_ylim(bottom=0)
    axes.set_ylabel("people")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=7))
    if clock:
        locator = dates.AutoDateLocator(tz=zone)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, tz=zone))  # type: ignore[no-untyped-call]
    else:
        axes.xaxis.set_major_locator(TimeLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda second, _: _tick(second)))
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def _tick(second: float) -> str:
    tenths = round(10 * second)
    return time_text(max(0, tenths // 10)) + (f".{tenths % 10}" if tenths % 10 else "")


def _cycled(colours: Sequence[str], number: int) -> list[str]:
    return [colours[index % len(colours)] for index in range(number)]
