"""Degradations by cameras, networks and bad light: uint8 [height, width, 3] -> uint8 [height, width, 3].

The size stays the same, so that the points of the picture stay right. All randomness comes from `rng`.
"""

import io
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

Picture = NDArray[np.uint8]
Degradation = Callable[[Picture, np.random.Generator], Picture]

JPEG_QUALITY = (20, 95)
CRF = (18, 36)  # of H.264 and H.265: visually perfect to poor
ENCODERS: dict[str, tuple[str, dict[str, str]]] = {
    "h264": ("libx264", {}),
    "h265": ("libx265", {"x265-params": "log-level=error"}),
}
PRESETS = ("veryfast", "medium")  # of both encoders: at the same crf the first loses more detail
DECODERS = {"h264": "h264", "h265": "hevc"}


def jpeg(image: Picture, rng: np.random.Generator) -> Picture:
    packed = io.BytesIO()
    Image.fromarray(image).save(packed, "JPEG", quality=int(rng.integers(JPEG_QUALITY[0], JPEG_QUALITY[1] + 1)))
    return np.array(Image.open(packed))


def resampled(image: Picture, rng: np.random.Generator) -> Picture:
    """Made smaller by up to 2.5 times and enlarged again: a low resolution stream."""
    height, width = image.shape[:2]
    factor = float(rng.uniform(0.4, 0.85))
    kinds = (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC, Image.Resampling.BOX)
    down, up = (kinds[int(index)] for index in rng.integers(len(kinds), size=2))
    small = Image.fromarray(image).resize((max(1, round(width * factor)), max(1, round(height * factor))), down)
    return np.array(small.resize((width, height), up))


def blurred(image: Picture, rng: np.random.Generator) -> Picture:
    return np.array(Image.fromarray(image).filter(ImageFilter.GaussianBlur(float(rng.uniform(0.4, 1.6)))))


def noisy(image: Picture, rng: np.random.Generator) -> Picture:
    """Gaussian noise, of each channel or of brightness alone."""
    height, width = image.shape[:2]
    channels = 3 if rng.random() < 0.5 else 1
    noise = rng.normal(0, float(rng.uniform(3, 18)), (height, width, channels))
    return _bytes(image + noise)


def dark(image: Picture, rng: np.random.Generator) -> Picture:
    """Low light: little brightness, fewer levels, and the noise of an amplified sensor."""
    light = float(rng.uniform(0.15, 0.6))
    noise = rng.normal(0, float(rng.uniform(1, 8)), image.shape)
    return _bytes(np.floor(image * light) + noise)


def faded(image: Picture, rng: np.random.Generator) -> Picture:
    """Less contrast around the mean, as in haze, or more."""
    contrast = float(np.exp(rng.uniform(-0.9, 0.5)))
    return _bytes((image - image.mean()) * contrast + image.mean() + rng.uniform(-25, 25))


def grey(image: Picture, rng: np.random.Generator) -> Picture:
    return np.array(Image.fromarray(image).convert("L").convert("RGB"))


def interlaced(image: Picture, rng: np.random.Generator) -> Picture:
    """Every other line is from a moment later: moved sideways by a few pixels."""
    moved = image.copy()
    shift = int(rng.integers(1, 5)) * (1 if rng.random() < 0.5 else -1)
    moved[1::2] = np.roll(image[1::2], shift, axis=1)
    return moved


def video(codec: str, crf: int, frames: int = 1, preset: str = "veryfast") -> Degradation:
    """The picture as a frame of H.264 or H.265: a key frame, or the last of `frames` while the camera moves."""

    def degrade(image: Picture, rng: np.random.Generator) -> Picture:
        height, width = image.shape[:2]
        even = width + width % 2  # codecs need even sides
        motion = int(rng.integers(1, 4))
        # Earlier frames show what lies to the right: the last column again, as nothing is known of it.
        wide = np.pad(image, ((0, height % 2), (0, width % 2 + (frames - 1) * motion), (0, 0)), mode="edge")
        shown = [wide[:, left : left + even] for left in range((frames - 1) * motion, -1, -motion)]
        decoded: Picture = _through(codec, crf, preset, shown)[:height, :width]
        return decoded.copy()

    return degrade


def _through(codec: str, crf: int, preset: str, shown: Sequence[Picture]) -> Picture:
    """The last of the pictures after encoding and decoding all of them."""
    import av
    from av.video.codeccontext import VideoCodecContext

    name, options = ENCODERS[codec]
    encoder = cast(VideoCodecContext, VideoCodecContext.create(name, "w"))
    encoder.height, encoder.width = shown[-1].shape[:2]
    encoder.pix_fmt, encoder.time_base, encoder.framerate = "yuv420p", Fraction(1, 25), Fraction(25)
    encoder.options = {"crf": str(crf), "preset": preset, **options}
    packets = []
    for number, picture in enumerate(shown):
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), "rgb24")
        frame.pts = number
        packets += encoder.encode(frame)
    packets += encoder.encode(None)
    decoder = cast(VideoCodecContext, VideoCodecContext.create(DECODERS[codec], "r"))
    decoded = [frame for packet in packets for frame in decoder.decode(packet)]
    decoded += decoder.decode(None)
    return cast(Picture, decoded[-1].to_ndarray(format="rgb24"))


def random_video(codec: str) -> Degradation:
    """At a random quality and preset, half of them as a key frame and half as a later frame."""

    def degrade(image: Picture, rng: np.random.Generator) -> Picture:
        crf = int(rng.integers(CRF[0], CRF[1] + 1))
        preset = PRESETS[int(rng.integers(len(PRESETS)))]
        return video(codec, crf, frames=1 if rng.random() < 0.5 else 4, preset=preset)(image, rng)

    return degrade


# Fast enough for the training loop: a few milliseconds a tile.
CHEAP: dict[str, Degradation] = {
    "jpeg": jpeg,
    "resampled": resampled,
    "blurred": blurred,
    "noisy": noisy,
    "dark": dark,
    "faded": faded,
    "grey": grey,
    "interlaced": interlaced,
}
ALL: dict[str, Degradation] = {"h264": random_video("h264"), "h265": random_video("h265"), **CHEAP}


def degrade_cheaply(image: Picture, rng: np.random.Generator) -> Picture:
    """One of the cheap degradations."""
    return list(CHEAP.values())[int(rng.integers(len(CHEAP)))](image, rng)


def _bytes(values: NDArray[np.floating]) -> Picture:
    rounded: Picture = np.clip(np.rint(values), 0, 255).astype(np.uint8)
    return rounded
