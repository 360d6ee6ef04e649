"""Print the requirements of some extras, without uepnet itself: `requirements.py serve cpu > requirements.txt`.

For the Dockerfile: dependencies installed apart from the code form a layer that a new release does not change.
"""

import sys
import tomllib
from pathlib import Path


def requirements(pyproject: Path, extras: list[str]) -> list[str]:
    project = tomllib.loads(pyproject.read_text())["project"]
    chosen: list[str] = list(project["dependencies"])
    for extra in extras:
        chosen += project["optional-dependencies"][extra]
    return chosen


if __name__ == "__main__":
    print("\n".join(requirements(Path("pyproject.toml"), sys.argv[1:])))
