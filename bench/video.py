"""Does the video client keep a server as busy as the load generator does? One question of `uepnet bench service`."""

import argparse
import asyncio
import io
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uepnet.model.count import Tile

FRAMES_PER_SECOND = 25


def video(args: argparse.Namespace, images: Sequence[bytes]) -> dict[str, Any]:
    """The same frames as JPEGs from the load generator and as a video from the client, as many in flight, in turns."""
    from uepnet.bench.served import served
    from uepnet.bench.service import compared

    frames = _of_one_size(images)
    bodies = [as_jpeg(frame) for frame in frames]
    pairs = []
    with served(args.model) as url, tempfile.TemporaryDirectory() as folder:
        warm = _loaded_per_second(url, bodies, args.clients, args.seconds)
        path = Path(folder) / "frames.mp4"
        write_video(path, frames, max(2 * args.clients, round(warm * args.seconds)))
        for _ in range(args.rounds):
            load = _loaded_per_second(url, bodies, args.clients, args.seconds)
            pairs.append((load, _counted_per_second(path, url, args.clients)))
    return {**compared(pairs, "load", "video"), "in_flight": args.clients}


def _loaded_per_second(url: str, bodies: Sequence[bytes], senders: int, seconds: float) -> float:
    """As `uepnet bench load URL --senders N` measures."""
    from uepnet.bench import load

    parser = argparse.ArgumentParser()
    load.configure(parser)
    words = [url, "--senders", str(senders), "--seconds", str(seconds), "--warm-up", "0"]
    rows = asyncio.run(load.measure(parser.parse_args(words), bodies))
    return float(rows[0]["per_second"])


def _counted_per_second(path: Path, url: str, in_flight: int) -> float:
    """As `uepnet video PATH --server URL --in-flight N` counts, without its start."""
    from uepnet.client.backends import OverServer
    from uepnet.client.client import Client
    from uepnet.video.frames import Choice, VideoFile
    from uepnet.video.pipeline import Job, Summary
    from uepnet.video.recording import Recording

    with Client(url) as client:
        recording, summary = Recording(path.with_suffix(".jsonl"), overwrite=True), Summary()
        job = Job(VideoFile(str(path)), Choice(), OverServer(client, in_flight), recording)
        started = time.perf_counter()
        job.run(summary)
        elapsed_seconds = time.perf_counter() - started
        recording.close()
    return summary.counted / elapsed_seconds


def _of_one_size(images: Sequence[bytes]) -> "list[Tile]":
    import numpy as np
    from PIL import Image, ImageOps

    from uepnet.model.image import load_image

    pictures = [Image.fromarray(load_image(image)) for image in images]
    size = (pictures[0].width // 2 * 2, pictures[0].height // 2 * 2)  # a video's sides are even
    return [np.asarray(ImageOps.fit(picture, size)) for picture in pictures]


def as_jpeg(frame: "Tile") -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(frame).save(file, "JPEG", quality=90)
    return file.getvalue()


def write_video(path: Path, frames: "Sequence[Tile]", number: int) -> None:
    """An MP4 of so many frames, those given in turn."""
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=FRAMES_PER_SECOND)
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt, stream.bit_rate = "yuv420p", 8_000_000
        for index in range(number):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frames[index % len(frames)])))
        container.mux(stream.encode())
