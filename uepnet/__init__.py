"""Crowd counting as a product: count people in images, with zones and a calibrated range.

>>> from uepnet import Counter
>>> Counter().count("crowd.jpg").count  # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Artifact", "AsyncClient", "Client", "Counter", "__version__"]

if TYPE_CHECKING:
    from uepnet.model.artifact import Artifact
    from uepnet.model.count import Counter
    from uepnet.service.client import AsyncClient, Client

_HOME = {
    "Artifact": "uepnet.model.artifact",
    "AsyncClient": "uepnet.service.client",
    "Client": "uepnet.service.client",
    "Counter": "uepnet.model.count",
}


def __getattr__(name: str) -> Any:
    """Public names are imported on first use, so that `import uepnet` costs nothing."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'uepnet' has no attribute {name!r}")
