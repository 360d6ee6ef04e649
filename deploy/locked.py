"""Print the requirements for downloaded wheels, with their recorded hashes: `locked.py hashes.txt wheels > locked.txt`.

pip then installs nothing that differs by a bit from what was recorded (--require-hashes). For the Dockerfile: the
wheels are those that pip has chosen for an image, so that one list of hashes serves all of them. It needs no package.
"""

import re
import sys
from pathlib import Path


def read_hashes(text: str) -> dict[tuple[str, str], str]:
    """(normalised name, version) -> the whole entry of hashes.txt."""
    entries = re.findall(r"^([\w.-]+)==(\S+)((?: \\\n +--hash=\S+)+)", text, re.MULTILINE)
    return {(normalised(name), version): f"{name}=={version}{hashes}" for name, version, hashes in entries}


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(hashes: dict[tuple[str, str], str], folder: Path) -> list[str]:
    entries = []
    for path in sorted(folder.iterdir()):
        name, version = path.name.split("-")[:2]
        entry = hashes.get((normalised(name), version))
        if entry is None:
            raise SystemExit(f"{path.name} is not in hashes.txt: add it to constraints.txt and run `make lock`.")
        entries.append(entry)
    return entries


if __name__ == "__main__":
    print("\n".join(locked(read_hashes(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))))
