"""Write deploy/hashes.txt: every package of constraints.txt with the hashes of its wheels. Run by `make lock`.

The wheels are those for Python 3.11 to 3.13 on Linux, x86-64 and ARM. Builds whose source is another registry (a CPU
build of torch, say) are not among them: the hashes are those of the public registry.
"""

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

INDEX = "https://pypi.org/simple"
PYTHONS = (11, 12, 13)
MACHINES = ("x86_64", "aarch64")
HEAD = """\
# Made by `make lock` from constraints.txt and the public registry. Used by the Dockerfile and by the advisory scan.
"""


class IndexPage(HTMLParser):
    """The files of a project: its page in the simple index (PEP 503)."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.hashes: dict[str, str] = {}  # file name: sha256
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        link = urlsplit(dict(attrs).get("href") or "")
        if tag == "a" and link.fragment.startswith("sha256="):
            self.hashes[unquote(link.path.rpartition("/")[2])] = link.fragment.removeprefix("sha256=")


def fits(tag: Tag) -> bool:
    """Whether a wheel with this tag can be installed on one of the platforms."""
    machine = tag.platform == "any" or (
        tag.platform.startswith(("manylinux", "linux")) and tag.platform.endswith(MACHINES)
    )
    python = re.fullmatch(r"(?:py|cp)3(\d*)", tag.interpreter)
    if not machine or not python:
        return False
    minor = int(python[1] or 0)
    if tag.abi in ("none", "abi3"):
        return minor <= PYTHONS[-1] and (tag.abi == "abi3" or tag.interpreter.startswith("py") or minor in PYTHONS)
    return minor in PYTHONS and tag.abi == tag.interpreter


def wheels(page: IndexPage, version: Version) -> list[str]:
    """The hashes of a version's wheels, sorted."""
    found = []
    for name, sha256 in page.hashes.items():
        try:
            _, its_version, _, tags = parse_wheel_filename(name)
        except (InvalidWheelFilename, InvalidVersion):
            continue
        if its_version == version and any(fits(tag) for tag in tags):
            found.append(sha256)
    return sorted(found)


def entry(pin: str, client: httpx.Client) -> str:
    name, _, version = pin.partition("==")
    response = client.get(f"{INDEX}/{canonicalize_name(name)}/", follow_redirects=True)
    found = wheels(IndexPage(response.raise_for_status().text), Version(version))
    if not found:
        raise SystemExit(f"{pin} has no wheel in {INDEX}: choose a version that has one.")
    return " \\\n".join([pin, *(f"    --hash=sha256:{sha256}" for sha256 in found)])


def main() -> None:
    pins = Path("constraints.txt").read_text().split()
    with httpx.Client(timeout=60) as client, ThreadPoolExecutor(4) as pool:
        entries = list(pool.map(lambda pin: entry(pin, client), pins))
    Path("deploy/hashes.txt").write_text(HEAD + "\n".join(entries) + "\n")
    print(f"deploy/hashes.txt: {len(pins)} packages", file=sys.stderr)


if __name__ == "__main__":
    main()
