"""Which pictures a model was trained on, known by their content: its artifact keeps a digest of each."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from uepnet.model.artifact import Artifact

DIGEST = 16  # hexadecimal digits of a picture's sha256
KEY = "pictures"  # of the artifact's `training`


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:DIGEST]


def digests(paths: Iterable[Path]) -> list[str]:
    return sorted({digest(path) for path in paths})


def seen_by(artifact: Artifact) -> frozenset[str]:
    """The digests of the pictures that the model was trained on; empty where its artifact does not keep them."""
    return frozenset(artifact.training.get(KEY, ()))
