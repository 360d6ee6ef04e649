"""Small videos for tests, whose frames tell by their grey which they are."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

STEP = 8  # frame n has the grey 16 + 8 n: far enough apart to survive a codec
TICK = Fraction(1, 1000)


def numbered(number: int, width: int = 64, height: int = 48) -> NDArray[np.uint8]:
    return np.full((height, width, 3), 16 + STEP * number, np.uint8)


def number_of(image: NDArray[np.uint8]) -> int:
    return round((float(image.mean()) - 16) / STEP)


def write_video(
    path: Path,
    pictures: Sequence[NDArray[np.uint8]],
    milliseconds: Sequence[int] | None = None,
    codec: str = "libx264",
    rotation: int = 0,
    options: Mapping[str, str] | None = None,
    preset: str = "medium",
    **settings: Any,
) -> Path:
    """Frames at these times (default: 25 a second); the suffix says in which container."""
    times = milliseconds or [40 * number for number in range(len(pictures))]
    with av.open(str(path), "w", options=dict(options or {}), **settings) as container:
        stream: Any = container.add_stream(codec, rate=25)
        stream.height, stream.width = pictures[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        stream.options = {"preset": preset}
        stream.codec_context.time_base = TICK
        if rotation:
            stream.set_display_rotation(rotation)
        for picture, time in zip(pictures, times, strict=True):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = time, TICK
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def noise(count: int, width: int = 64, height: int = 48) -> list[NDArray[np.uint8]]:
    """Frames that do not compress: a cut in the file hits a frame."""
    generator = np.random.default_rng(3)
    return list(generator.integers(0, 256, (count, height, width, 3), np.uint8))
