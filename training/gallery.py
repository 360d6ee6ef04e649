"""A picture of where a model is most wrong: image, truth and prediction side by side."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from uepnet.model.artifact import Artifact
from uepnet.model.render import heat_map, scale_top
from uepnet.training.analyse import count_maps
from uepnet.training.config import parse_kernel
from uepnet.training.dataset import Sample
from uepnet.training.evaluate import Result

WIDTH = 420  # of each picture


def draw_worst(
    samples: Sequence[Sample], results: Sequence[Result], artifact: Artifact, path: Path, rows: int = 6
) -> None:
    """The images with the largest absolute errors, one a row."""
    order = np.argsort([-abs(result.error) for result in results])[:rows]
    strips = [_strip(samples[index], results[index], artifact) for index in order]
    sheet = Image.new("RGB", (3 * WIDTH, sum(strip.height for strip in strips)), "white")
    top = 0
    for strip in strips:
        sheet.paste(strip, (0, top))
        top += strip.height
    sheet.save(path)


def _strip(sample: Sample, result: Result, artifact: Artifact) -> Image.Image:
    image = sample.load_image()
    height, width = image.shape[:2]
    kernel = parse_kernel(str(artifact.training.get("settings", {}).get("kernel", "")))
    (truth,) = count_maps([sample], artifact.cell, kernel)
    counted = result.count.count_map
    top = scale_top(np.maximum(truth, counted))  # one scale for both, so that their colours can be compared
    pictures = [image, *(heat_map(counts, width, height, artifact.cell, top) for counts in (truth, counted))]
    titles = [sample.name, f"truth {result.truth}", f"counted {result.counted:.0f} ({result.error:+.0f})"]
    shown = (WIDTH, round(WIDTH * height / width))
    strip = Image.new("RGB", (3 * WIDTH, shown[1] + 22), "white")
    draw = ImageDraw.Draw(strip)
    for index, (picture, title) in enumerate(zip(pictures, titles, strict=True)):
        strip.paste(Image.fromarray(picture).resize(shown), (index * WIDTH, 22))
        draw.text((index * WIDTH + 6, 4), title, fill="black", font_size=13)
    return strip
