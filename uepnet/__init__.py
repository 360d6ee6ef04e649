"""Crowd counting: the number of people in images and video, with zones and a calibrated range.

>>> from uepnet import Counter
>>> Counter().count("crowd.jpg").count  # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"
__all__ = [
    "Artifact",
    "AsyncClient",
    "Client",
    "Count",
    "Counter",
    "UepnetError",
    "Zone",
    "__version__",
    "load_zones",
]

if TYPE_CHECKING:
    from uepnet.client.client import AsyncClient, Client
    from uepnet.model.artifact import Artifact
    from uepnet.model.count import Count
    from uepnet.model.counter import Counter
    from uepnet.model.errors import UepnetError
    from uepnet.model.zones import Zone, load_zones

_HOME = {
    "Artifact": "uepnet.model.artifact",
    "AsyncClient": "uepnet.client.client",
    "Client": "uepnet.client.client",
    "Count": "uepnet.model.count",
    "Counter": "uepnet.model.counter",
    "UepnetError": "uepnet.model.errors",
    "Zone": "uepnet.model.zones",
    "load_zones": "uepnet.model.zones",
}


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first used, so that `import uepnet` takes no time."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'uepnet' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, and what every module has."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
