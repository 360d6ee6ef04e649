"""The report of a fine-tuning: one HTML file with its pictures and charts inside, nothing from outside.

It is for people who decide: the verdict in words, the error before and after, every picture as a point, how often the
range held, and the worst and best pictures with labels (dots) and counts (heat).
"""

import html
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from uepnet.model.artifact import Artifact
from uepnet.model.outputs import whole_text
from uepnet.training.data.dataset import Sample
from uepnet.training.embedded import embedded, heat
from uepnet.training.evaluate import Result
from uepnet.training.verdict import Verdict

SHOWN = 4  # pictures with the largest errors, and as many with the smallest
WIDTH = 420  # pixels of a picture
CHART = 360  # pixels of a side
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #1c1c1c; }
table { border-collapse: collapse; margin: 1rem 0; } th, td { text-align: left; padding: .3rem .9rem .3rem 0; }
td { border-top: 1px solid #ddd; } figure { margin: 0 0 1.5rem; } figure img { max-width: 49%; }
.verdict { font-size: 1.3rem; border-left: .4rem solid #2a7; padding-left: 1rem; } .old { border-color: #c80; }
.charts { display: flex; flex-wrap: wrap; gap: 2rem; } svg text { font-size: 11px; fill: #444; }
"""


def write_report(path: Path, verdict: Verdict, artifact: Artifact, samples: Sequence[Sample]) -> None:
    with whole_text(path) as file:
        file.write(report(verdict, artifact, samples))


def report(verdict: Verdict, artifact: Artifact, samples: Sequence[Sample]) -> str:
    """The whole page."""
    new = verdict.kept == "new"
    results = verdict.after if new else verdict.before
    heading = "The new model is better and is kept" if new else "The old model is kept"
    reason = f"{'' if new else '. The new one is not better'}: {html.escape(verdict.reason)}"
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Fine-tuning: {heading}</title>',
        f"<style>{STYLE}</style></head><body><h1>Fine-tuning report</h1>",
        f'<p class="verdict{"" if new else " old"}"><b>{heading}</b>{reason}.</p>',
        _table(verdict),
        "<p>Every picture was counted by a network that was trained without it and without its neighbours.</p>",
        _known(verdict),
        '<div class="charts">',
        _scatter(verdict),
        _ranges(results, artifact),
        "</div>",
        _pictures(results, artifact, verdict.samples),
        f"<p>Model {html.escape(artifact.name)} {html.escape(artifact.version)}, {len(samples)} labelled pictures, "
        f"up to {verdict.config.steps} training steps for each copy.</p></body></html>",
    ]
    return "\n".join(parts)


def _table(verdict: Verdict) -> str:
    answer = verdict.as_json()
    rows = []
    for name, empty in (("before", verdict.empty[0]), ("after", verdict.empty[1])):
        row = answer[name]
        assert isinstance(row, dict)
        share = "" if row["nae"] is None else f"{row['nae']:.0%}"
        rows.append(
            f"<tr><th>{name}</th><td>{row['mae']:.2f} ({row['mae_low']:.2f} to {row['mae_high']:.2f})</td>"
            f"<td>{share}</td><td>{row['bias']:+.2f}</td><td>{empty:.2f}</td></tr>"
        )
    held = len(verdict.before)
    return (
        "<table><tr><th></th><th>mean error in people (90 % bounds)</th><th>as a share</th><th>bias</th>"
        f"<th>people in drawn empty scenes</th></tr>{''.join(rows)}</table>"
        f"<p>{html.escape(verdict.in_words)} The range of the kept model held {round(verdict.coverage * held)} of "
        f"{held} pictures ({verdict.coverage:.0%}) when it was fitted without them.</p>"
    )


def _known(verdict: Verdict) -> str:
    return f"<p><b>Please note:</b> {html.escape(verdict.caveat)}</p>" if verdict.known else ""


def _scatter(verdict: Verdict) -> str:
    """Counted over labelled people: hollow before, filled after."""
    pairs = [(results, style) for results, style in ((verdict.before, "none"), (verdict.after, "#27a"))]
    top = max([1.0, *(max(result.truth, result.counted) for results, _ in pairs for result in results)])
    dots = [
        f'<circle cx="{_at(result.truth, top):.1f}" cy="{CHART - _at(result.counted, top):.1f}" r="3.5" fill="{fill}" '
        f'stroke="#27a" fill-opacity="0.6"><title>{html.escape(result.name)}: {result.truth} labelled, '
        f"{result.counted:.1f} counted</title></circle>"
        for results, fill in pairs
        for result in results
    ]
    low, high = _at(0, top), _at(top, top)
    line = f'<line x1="{low}" y1="{CHART - low}" x2="{high}" y2="{CHART - high}" stroke="#999"/>'
    return _chart("Counted over labelled people (hollow: before, filled: after)", [line, *dots], top)


def _ranges(results: Sequence[Result], artifact: Artifact) -> str:
    """The range around each count, and the labelled number: red where it lies outside."""
    ordered = sorted(results, key=lambda result: result.truth)
    calibration = artifact.calibration
    bounds = [
        calibration.range(result.counted, result.count.doubt) if calibration else (result.counted,) * 2
        for result in ordered
    ]
    top = max([1.0, *(max(high, result.truth) for (_, high), result in zip(bounds, ordered, strict=True))])
    marks = []
    for place, (result, (low, high)) in enumerate(zip(ordered, bounds, strict=True)):
        x = 30 + (CHART - 40) * (place + 0.5) / len(ordered)
        colour = "#27a" if low <= result.truth <= high else "#c22"
        marks.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{CHART - _at(low, top):.1f}" y2="{CHART - _at(high, top):.1f}" '
            f'stroke="{colour}" stroke-opacity="0.4" stroke-width="3"/>'
            f'<circle cx="{x:.1f}" cy="{CHART - _at(result.truth, top):.1f}" r="2.5" fill="{colour}"/>'
        )
    return _chart("Range around each count, dot: labelled people (red: outside)", marks, top)


def _at(value: float, top: float) -> float:
    return 30 + (CHART - 40) * value / top


def _chart(title: str, marks: Sequence[str], top: float) -> str:
    axes = f'<path d="M30 10V{CHART - 30}H{CHART - 10}" fill="none" stroke="#444"/>'
    labels = f'<text x="2" y="16">{top:.0f}</text><text x="16" y="{CHART - 26}">0</text>'
    drawing = "".join([axes, labels, *marks])
    size = f'width="{CHART}" height="{CHART}"'
    return f'<figure><figcaption>{title}</figcaption><svg {size} role="img">{drawing}</svg></figure>'


def _pictures(results: Sequence[Result], artifact: Artifact, samples: Sequence[Sample]) -> str:
    order = sorted(zip(results, samples, strict=True), key=lambda pair: -abs(pair[0].error))
    worst, best = order[:SHOWN], order[SHOWN:][-SHOWN:][::-1]
    parts = []
    for title, chosen in (("Largest errors: wrong labels usually sit here", worst), ("Smallest errors", best)):
        parts.append(f"<h2>{title}</h2>")
        parts += [_picture(sample, result, artifact) for result, sample in chosen]
    return "".join(parts)


def _picture(sample: Sample, result: Result, artifact: Artifact) -> str:
    """The labels as dots, and the counts as heat."""
    image = sample.load_image()
    height, width = image.shape[:2]
    shown = (dotted(sample, WIDTH * 2), heat(result.count.count_map, width, height, result.count.cell))
    pictures = "".join(embedded(picture, WIDTH) for picture in shown)
    text = f"{html.escape(sample.name)}: {result.truth} labelled, {result.counted:.1f} counted ({result.error:+.1f})"
    return f"<figure><figcaption>{text}</figcaption>{pictures}</figure>"


def dotted(sample: Sample, width: int) -> Image.Image:
    """The picture, its longer side `width` pixels, with a dot on every label."""
    picture = Image.fromarray(sample.load_image())
    factor = width / max(picture.size)
    small = picture.resize((max(1, round(picture.width * factor)), max(1, round(picture.height * factor))))
    draw = ImageDraw.Draw(small)
    for x, y in np.asarray(sample.points) * factor:
        draw.ellipse((x - 4, y - 4, x + 4, y + 4), outline="black", fill="yellow")
    return small
