"""Count map -> pictures: a heat map, and an overlay on the image with a caption, a legend and the zones.

Colours run from dark blue through red to yellow and brighten in even steps, so that colour-blind people can tell
them apart and they stay readable in grey. They follow the square root of a cell's count: a single person stays
visible next to a crowd.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from uepnet.model.count import Count
from uepnet.model.image import STRIP_PIXELS, Check, go_on, rgb_pixels
from uepnet.model.zones import Zone

Rgb = NDArray[np.uint8]  # [height, width, 3]
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

_ANCHORS = np.array(
    [
        (13, 22, 89),
        (76, 30, 141),
        (143, 43, 148),
        (200, 73, 120),
        (237, 117, 80),
        (251, 172, 56),
        (252, 231, 84),
    ]
)
_PLACES, _LEVELS = np.linspace(0, 255, len(_ANCHORS)), np.arange(256)
# [256, 3], from 0 people to the top of the scale
_COLOURS = np.stack([np.interp(_LEVELS, _PLACES, channel) for channel in _ANCHORS.T], axis=1).astype(np.uint8)
_FAINT, _STRONG = 110, 215  # how far the heat map hides the image: with hardly anyone, at the top (of 255)
_SOMEONE = 0.004  # people per cell; below it the heat map fades out, as networks see traces of people anywhere
_INK, _QUIET_INK, _PAPER = (240, 240, 240), (178, 178, 184), (24, 24, 28)


def heat_map(
    count_map: NDArray[np.float32], width: int, height: int, cell: int, top: float | None = None, check: Check = go_on
) -> Rgb:
    """People per cell as colours, [height, width, 3]; `top` people are brightest (default: `scale_top`)."""
    colours = _COLOURS[_levels(count_map, top or scale_top(count_map))]
    picture = np.empty((height, width, 3), np.uint8)
    for row, line in enumerate(colours):
        check()
        picture[row * cell : (row + 1) * cell] = np.repeat(line, cell, axis=0)[:width]
    return picture


def overlay(
    image: Rgb,
    count: Count,
    zones: Sequence[Zone] = (),
    top: float | None = None,
    label: str = "",
    check: Check = go_on,
) -> Rgb:
    """The image under its heat map, zones with their counts, and a strip below with the count and a legend.

    Cells without people are not coloured. The picture is as wide as the image (a very small one is widened) and
    higher by the strip. A video passes a fixed `top`, so that a colour means the same in all its frames, and a
    `label` for the upper left corner. `check` is called between strips.
    """
    top = top or scale_top(count.count_map)
    text_size = min(96, max(13, count.width // 58))
    strip = _strip(count, top, text_size)
    canvas = Image.new("RGB", (max(count.width, strip.width), count.height + strip.height), _PAPER)
    _paint(canvas, image, count, top, check)
    draw = ImageDraw.Draw(canvas)
    _draw_zones(draw, zones, count, text_size, check)
    if label:
        _draw_label(draw, label, text_size)
    canvas.paste(strip, (0, count.height))
    return rgb_pixels(canvas, check=check)


def _paint(canvas: Image.Image, image: Rgb, count: Count, top: float, check: Check) -> None:
    """The image under its heat map. In strips: at once, each layer would take as much memory as the picture."""
    rows = max(1, STRIP_PIXELS // (count.width * count.cell))
    for first in range(0, len(count.count_map), rows):
        check()
        people, begin = count.count_map[first : first + rows], first * count.cell
        part = image[begin : begin + rows * count.cell]
        strip = Image.fromarray(part)
        colours = heat_map(people, count.width, len(part), count.cell, top)
        strip.paste(Image.fromarray(colours), mask=_spread(_veil(people, top), count.width, len(part), count.cell))
        canvas.paste(strip, (0, begin))


def scale_top(count_map: NDArray[np.float32]) -> float:
    """A round number of people per cell at or above the map's largest: the top of its colour scale."""
    largest = max(float(count_map.max(initial=0)), 0.01)
    unit = 10.0 ** math.floor(math.log10(largest))
    steps = (1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10)
    return next(step * unit for step in steps if step * unit >= largest * (1 - 1e-6))


def _levels(count_map: NDArray[np.float32], top: float) -> NDArray[np.uint8]:
    """Each cell's place in the colour table, 0 ... 255."""
    share = np.sqrt(np.clip(count_map / top, 0, 1))
    levels: NDArray[np.uint8] = np.rint(share * 255).astype(np.uint8)
    return levels


def _veil(count_map: NDArray[np.float32], top: float) -> NDArray[np.uint8]:
    """How much each cell's colour covers the image, 0 ... 255: not at all where there is nobody."""
    hides = _FAINT + (_STRONG - _FAINT) * (_levels(count_map, top) / 255)
    veil: NDArray[np.uint8] = (hides * np.clip(count_map / _SOMEONE, 0, 1)).astype(np.uint8)
    return veil


def _spread(cells: NDArray[np.uint8], width: int, height: int, cell: int) -> Image.Image:
    """One value per cell -> one per pixel; cells at the image's edge are cut off as they are in the image."""
    rows, columns = cells.shape[:2]
    spread = Image.fromarray(cells).resize((columns * cell, rows * cell), Image.Resampling.NEAREST)
    return spread.crop((0, 0, width, height))


def _strip(count: Count, top: float, text_size: int) -> Image.Image:
    """The caption on the left, the legend on the right; at least as wide as the image, of even height."""
    font, large = ImageFont.load_default(text_size), ImageFont.load_default(text_size * 3 // 2)
    margin = text_size // 2 + 2
    caption, detail = f"{_people(count.count)} people", ""
    if count.range is not None:
        low, high, level = _people(count.range.low), _people(count.range.high), count.range.level
        detail = f"range {low} to {high} ({level:.0%})"
    exceeded = float(count.count_map.max(initial=0)) > top * (1 + 1e-6)
    legend = _legend(count.cell, top, exceeded, font, text_size)
    caption_width = math.ceil(max(large.getlength(caption), font.getlength(detail)))
    width = max(count.width, margin + caption_width + 2 * margin + legend.width + margin)
    strip = Image.new("RGB", (width, legend.height + 2 * margin + legend.height % 2), _PAPER)
    draw = ImageDraw.Draw(strip)
    draw.text((margin, margin), caption, _INK, large)
    draw.text((margin, strip.height - margin), detail, _QUIET_INK, font, anchor="ld")
    strip.paste(legend, (width - margin - legend.width, margin))
    return strip


def _legend(cell: int, top: float, exceeded: bool, font: Font, text_size: int) -> Image.Image:
    """A title, the colours from 0 to `top` people, and the values of three of them."""
    title = f"people per cell of {cell} x {cell} pixels"
    width, line = math.ceil(font.getlength(title)), text_size * 4 // 3
    legend = Image.new("RGB", (width, 3 * line), _PAPER)
    draw = ImageDraw.Draw(legend)
    draw.text((0, line // 2), title, _QUIET_INK, font, anchor="lm")
    legend.paste(Image.fromarray(_COLOURS[None]).resize((width, text_size)), (0, line + (line - text_size) // 2))
    for share, anchor in ((0.0, "lm"), (0.5, "mm"), (1.0, "rm")):
        # Colours follow the root: halfway along stands a quarter of the top.
        more = "+" if share == 1.0 and exceeded else ""
        draw.text((share * width, 2 * line + line // 2), f"{top * share**2:.3g}{more}", _INK, font, anchor=anchor)
    return legend


def _draw_label(draw: ImageDraw.ImageDraw, label: str, text_size: int) -> None:
    """Text on a dark ground in the upper left corner."""
    font = ImageFont.load_default(text_size)
    margin = text_size // 3
    draw.rectangle((0, 0, font.getlength(label) + 2 * margin, text_size * 1.5), fill=_PAPER)
    draw.text((margin, text_size * 0.75), label, _INK, font, anchor="lm")


def _draw_zones(draw: ImageDraw.ImageDraw, zones: Sequence[Zone], count: Count, text_size: int, check: Check) -> None:
    """Outlines white on black, visible on any image; then the labels, so that no line crosses one."""
    font = ImageFont.load_default(text_size)
    people = {zone.name: zone.count for zone in count.zones}
    outlines = [zone.in_pixels(count.width, count.height) for zone in zones]
    thickness = max(2, text_size // 5)
    for outline in outlines:
        check()
        ring = [(float(x), float(y)) for x, y in (*outline, outline[0], outline[1])]
        draw.line(ring, fill=_PAPER, width=thickness + 2, joint="curve")
        draw.line(ring, fill=_INK, width=thickness, joint="curve")
    for zone, outline in zip(zones, outlines, strict=True):
        label = f"{zone.name}: {_people(people[zone.name])}" if zone.name in people else zone.name
        half_width, half_height = font.getlength(label) / 2 + text_size / 3, text_size * 0.75
        x, y = outline.mean(axis=0)
        x = max(half_width, min(float(x), count.width - half_width))
        y = max(half_height, min(float(y), count.height - half_height))
        draw.rectangle((x - half_width, y - half_height, x + half_width, y + half_height), fill=_PAPER)
        draw.text((x, y), label, _INK, font, anchor="mm")


def _people(count: float) -> str:
    return f"{count:,.0f}" if count >= 10 else f"{count:.1f}"
