"""Degraded copies of training images, made once and kept on disk: video codecs are too slow for the training loop.

A folder of copies holds `copies.json` and a folder for each data set, `DATASET-ROOT`, with the pictures in it. What a
copy looks like depends on the seed, the data set and the image's name alone.
"""

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from uepnet.model.errors import DataError, InputError
from uepnet.training.data.dataset import Sample
from uepnet.training.data.degrade import ALL, PRESETS

INDEX = "copies.json"
QUALITY = 95  # of the file that keeps a copy: nothing more is lost to the eye


def make_copies(
    samples: Sequence[Sample],
    dataset: str,
    root: Path,
    out: Path,
    kinds: Sequence[str],
    seed: int,
    watch: Callable[[], None] = lambda: None,
) -> int:
    """A copy of every sample by every kind of degradation; one that is there stays. Returns how many were made."""
    unknown = [kind for kind in kinds if kind not in ALL]
    if unknown:
        raise InputError(f"There is no degradation called {unknown[0]!r}: choose {', '.join(ALL)}.")
    settings = {"seed": seed, "kinds": list(kinds), "presets": list(PRESETS)}
    index: dict[str, Any] = _read(out) if (out / INDEX).exists() else {"settings": settings, "images": {}}
    if index["settings"] != settings:
        raise DataError(f"{out} holds copies made with other settings ({index['settings']}): choose another folder.")
    folder = out / _key(dataset, root)
    folder.mkdir(parents=True, exist_ok=True)
    made = 0
    images = index["images"].setdefault(folder.name, {})
    for sample in samples:
        files = {kind: f"{sample.name.replace('/', '_')}.{kind}.jpg" for kind in kinds}
        for number, (kind, name) in enumerate(files.items()):
            if not (folder / name).exists():
                rng = np.random.default_rng((seed, zlib.crc32(f"{folder.name}/{sample.name}".encode()), number))
                _write(ALL[kind](sample.load_image(), rng), folder / name)
                made += 1
        images[sample.name] = list(files.values())
        watch()
    (out / INDEX).write_text(json.dumps(index, indent=1) + "\n")
    return made


def _write(picture: np.ndarray, path: Path) -> None:
    partial = path.with_suffix(".partial")
    Image.fromarray(picture).save(partial, "JPEG", quality=QUALITY, subsampling=0)
    partial.replace(path)


def with_copies(samples: Sequence[Sample], dataset: str, root: Path, folder: Path) -> list[Sample]:
    """The samples with the paths of their degraded copies."""
    key = _key(dataset, root)
    images = _read(folder)["images"].get(key, {})
    missing = next((sample.name for sample in samples if sample.name not in images), None)
    if missing is not None:
        raise DataError(
            f"{folder} holds no degraded copies of {missing} of {dataset}: make them with `uepnet data degrade`."
        )
    return [replace(sample, copies=tuple(folder / key / name for name in images[sample.name])) for sample in samples]


def _key(dataset: str, root: Path) -> str:
    return f"{dataset}-{root.resolve().name}"


def _read(folder: Path) -> dict[str, Any]:
    """`settings`, and `images`: folder -> image -> the files of its copies."""
    try:
        index: dict[str, Any] = json.loads((folder / INDEX).read_text())
    except FileNotFoundError:
        raise DataError(f"{folder} holds no degraded copies: it has no {INDEX}.") from None
    except json.JSONDecodeError as error:
        raise DataError(f"{folder / INDEX} is not complete JSON ({error.msg}).") from None
    return index
