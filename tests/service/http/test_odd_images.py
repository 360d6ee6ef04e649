"""Odd files get 200 or 4xx, never 5xx, a hang or a crash.

Hundreds are made here, by damaging good files of every format with a fixed seed. A thousand more were collected by
Pillow's developers and are in its source package: `make test-system` fetches it.
"""

import io
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from PIL import Image, features
from support.paths import ROOT
from support.servers import Running

Serve = Callable[..., Running]
COLLECTED = ROOT / ".odd-images"
OTHERS = ("PPM", "ICO", "TGA", "PCX", "JPEG2000")  # formats that Pillow reads and we do not


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.copy().save(file, kind, **options)  # Pillow leaves encoder settings on what it saves
    return file.getvalue()


def good() -> Iterator[tuple[str, bytes]]:
    """Every format we read, in every mode it has, and some that we do not read."""
    photo = Image.fromarray(np.random.default_rng(3).integers(0, 255, (90, 130, 3)).astype(np.uint8))
    modes = {mode: photo.convert(mode) for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "HSV")}
    modes |= {"I;16": Image.fromarray(np.arange(4096, dtype=np.uint16).reshape(64, 64) * 16)}
    modes |= {"I": photo.convert("I"), "F": photo.convert("F")}
    kinds = ["PNG", "JPEG", "GIF", "TIFF", "BMP", "WEBP", *(["AVIF"] if features.check("avif") else [])]
    for kind in (*kinds, *OTHERS):
        for mode, image in modes.items():
            try:
                yield f"{kind} {mode}", saved(image, kind)
            except (OSError, KeyError, ValueError):
                continue  # this format has no such mode
    for compression in ("tiff_lzw", "tiff_deflate", "jpeg", "packbits"):
        yield f"TIFF {compression}", saved(photo, "TIFF", compression=compression)
    yield "TIFF group4", saved(modes["1"], "TIFF", compression="group4")
    yield "TIFF pages", saved(photo, "TIFF", save_all=True, append_images=[modes["L"], modes["CMYK"]])
    yield "JPEG progressive", saved(photo, "JPEG", progressive=True)
    frames = [photo.rotate(angle) for angle in (10, 20, 30)]
    for kind in ("GIF", "PNG", "WEBP"):
        yield f"{kind} animation", saved(photo, kind, save_all=True, append_images=frames)
    for size in ((1, 1), (1, 3000), (3000, 1), (7, 9)):
        yield f"PNG {size}", saved(Image.new("RGB", size, "grey"), "PNG")


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width: int, height: int, depth: int, colour: int, pixels: bytes) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")


def crafted() -> Iterator[tuple[str, bytes]]:
    """Headers that lie, bombs, and files of quite another kind."""
    for width, height in ((0, 0), (0, 10), (2**31 - 1, 2**31 - 1), (50_000, 50_000), (2**31 - 1, 1), (100, 100)):
        yield f"PNG of {width}x{height}", png(width, height, 8, 2, b"\0" * 1000)
    for depth, colour in ((16, 2), (1, 2), (3, 0), (8, 7), (255, 255)):
        yield f"PNG depth {depth} colour {colour}", png(10, 10, depth, colour, b"\0" * 2000)
    yield "PNG bomb", png(49_000, 1_000, 8, 0, b"\0" * 49_001_000)
    yield "PNG text bomb", png(10, 10, 8, 0, b"\0" * 110)[:-12] + chunk(b"zTXt", b"k\0\0" + zlib.compress(b"a" * 2**24))
    yield (
        "GIF of 65535x65535",
        b"GIF89a" + struct.pack("<HHBBB", 65535, 65535, 0, 0, 0) + b",\0\0\0\0\xff\xff\xff\xff\0\x02\0;",
    )
    yield (
        "BMP negative",
        b"BM" + struct.pack("<IHHIIiiHHIIiiII", 100, 0, 0, 54, 40, -5, -(2**31), 1, 24, 0, 0, 0, 0, 0, 0),
    )
    yield "TIFF whose directory is itself", b"II*\0\x08\0\0\0\0\0" + struct.pack("<I", 8)
    yield "TIFF huge count", b"II*\0\x08\0\0\0\x01\0" + struct.pack("<HHII", 0x0111, 4, 2**32 - 1, 8) + b"\0" * 4
    yield (
        "JPEG of 65535x65535",
        b"\xff\xd8\xff\xc0\0\x11\x08\xff\xff\xff\xff\x03\x01\x22\0\x02\x11\x01\x03\x11\x01\xff\xd9",
    )
    yield "SVG", b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>'
    yield "EPS", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 100 100\n(/etc/passwd) (r) file\n"
    for name, start in (("ZIP", b"PK\x03\x04"), ("PDF", b"%PDF-1.7"), ("ELF", b"\x7fELF"), ("zeros", b"\0")):
        yield name, start + b"\0" * 500
    for magic in (
        b"\xff\xd8\xff",
        b"\x89PNG\r\n\x1a\n",
        b"GIF89a",
        b"II*\0",
        b"MM\0*",
        b"BM",
        b"RIFF\x10\0\0\0WEBPVP8 ",
    ):
        yield f"only {magic!r}", magic
        yield f"{magic!r} and noise", magic + random.Random(0).randbytes(300)


def damaged(files: list[tuple[str, bytes]], number: int) -> Iterator[tuple[str, bytes]]:
    chance = random.Random(20)
    for _ in range(number):
        name, content = chance.choice(files)
        spoilt = bytearray(content)
        way = chance.choice(["cut", "flip", "zero", "insert", "double", "head"])
        at = chance.randrange(len(spoilt))
        if way == "cut":
            del spoilt[at:]
        elif way == "flip":
            for _ in range(chance.randint(1, 30)):
                spoilt[chance.randrange(len(spoilt))] ^= 1 << chance.randrange(8)
        elif way == "zero":
            spoilt[at : at + 64] = bytes(len(spoilt[at : at + 64]))
        elif way == "insert":
            spoilt[at:at] = chance.randbytes(chance.randint(1, 40))
        elif way == "double":
            spoilt += spoilt[at:]
        else:  # sizes, depths and offsets stand in a file's first bytes
            for _ in range(4):
                spoilt[chance.randrange(min(64, len(spoilt)))] = chance.choice([0, 1, 127, 128, 255])
        yield f"{name}, {way}", bytes(spoilt)


def check(server: Running, files: list[tuple[str, bytes]]) -> dict[int, int]:
    def ask(file: tuple[str, bytes]) -> tuple[str, int]:
        return file[0], server.count(file[1] or b"\0", "image/png", timeout=60).status_code

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(ask, files))
    wrong = [(name, status) for name, status in results if status != 200 and not 400 <= status < 500]
    assert not wrong
    assert server.http.get("/v2/health/live").status_code == 200
    statuses = [status for _, status in results]
    return {status: statuses.count(status) for status in set(statuses)}


def test_good_files_of_every_format_are_counted(serve: Serve) -> None:
    server = serve()
    ours = [
        (name, content) for name, content in good() if name.split()[0] not in ("PPM", "ICO", "TGA", "PCX", "JPEG2000")
    ]
    refused = [name for name, content in ours if server.count(content).status_code != 200]
    # Float samples, LAB and 32 bits with values of 8 have no defined white.
    assert set(refused) <= {"TIFF F", "TIFF I", "TIFF LAB"}
    assert len(ours) > 40


def test_files_of_other_formats_are_refused(serve: Serve) -> None:
    server = serve()
    others = [
        (name, content) for name, content in good() if name.split()[0] in ("PPM", "ICO", "TGA", "PCX", "JPEG2000")
    ]
    assert len(others) > 10
    assert set(check(server, others)) == {422}


def test_crafted_files_do_no_harm(serve: Serve) -> None:
    assert 413 in check(serve(), list(crafted()))


def test_hundreds_of_damaged_files_do_no_harm(serve: Serve) -> None:
    statuses = check(serve(), list(damaged(list(good()), 600)))
    assert statuses[422] > 200
    assert statuses[200] > 50


@pytest.mark.system
def test_hundreds_of_files_that_others_collected_do_no_harm(serve: Serve) -> None:
    files = [(str(path), path.read_bytes()) for path in sorted(COLLECTED.rglob("*")) if path.is_file()]
    assert len(files) > 500
    assert check(serve(), files)[200] > 200
