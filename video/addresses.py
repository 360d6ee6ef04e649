"""Names of sources: paths of files, and addresses such as rtsp://camera/stream."""

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

FILE_SCHEME = "file://"


def is_address(source: str) -> bool:
    """Whether it begins with a scheme; a name such as cache:file:///a.mp4 is that of a file."""
    return re.match(r"[a-z][a-z0-9+.-]*://", source, re.IGNORECASE) is not None


def without_file_scheme(source: str) -> str:
    """file:///videos/a.mp4 is the file /videos/a.mp4: whatever protects inputs has to know that."""
    if not source.lower().startswith(FILE_SCHEME):
        return source
    path = source[len(FILE_SCHEME) :]
    path = path.removeprefix("localhost") if path.startswith("localhost/") else path
    return path if Path(path).exists() else unquote(path)


def shown(address: str) -> str:
    """A name or address fit to be shown: without user and password."""
    parts = urlsplit(address) if is_address(address) else None
    if parts is None or "@" not in parts.netloc:
        return address
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
