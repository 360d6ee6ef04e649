"""The pictures of a command line, each counted in this process: what `prelabel` and `suggest` work on."""

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from uepnet.model.count import Count
    from uepnet.model.outputs import Output


@dataclass(frozen=True)
class CountedPicture:
    name: str  # the path below the folder that was named, with forward slashes
    path: Path
    image: "NDArray[np.uint8]"
    count: "Count"


def check_pictures(args: argparse.Namespace, outputs: "Sequence[Output]") -> None:
    """Refuse inputs that do not exist and outputs that must not be written; pictures and model are inputs."""
    import uepnet.model
    from uepnet.commands.shared.inputs import STANDARD_INPUT, check_inputs, inputs
    from uepnet.model.errors import InputError
    from uepnet.model.outputs import check_outputs

    if STANDARD_INPUT in args.paths:
        raise InputError("Standard input has no file name, which labels need: give files or folders.")
    check_inputs(args.paths)
    names = [image.relative.as_posix() for image in inputs(args.paths)]
    if not names:
        raise InputError(f"There are no images in {', '.join(args.paths)}.")
    odd = next((name for name in names if not name.isprintable()), None)
    if odd is not None:
        raise InputError(f"The name {odd} has characters that label files and pages cannot hold: rename the picture.")
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise InputError(f"Two pictures are called {twice[0]}: give one folder at a time, or rename one of them.")
    model = args.model or Path(uepnet.model.__path__[0]) / "bundled"
    check_outputs(outputs, [model, *(image.path for image in inputs(args.paths))], args.overwrite)


class CountedPictures(Iterator[CountedPicture]):
    """Counts one picture at a time, under a progress bar; one that cannot be counted is reported and left out."""

    def __init__(self, args: argparse.Namespace, quiet: bool) -> None:
        from uepnet.commands.shared.models import open_model

        self.artifact, self._run_tiles, _ = open_model(
            args.model, args.device, args.precision, args.threads, args.engine
        )
        self.model = f"{self.artifact.name} {self.artifact.version}"
        self.failed = self.doubtful = self.skipped = 0
        self.skip: Callable[[Path], bool] = lambda _: False
        self._counts = self._all(args.paths, quiet)

    def __next__(self) -> CountedPicture:
        return next(self._counts)

    def again(self, path: Path) -> "tuple[NDArray[np.uint8], Count]":
        """The pixels and the count of a picture that was counted before and not kept."""
        from uepnet.model.count import count_image
        from uepnet.model.image import load_image

        image = load_image(path)
        return image, count_image(image, self.artifact, self._run_tiles)

    def _all(self, paths: Sequence[str], quiet: bool) -> Iterator[CountedPicture]:
        from rich.console import Console

        from uepnet.commands.shared.inputs import inputs
        from uepnet.commands.shared.progress import Progress
        from uepnet.commands.shared.terminal import complain
        from uepnet.model.count import count_image
        from uepnet.model.errors import InferenceError, InputError
        from uepnet.model.image import load_image

        with Progress(Console(stderr=True), quiet) as progress:
            progress.start(sum(1 for _ in inputs(paths)))
            for item in inputs(paths):
                progress.advance()
                if self.skip(Path(item.path)):
                    self.skipped += 1
                    continue
                try:
                    image = load_image(item.read())
                    count = count_image(image, self.artifact, self._run_tiles)
                except (InputError, InferenceError) as error:
                    self.failed += 1
                    complain(f"{item.path}: {error}")
                else:
                    self.doubtful += bool(count.warnings)
                    yield CountedPicture(item.relative.as_posix(), Path(item.path), image, count)
