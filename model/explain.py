"""Which pass counted which part of an image, as a picture."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from uepnet.model.count import Count
from uepnet.model.errors import InputError

# One per pass, coarse to fine; told apart by the colour-blind (Okabe and Ito).
_COLOURS = np.array(
    [(86, 180, 233), (0, 158, 115), (240, 228, 66), (230, 159, 0), (213, 94, 0), (204, 121, 167), (0, 114, 178)],
    np.uint8,
)
_INK, _PAPER = (240, 240, 240), (24, 24, 28)
_TINT = 0.4  # how far a colour hides the image


def explain_scales(image: NDArray[np.uint8], count: Count) -> NDArray[np.uint8]:
    """The image [height, width, 3], tinted by the pass that counted each cell, over a line for each pass."""
    if count.scale_map is None:
        raise InputError("Only a count made in this process tells which pass counted which part.")
    height, width = image.shape[:2]
    tints = _COLOURS[count.scale_map % len(_COLOURS)]
    spread = np.repeat(np.repeat(tints, count.cell, axis=0), count.cell, axis=1)[:height, :width]
    tinted = (image * (1 - _TINT) + spread * _TINT).astype(np.uint8)
    lines = [
        (index, f"scale {use.scale:.2f}: {use.share:.0%} of the image, {_people(count, index):,.0f} people")
        for index, use in enumerate(count.scales)
    ]
    text_size = min(96, max(13, width // 58))
    font = ImageFont.load_default(text_size)
    line, margin = text_size * 3 // 2, text_size // 2
    wide = max(width, *(round(font.getlength(text)) + 3 * line for _, text in lines))
    canvas = Image.new("RGB", (wide, height + line * len(lines) + 2 * margin), _PAPER)
    canvas.paste(Image.fromarray(tinted))
    draw = ImageDraw.Draw(canvas)
    for row, (index, text) in enumerate(lines):
        top = height + margin + row * line
        colour = tuple(int(value) for value in _COLOURS[index % len(_COLOURS)])
        draw.rectangle((margin, top + text_size // 4, margin + text_size, top + text_size * 5 // 4), fill=colour)
        draw.text((2 * line, top + line // 2), text, _INK, font, anchor="lm")
    return np.asarray(canvas)


def _people(count: Count, index: int) -> float:
    return float(count.count_map[count.scale_map == index].sum(dtype=np.float64))
