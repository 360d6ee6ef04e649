"""A contact sheet: pictures with a dot on every label, so that a person sees a shifted label at a glance."""

from collections.abc import Sequence

from PIL import Image, ImageDraw

from uepnet.model.errors import DataError, ImageError
from uepnet.training.data.sample import Sample

SHOWN = 24
COLUMNS = 4
WIDTH = 400  # of a picture
HIGHEST = 600
LINE = 20


def contact_sheet(samples: Sequence[Sample], shown: int = SHOWN) -> Image.Image:
    """Up to `shown` pictures, spread evenly over the samples, with their names and counts."""
    step = max(1, -(-len(samples) // shown))
    tiles = [_tile(sample) for sample in samples[::step]]
    rows = [tiles[start : start + COLUMNS] for start in range(0, len(tiles), COLUMNS)]
    heights = [max(tile.height for tile in row) for row in rows]
    sheet = Image.new("RGB", (COLUMNS * WIDTH, sum(heights)), "white")
    top = 0
    for row, height in zip(rows, heights, strict=True):
        for column, tile in enumerate(row):
            sheet.paste(tile, (column * WIDTH, top))
        top += height
    return sheet


def _tile(sample: Sample) -> Image.Image:
    try:
        points, picture = sample.points, Image.fromarray(sample.load_image())
    except (DataError, ImageError) as error:
        return _titled(Image.new("RGB", (WIDTH - 4, WIDTH // 2), "#ddd"), f"{sample.name}: {error}", "red")
    factor = min((WIDTH - 4) / picture.width, HIGHEST / picture.height)
    width, height = (max(1, round(side * factor)) for side in picture.size)
    small = picture.resize((width, height), reducing_gap=2)
    draw = ImageDraw.Draw(small)
    for x, y in points * factor:
        draw.ellipse((x - 2.5, y - 2.5, x + 2.5, y + 2.5), outline="black", fill="yellow")
    return _titled(small, f"{sample.name}: {len(points)}", "black")


def _titled(picture: Image.Image, title: str, colour: str) -> Image.Image:
    tile = Image.new("RGB", (WIDTH, picture.height + LINE), "white")
    tile.paste(picture, (2, LINE))
    ImageDraw.Draw(tile).text((4, 3), title[:70], fill=colour, font_size=12)
    return tile
