"""Which pictures to label next: those that look unlike the training pictures, then those with the widest range.

Neighbouring frames of a video teach the same, so a picture that nearly equals one that is already chosen is passed
over. Pictures that the model was trained on have nothing more to teach.
"""

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from uepnet.model.artifact import Artifact
from uepnet.model.count import Count
from uepnet.training.data.near_copies import ALIKE, Print, print_of
from uepnet.training.embedded import embedded, heat

WIDTH = 460  # pixels of a picture in the gallery
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #1c1c1c; }
figure { margin: 0 0 1.5rem; } figure img { max-width: 49%; } figcaption { overflow-wrap: anywhere; }
"""


@dataclass(frozen=True)
class Candidate:
    """What is kept of a counted picture: no pixels, so that thousands fit."""

    name: str
    path: Path
    count: float
    range: tuple[float, float] | None
    familiarity: float | None
    unfamiliar: bool
    doubt: float | None
    look: Print

    @classmethod
    def of(cls, name: str, path: Path, image: NDArray[np.uint8], count: Count) -> "Candidate":
        bounds = None if count.range is None else (count.range.low, count.range.high)
        return cls(name, path, count.count, bounds, count.familiarity, count.unfamiliar, count.doubt, print_of(image))

    @property
    def reason(self) -> str:
        if self.unfamiliar:
            return "unlike the training pictures"
        return "wide range" if self.range is not None else "the network is unsure"

    def as_json(self) -> dict[str, object]:
        low, high = self.range or (None, None)
        return {
            "path": str(self.path),
            "count": self.count,
            "range": None if self.range is None else {"low": low, "high": high},
            "familiarity": self.familiarity,
            "unfamiliar": self.unfamiliar,
            "reason": self.reason,
        }


def choose(candidates: Sequence[Candidate], number: int, artifact: Artifact) -> list[Candidate]:
    """Up to `number`, the most instructive first, none nearly the same as another."""
    doubts = [one.doubt for one in candidates if one.doubt is not None]
    usual = float(np.median(doubts)) if doubts else 1.0
    uses_doubt = artifact.calibration is not None and artifact.calibration.trust > 0

    def order(one: Candidate) -> tuple[bool, float]:
        if one.unfamiliar and one.familiarity is not None:
            return False, one.familiarity
        unsure = 1.0 if uses_doubt or one.doubt is None else math.sqrt(one.doubt / usual)
        low, high = one.range or (0.0, one.count)
        return True, -(high - low) * unsure

    chosen: list[Candidate] = []
    for one in sorted(candidates, key=order):
        if len(chosen) == number:
            break
        if all(float(one.look @ other.look) < ALIKE for other in chosen):
            chosen.append(one)
    return chosen


def gallery(chosen: Sequence[Candidate], model: str, show: Callable[[Path], tuple[NDArray[np.uint8], Count]]) -> str:
    """One HTML page; `show` gives a picture's pixels and count anew."""
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Pictures to label next</title>',
        f"<style>{STYLE}</style></head><body><h1>Pictures to label next</h1>",
        f"<p>Chosen with {html.escape(model)}: the most instructive first. Heat shows where it counts people.</p>",
    ]
    for place, one in enumerate(chosen, start=1):
        pixels, count = show(one.path)
        shown = (Image.fromarray(pixels), heat(count.count_map, count.width, count.height, count.cell))
        text = f"{place}. {one.name}: {counted(one)}, {one.reason}"
        parts.append(f"<figure><figcaption>{html.escape(text)}</figcaption>")
        parts += [*(embedded(picture, WIDTH) for picture in shown), "</figure>"]
    return "\n".join([*parts, "</body></html>\n"])


def counted(one: Candidate) -> str:
    """`12 people (8 to 17)`."""
    bounds = "" if one.range is None else f" ({one.range[0]:.0f} to {one.range[1]:.0f})"
    return f"{one.count:.0f} people{bounds}"
