"""The public class that counts images in this process."""

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, overload

from uepnet.model.artifact import Artifact, Decoding
from uepnet.model.count import count_image
from uepnet.model.counted_image import (
    CountedImage,
    FrameCount,
    check_several,
    check_single,
    counted_image,
    place_of,
)
from uepnet.model.errors import InputError, UepnetError
from uepnet.model.image import ImageSource, image_reader
from uepnet.model.zones import Zone, zone_list


class Counter:
    """Count images in this process: `Counter().count("crowd.jpg").count`.

    `device` is auto, cpu, cuda[:N], tensorrt[:N] or intel-gpu[:N]; `precision` auto, fp32, fp16, bf16 or int8;
    `engine` auto, onnxruntime or openvino; `threads` 0 for all cores. docs/runtime.md says what auto chooses.
    `decoding` is auto (the model's own) or argmax (the paper's, without a range); `count` and the others take it, too.
    """

    def __init__(
        self,
        model: Path | str | None = None,
        device: str = "auto",
        precision: str = "auto",
        threads: int = 0,
        engine: str = "auto",
        decoding: Literal["auto", "argmax"] = "auto",
    ) -> None:
        # Imported here: `count_image` alone needs no inference engine.
        from uepnet.model.runtime import Runtime

        if not isinstance(model, str | os.PathLike | None):
            raise InputError(f"model is the folder of a model, not {type(model).__name__}.")
        for name, value in (("device", device), ("precision", precision), ("engine", engine), ("decoding", decoding)):
            if not isinstance(value, str):
                raise InputError(f"{name} is a word such as auto, not {value!r}.")
        if not isinstance(threads, int) or threads < 0:
            raise InputError(f"threads is a number of threads, or 0 for one per core, not {threads!r}.")
        directory = None if model is None else Path(model)
        self.runtime = Runtime(directory, device=device, precision=precision, threads=threads, engine=engine)
        self.artifact: Artifact = self.runtime.artifact.read_by(None if decoding == "auto" else decoding)

    def count(
        self,
        source: ImageSource,
        zones: Sequence[Zone] = (),
        *,
        bgr: bool = False,
        decoding: Decoding | None = None,
    ) -> CountedImage:
        """Count one image: a path, bytes, an open file, a PIL image, or an array uint8 [height, width, 3].

        Arrays are RGB. OpenCV's are BGR: pass `bgr=True`, or the count is wrong without any sign of it.
        """
        check_single(source)
        zones = zone_list(zones)
        place = place_of(source)
        read_image, path = image_reader(source, bgr)
        count = count_image(read_image(), self._read_by(decoding), self.runtime.run_tiles, zones)
        model = {"name": self.artifact.name, "version": self.artifact.version}
        return counted_image(count, model, zones, read_image, path or place)

    @overload
    def count_many(
        self,
        sources: Iterable[ImageSource],
        zones: Sequence[Zone] = (),
        *,
        bgr: bool = False,
        decoding: Decoding | None = None,
    ) -> Iterator[CountedImage]: ...

    @overload
    def count_many(
        self,
        sources: Iterable[ImageSource],
        zones: Sequence[Zone] = (),
        *,
        bgr: bool = False,
        decoding: Decoding | None = None,
        errors: Literal["return"],
    ) -> Iterator[CountedImage | UepnetError]: ...

    def count_many(
        self,
        sources: Iterable[ImageSource],
        zones: Sequence[Zone] = (),
        *,
        bgr: bool = False,
        decoding: Decoding | None = None,
        errors: Literal["raise", "return"] = "raise",
    ) -> Iterator[CountedImage | UepnetError]:
        """Count images one after the other, in order, as the results are asked for.

        With `errors="return"` an image that cannot be counted gives its error in its place, and the others go on.
        """
        check_several(sources, "count_many")
        if errors not in ("raise", "return"):
            raise InputError(f'errors is "raise" or "return", not {errors!r}.')
        zones = zone_list(zones)  # once: an iterator of zones would be empty for the second image
        self._read_by(decoding)  # a decoding that the model lacks is an error of the call, not of each image
        return self._each(
            iter(sources), partial(self.count, zones=zones, bgr=bgr, decoding=decoding), errors == "return"
        )

    def video(
        self, source: str | Path | int, zones: Sequence[Zone] = (), *, decoding: Decoding | None = None, **choice: Any
    ) -> Iterator[FrameCount]:
        """Count a video file, a folder of frames, a camera or a stream; yields a count with its time per frame.

        `every`, `fps`, `start` and `end` (seconds) choose the frames; `rate` is the frames per second of a folder. A
        live source that cannot be opened is tried again for ever, unless `retry=False`. Needs the extra `video`.
        """
        # The video package builds on this one, so it is not imported here but found by its name.
        counts = import_module("uepnet.video.counts")
        found: Iterator[FrameCount] = counts.count_frames(
            partial(self.count, decoding=decoding), source, zone_list(zones), **choice
        )
        return found

    def _read_by(self, decoding: Decoding | None) -> Artifact:
        return self.artifact if decoding is None else self.runtime.artifact.read_by(decoding)

    @staticmethod
    def _each(sources: Iterator[ImageSource], count: Any, keep_errors: bool) -> "Iterator[CountedImage | UepnetError]":
        for source in sources:
            try:
                yield count(source)
            except UepnetError as error:
                if not keep_errors:
                    raise
                yield error
