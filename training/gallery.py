"""A picture of where a model is most wrong and where it is right: image, truth and prediction side by side."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from uepnet.model.artifact import Artifact
from uepnet.model.outputs import picture_format, whole_file
from uepnet.model.render import heat_map, scale_top
from uepnet.training.data.dataset import Sample
from uepnet.training.data.targets import CountMap, count_maps, parse_kernel
from uepnet.training.evaluate import Result

WIDTH = 420  # of each picture
BLOCK = 128  # side of the region that is marked as the worst, in pixels of the image


def draw_worst(
    samples: Sequence[Sample], results: Sequence[Result], artifact: Artifact, path: Path, rows: int = 6, best: int = 3
) -> None:
    """One image per row: those with the largest absolute errors, then those with the smallest relative ones.

    A red rectangle marks the region with the largest error, as in the paper.
    """
    worst = np.argsort([-abs(result.error) for result in results])[:rows].tolist()
    good = np.argsort([abs(result.error) / max(1, result.truth) for result in results]).tolist()
    order = worst + [index for index in good if index not in worst][:best]
    strips = [_strip(samples[index], results[index], artifact) for index in order]
    sheet = Image.new("RGB", (3 * WIDTH, sum(strip.height for strip in strips)), "white")
    top = 0
    for strip in strips:
        sheet.paste(strip, (0, top))
        top += strip.height
    with whole_file(path) as file:
        sheet.save(file, {"jpg": "JPEG"}.get(picture_format(path), picture_format(path)))


def worst_block(truth: CountMap, counted: CountMap, side: int) -> NDArray[np.float64]:
    """(left, top, right, bottom), in cells, of the square of `side` cells whose count is furthest from the truth."""
    rows, columns = truth.shape
    height, width = min(side, rows), min(side, columns)
    summed = np.zeros((rows + 1, columns + 1))
    summed[1:, 1:] = (counted.astype(np.float64) - truth).cumsum(0).cumsum(1)
    blocks = summed[height:, width:] - summed[:-height, width:] - summed[height:, :-width] + summed[:-height, :-width]
    top, left = np.unravel_index(np.abs(blocks).argmax(), blocks.shape)
    return np.array([left, top, left + width, top + height], dtype=np.float64)


def _strip(sample: Sample, result: Result, artifact: Artifact) -> Image.Image:
    image = sample.load_image()
    height, width = image.shape[:2]
    kernel = parse_kernel(str(artifact.training.get("settings", {}).get("kernel", "")))
    (truth,) = count_maps([sample], artifact.cell, kernel)
    counted = result.count.count_map
    top = scale_top(np.maximum(truth, counted))  # one scale for both, so that their colours can be compared
    box = worst_block(truth, counted, BLOCK // artifact.cell) * (artifact.cell * WIDTH / width)
    pictures = [image, *(heat_map(counts, width, height, artifact.cell, top) for counts in (truth, counted))]
    titles = [sample.name, f"truth {result.truth}", f"counted {result.counted:.0f} ({result.error:+.0f})"]
    shown = (WIDTH, round(WIDTH * height / width))
    strip = Image.new("RGB", (3 * WIDTH, shown[1] + 22), "white")
    draw = ImageDraw.Draw(strip)
    for index, (picture, title) in enumerate(zip(pictures, titles, strict=True)):
        strip.paste(Image.fromarray(picture).resize(shown), (index * WIDTH, 22))
        corner = np.array([index * WIDTH, 22, index * WIDTH, 22])
        draw.rectangle([round(place) for place in (box + corner).tolist()], outline="red", width=2)
        draw.text((index * WIDTH + 6, 4), title, fill="black", font_size=13)
    return strip
