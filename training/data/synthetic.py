"""Drawn scenes without people: flat colours, gradients, noise, text, foliage, gravel, stripes, rows of
things, empty streets; and photographs without people arranged to look like a crowd. Also drawn crowds.

Photographs without people teach real empty scenes; these drawings teach unusual inputs of a service (a covered lens,
static, a test card), in which networks tend to count people.
"""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter
from scipy.spatial import cKDTree

Picture = NDArray[np.uint8]  # [height, width, 3]
Rng = np.random.Generator


def drawn(rng: Rng, width: int, height: int) -> Picture:
    """One scene of a random kind; half of them of the kinds that look most like a crowd."""
    kinds = LOOKALIKES if rng.random() < 0.5 else tuple(KINDS)
    return KINDS[kinds[int(rng.integers(len(kinds)))]](rng, width, height)


def flat(rng: Rng, width: int, height: int) -> Picture:
    colour = rng.choice([0, 255]) if rng.random() < 0.5 else rng.integers(0, 256, 3)
    return np.full((height, width, 3), colour, np.uint8)


def gradient(rng: Rng, width: int, height: int) -> Picture:
    angle = rng.uniform(0, 2 * np.pi)
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    along = (x * np.cos(angle) + y * np.sin(angle))[..., None]
    along = (along - along.min()) / max(1e-6, np.ptp(along))
    ends = rng.uniform(0, 255, (2, 3))
    return np.asarray(ends[0] + along * (ends[1] - ends[0]), np.uint8)


def noise(rng: Rng, width: int, height: int) -> Picture:
    """Static, grey or coloured, of any strength and grain."""
    grain = int(rng.choice([1, 1, 2, 4, 8]))
    shape = (height // grain + 1, width // grain + 1, int(rng.choice([1, 3])))
    values = (
        rng.normal(rng.uniform(40, 215), rng.uniform(5, 90), shape)
        if rng.random() < 0.7
        else rng.uniform(0, 255, shape)
    )
    blocks = np.clip(values, 0, 255).astype(np.uint8).repeat(grain, 0).repeat(grain, 1)
    return np.ascontiguousarray(np.broadcast_to(blocks[:height, :width], (height, width, 3)))


def text(rng: Rng, width: int, height: int) -> Picture:
    dark = rng.random() < 0.3
    image = Image.new("RGB", (width, height), (20, 20, 20) if dark else (250, 250, 250))
    draw = ImageDraw.Draw(image)
    size = int(rng.integers(8, 40))
    letters = list("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,;:()    ")
    for y in range(0, height, int(size * 1.4)):
        line = "".join(rng.choice(letters, max(1, 2 * width // size)))
        draw.text((int(rng.integers(-20, 20)), y), line, fill=(230, 230, 230) if dark else (10, 10, 10), font_size=size)
    return np.asarray(image)


def foliage(rng: Rng, width: int, height: int) -> Picture:
    """Leaves: many small overlapping ellipses in greens, or in one hue of autumn."""
    base = rng.uniform((10, 40, 0), (90, 130, 60)) if rng.random() < 0.7 else rng.uniform((90, 50, 0), (190, 120, 60))
    image = Image.new("RGB", (width, height), tuple(int(v * 0.5) for v in base))
    draw = ImageDraw.Draw(image)
    leaf = rng.uniform(3, 16)
    for _ in range(min(6000, int(2 * width * height / leaf**2))):
        x, y = rng.uniform(0, width), rng.uniform(0, height)
        w, h = rng.uniform(0.3, 1.0, 2) * leaf
        draw.ellipse((x, y, x + w, y + h), fill=tuple(int(v) for v in np.clip(base * rng.uniform(0.4, 1.7), 0, 255)))
    return np.asarray(image)


def gravel(rng: Rng, width: int, height: int) -> Picture:
    """Pebbles: cells around random points, shaded, with dark gaps between them; smaller with distance, of one hue or
    of a few."""
    side, growth = rng.uniform(4, 18), rng.uniform(0.01, 2.5)  # of a pebble at the top, and how much larger below
    y, x = np.mgrid[0:height, 0:width]
    down = y / height
    ground = np.stack(  # where a pixel lies on the ground, in pebbles
        [(x - width / 2) / (side * (1 + growth * down)), height / (side * growth) * np.log1p(growth * down)], axis=-1
    ).reshape(-1, 2)
    low, high = ground.min(axis=0), ground.max(axis=0)
    pebbles = rng.uniform(low, high, (max(2, int(np.prod(high - low))), 2))
    distances, nearest = map(np.asarray, cKDTree(pebbles).query(ground, k=2))
    gap = np.clip((distances[:, 1] - distances[:, 0]) / rng.uniform(0.1, 0.5), rng.uniform(0.1, 0.6), 1)
    light = 1 + rng.uniform(0, 0.5) * (ground - pebbles[nearest[:, 0]]) @ rng.normal(0, 1, 2)
    hues = rng.uniform(60, 190, (int(rng.integers(1, 5)), 1)) * rng.uniform(0.75, 1.25, 3)
    hues = hues * rng.uniform(0.8, 1.2, hues.shape)
    tones = hues[rng.integers(len(hues), size=len(pebbles))] * rng.uniform(0.4, 1.5, (len(pebbles), 1)) + rng.normal(
        0, 12, (len(pebbles), 3)
    )
    pixels = tones[nearest[:, 0]] * (gap * light)[:, None]
    picture = np.clip(pixels, 0, 255).astype(np.uint8).reshape(height, width, 3)
    return np.asarray(Image.fromarray(picture).filter(ImageFilter.GaussianBlur(rng.uniform(0, 1.2))))


def rows(rng: Rng, width: int, height: int) -> Picture:
    """Things in rows that shrink with distance: seats, boats, parked cars. Wider than high, as heads are not."""
    ground = rng.uniform(40, 200, 3)
    image = Image.new("RGB", (width, height), tuple(int(v) for v in ground))
    draw = ImageDraw.Draw(image)
    hues = rng.uniform(20, 235, (int(rng.integers(1, 4)), 3))
    flat, gap, full = rng.uniform(0.3, 0.6), rng.uniform(1.0, 2.5), rng.uniform(0.5, 1)
    side, growth = rng.uniform(4, 24), rng.uniform(1.0, 1.15)
    shape = draw.ellipse if rng.random() < 0.5 else draw.rectangle
    y = rng.uniform(0, height / 3)
    while y < height:
        step = side * gap
        for x in np.arange(-rng.uniform(0, step), width, step):
            if rng.random() > full:
                continue
            body = hues[int(rng.integers(len(hues)))] * rng.uniform(0.7, 1.2)
            left, top = x + rng.uniform(-0.1, 0.1) * side, y + rng.uniform(-0.1, 0.1) * side
            middle, bottom = top + side * flat * 0.4, top + side * flat
            shape((left, top, left + side, bottom), fill=tuple(int(min(255, v)) for v in body))
            shape((left + side / 6, top, left + side * 5 / 6, middle), fill=tuple(int(v * 0.5) for v in body))
        y += side * flat * gap
        side *= growth
    return np.asarray(image.filter(ImageFilter.GaussianBlur(rng.uniform(0, 1.2))))


def sheet(photographs: Sequence[Picture], rng: Rng, side: int) -> Picture:
    """A contact sheet: photographs made small, side by side and repeated. Their contents are then as small and numerous
    as people in a crowd."""
    small = int(np.exp(rng.uniform(np.log(20), np.log(max(21, side / 6)))))
    places = [photographs[int(rng.integers(len(photographs)))] for _ in range(4)]
    first, second, third, fourth = (
        np.asarray(Image.fromarray(p).resize((small, small), reducing_gap=2)) for p in places
    )
    block = np.concatenate([np.concatenate([first, second], 1), np.concatenate([third, fourth], 1)])
    wide = np.concatenate([block, block[:, ::-1]], 1)
    times = -(-side // wide.shape[1])
    return np.tile(np.concatenate([wide, wide[::-1]]), (times, times, 1))[:side, :side]


def herd(photographs: Sequence[Picture], rng: Rng, side: int) -> Picture:
    """Copies of a few things cut from photographs, larger towards the camera, in front of another photograph, like
    boats at a pier, flowers in a bed or bottles on a belt: many, similar and close together."""
    *cut_from, ground = (photographs[int(index)] for index in rng.integers(len(photographs), size=5))
    image = Image.fromarray(ground).resize((side, side), reducing_gap=2)
    things = [_thing(photograph, rng) for photograph in cut_from[: int(rng.integers(1, 5))]]
    size, growth = np.exp(rng.uniform(np.log(6), np.log(side / 8))), rng.uniform(1.0, 1.12)
    gap, stagger, full = rng.uniform(0.5, 1.6), rng.uniform(0, 0.5), rng.uniform(0.5, 1)
    y = rng.uniform(-size, side / 2)
    while y < side:
        shown = [_fitted(thing, size * rng.uniform(0.7, 1), rng) for thing in things for _ in range(2)]
        for x in np.arange(-rng.uniform(0, 1) * size, side, size * gap):
            if rng.random() < full:
                thing = shown[int(rng.integers(len(shown)))]
                left, top = (int(place + rng.normal(0, stagger) * size) for place in (x, y))
                image.paste(thing, (left, top), thing)
        y += size * gap * rng.uniform(0.5, 1)
        size = min(size * growth, side / 4)
    return np.asarray(image)


def _thing(photograph: Picture, rng: Rng) -> Image.Image:
    """A piece of a photograph with an outline: an oval, or what differs most from the colour at the piece's rim."""
    height, width = photograph.shape[:2]
    piece_height, piece_width = (max(2, int(length * rng.uniform(0.3, 1))) for length in (height, width))
    top, left = int(rng.integers(height - piece_height + 1)), int(rng.integers(width - piece_width + 1))
    box = (left, top, left + piece_width, top + piece_height)
    piece = np.asarray(Image.fromarray(photograph).resize((64, 64), box=box, reducing_gap=2), np.float32)
    y, x = np.mgrid[-1:1:64j, -1:1:64j]
    outline = x**2 + y**2 < 1
    if rng.random() < 0.7:
        rim = np.concatenate([piece[0], piece[-1], piece[:, 0], piece[:, -1]]).mean(axis=0)
        difference = np.abs(piece - rim).sum(axis=2)
        outline &= difference > np.quantile(difference, rng.uniform(0.3, 0.7))
    mask = Image.fromarray(np.where(outline, 255, 0).astype(np.uint8)).filter(ImageFilter.GaussianBlur(2))
    thing = Image.fromarray(piece.astype(np.uint8))
    thing.putalpha(mask)
    return thing.resize((64, max(8, int(64 * piece_height / piece_width))))


def _fitted(thing: Image.Image, size: float, rng: Rng) -> Image.Image:
    """Its longer side made `size`, every other time mirrored, a little lighter or darker."""
    factor, light = size / max(thing.size), rng.uniform(0.7, 1.3)
    small = thing.resize((max(2, int(thing.width * factor)), max(2, int(thing.height * factor))), reducing_gap=2)
    *colours, alpha = small.split()
    table = [int(value * light) for value in range(256)]
    lit = Image.merge("RGBA", [*(colour.point(table) for colour in colours), alpha])
    return lit.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else lit


def stripes(rng: Rng, width: int, height: int) -> Picture:
    """Regular patterns: stripes, checks, dots, as of façades, seats and tiles."""
    period = float(rng.uniform(4, 60))
    angle = rng.uniform(0, np.pi)
    y, x = np.mgrid[0:height, 0:width]
    along, across = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
    wave = np.sin(2 * np.pi * along / period)
    if rng.random() < 0.6:
        wave = wave * np.sin(2 * np.pi * across / (period * rng.uniform(0.5, 2)))
    share = (wave > rng.uniform(-0.5, 0.8)) if rng.random() < 0.5 else (wave + 1) / 2
    ends = rng.uniform(0, 255, (2, 3))
    return np.asarray(ends[0] + share[..., None] * (ends[1] - ends[0]), np.uint8)


def street(rng: Rng, width: int, height: int) -> Picture:
    """An empty street: sky, façades with windows, a road with marks; blurred and noisy like a cheap camera."""
    horizon = int(height * rng.uniform(0.25, 0.6))
    light = rng.uniform(0.3, 1.0)
    image = Image.new(
        "RGB", (width, height), tuple(int(light * v) for v in rng.uniform((120, 140, 160), (220, 230, 255)))
    )
    draw = ImageDraw.Draw(image)
    x = 0
    while x < width:
        w, top = int(rng.integers(40, 160)), int(horizon * rng.uniform(0, 0.7))
        wall = rng.uniform(60, 200, 3) * light
        draw.rectangle((x, top, x + w, horizon), fill=tuple(int(v) for v in wall))
        step = int(rng.integers(10, 30))
        for wy in range(top + 4, horizon - step // 2, step):
            for wx in range(x + 4, x + w - step // 2, step):
                draw.rectangle((wx, wy, wx + step // 2, wy + step // 2), fill=tuple(int(v * 0.5) for v in wall))
        x += w
    road = int(light * rng.uniform(50, 130))
    draw.rectangle((0, horizon, width, height), fill=(road, road, road))
    for mark in range(horizon, height, 24):
        draw.line(
            (width // 2, mark, width // 2, mark + 10),
            fill=(230, 230, 230),
            width=max(1, (mark - horizon) // 40),
        )
    picture = np.asarray(image.filter(ImageFilter.GaussianBlur(rng.uniform(0, 1.5))), np.float32)
    return np.clip(picture + rng.normal(0, rng.uniform(0, 15), picture.shape), 0, 255).astype(np.uint8)


def crowds(folder: str, number: int = 32) -> None:
    """Write a data set (`csv`) of drawn crowds: a network trained only on empty drawings counts 0 in them."""
    (Path(folder) / "images").mkdir(parents=True, exist_ok=True)
    with (Path(folder) / "points.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["image", "x", "y"])
        for seed in range(number):
            rng = np.random.default_rng(seed)
            width, height = (int(side) for side in rng.integers((480, 360), (1024, 768)))
            picture, points = crowd(rng, width, height, rows=int(rng.integers(8, 26)))
            Image.fromarray(picture).save(Path(folder) / "images" / f"{seed:02}.png")
            table.writerows([f"{seed:02}.png", f"{x:.1f}", f"{y:.1f}"] for x, y in points)


def crowd(rng: Rng, width: int, height: int, rows: int = 22) -> tuple[Picture, NDArray[np.float64]]:
    """People drawn from the back to the front, smaller in the distance, and the points of their heads."""
    image = Image.new("RGB", (width, height), (150, 160, 170))
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, height * 0.2, width, height), fill=(110, 105, 100))
    points = []
    for row in range(rows):
        depth = (row / max(1, rows - 1)) ** 1.3
        y, head = height * (0.22 + 0.7 * depth), 5 + 13 * depth
        x = float(rng.uniform(0, 2 * head))
        while x < width:
            middle = y + float(rng.normal(0, head * 0.3))
            _person(draw, x, middle, head, rng)
            points.append((x, middle))
            x += head * float(rng.uniform(1.5, 2.6))
    noisy = np.asarray(image.filter(ImageFilter.GaussianBlur(0.7)), np.float32) + rng.normal(0, 6, (height, width, 1))
    return np.clip(noisy, 0, 255).astype(np.uint8), np.array(points)


def _person(draw: ImageDraw.ImageDraw, x: float, y: float, head: float, rng: Rng) -> None:
    """Shoulders in muted clothes, a face or the back of a head; `head` is the head's width."""
    tone = rng.uniform(20, 160)
    cloth = tuple(int(value) for value in np.clip(tone + rng.normal(0, 18, 3), 5, 235))
    skin = tuple(int(value * rng.uniform(0.6, 1.05)) for value in (215, 170, 140))
    hair = tuple(int(value) for value in rng.integers(10, 60) + rng.integers(0, 15, 3))
    draw.ellipse((x - head, y + head * 0.6, x + head, y + head * 4), fill=cloth)
    draw.ellipse((x - head * 0.45, y - head * 0.5, x + head * 0.45, y + head * 0.75), fill=skin)
    start, end = (150, 390) if rng.random() < 0.5 else (0, 360)
    draw.chord((x - head * 0.52, y - head * 0.65, x + head * 0.52, y + head * 0.6), start, end, fill=hair)


KINDS: dict[str, Callable[[Rng, int, int], Picture]] = {
    "flat": flat,
    "gradient": gradient,
    "noise": noise,
    "text": text,
    "foliage": foliage,
    "gravel": gravel,
    "stripes": stripes,
    "rows": rows,
    "street": street,
}
LOOKALIKES = ("foliage", "gravel", "rows")
