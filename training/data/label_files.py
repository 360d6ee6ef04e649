"""Points -> files that labelling tools import: CVAT, Label Studio, COCO, and a table.

What a model proposes is no label yet. Each file says so, and its reader repeats it (`PROPOSED`): a tool that exports
the corrected labels writes a file of its own, without that mark.
"""

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np
from numpy.typing import NDArray

from uepnet.training.data.annotations import PROPOSED, ZERO_BASED

BOX = 8.0  # pixels: the side of the box that COCO wants around a point


@dataclass(frozen=True)
class Proposal:
    """A picture and the people that a model sees in it."""

    name: str  # the path below the folder that was given, with forward slashes
    size: tuple[int, int]
    points: NDArray[np.float64]  # [people, 2] as x, y; pixel centres at +0.5


@dataclass(frozen=True)
class Wording:
    """What a file says of all its points."""

    label: str
    model: str
    address: str = ""  # before each picture's name, where a tool fetches pictures from a server


def write(format_name: str, proposals: Sequence[Proposal], wording: Wording) -> str:
    return WRITERS[format_name](proposals, wording)


def _cvat(proposals: Sequence[Proposal], wording: Wording) -> str:
    """CVAT for images 1.1, a shape for each person, so that one can be moved or deleted alone."""
    lines = ['<?xml version="1.0" encoding="utf-8"?>', "<annotations>", "  <version>1.1</version>"]
    lines.append(f"  <meta><{PROPOSED}>{_escaped(wording.model)}</{PROPOSED}></meta>")
    for number, proposal in enumerate(proposals):
        width, height = proposal.size
        name = quoteattr(proposal.name)
        lines.append(f'  <image id="{number}" name={name} width="{width}" height="{height}">')
        head = f'    <points label={quoteattr(wording.label)} source="auto" occluded="0" z_order="0"'
        lines += [f'{head} points="{x:.2f},{y:.2f}"></points>' for x, y in proposal.points]
        lines.append("  </image>")
    return "\n".join([*lines, "</annotations>", ""])


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _label_studio(proposals: Sequence[Proposal], wording: Wording) -> str:
    """Tasks with predictions: Label Studio shows them, and a person turns them into annotations by submitting."""
    tasks = []
    for proposal in proposals:
        width, height = proposal.size
        regions = [
            {
                "id": f"p{index}",
                "type": "keypointlabels",
                "from_name": "label",
                "to_name": "image",
                "original_width": width,
                "original_height": height,
                "image_rotation": 0,
                "value": {
                    "x": round(100 * x / width, 4),
                    "y": round(100 * y / height, 4),
                    "width": 0.5,
                    "keypointlabels": [wording.label],
                },
            }
            for index, (x, y) in enumerate(proposal.points.tolist())
        ]
        prediction = {"model_version": wording.model, "result": regions}
        tasks.append({"data": {"image": wording.address + proposal.name}, "predictions": [prediction]})
    return json.dumps(tasks, indent=1, ensure_ascii=False) + "\n"


def _coco(proposals: Sequence[Proposal], wording: Wording) -> str:
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number, proposal in enumerate(proposals, start=1):
        width, height = proposal.size
        images.append({"id": number, "file_name": proposal.name, "width": width, "height": height})
        for x, y in proposal.points.tolist():
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": 1,
                    "keypoints": [round(x - ZERO_BASED, 2), round(y - ZERO_BASED, 2), 2],
                    "num_keypoints": 1,
                    "bbox": [round(x - BOX / 2, 2), round(y - BOX / 2, 2), BOX, BOX],
                    "area": BOX * BOX,
                    "iscrowd": 0,
                }
            )
    category = {"id": 1, "name": wording.label, "keypoints": [wording.label], "skeleton": []}
    content = {
        "info": {PROPOSED: wording.model},
        "images": images,
        "annotations": annotations,
        "categories": [category],
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _table(proposals: Sequence[Proposal], wording: Wording) -> str:
    """A row for each person; a picture in which nobody is seen has one row without x and y."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["image", "x", "y", PROPOSED])
    for proposal in proposals:
        places = [(f"{x:.2f}", f"{y:.2f}") for x, y in proposal.points] or [("", "")]
        rows.writerows([proposal.name, x, y, wording.model] for x, y in places)
    return text.getvalue()


WRITERS: dict[str, Callable[[Sequence[Proposal], Wording], str]] = {
    "cvat": _cvat,
    "label-studio": _label_studio,
    "coco": _coco,
    "csv": _table,
}
SUFFIXES = {"cvat": ".xml", "label-studio": ".json", "coco": ".json", "csv": ".csv"}
