"""Requests that a foreign web page makes through the browser of a user of this machine.

Without keys the service trusts whoever reaches its port. A browser reaches it for every page that its user visits:
a page may send a form to 127.0.0.1, or let its own host name point there (DNS rebinding) and read the answers. So
without keys the Host header must name this service, and a changing request must not come from a foreign origin. With
keys set no such check is needed: a foreign page does not know the key.
"""

from urllib.parse import urlsplit

from starlette.datastructures import Headers

from uepnet.service.errors import Refused
from uepnet.service.settings import Settings, is_loopback

PROBES = frozenset({"/v2/health/live", "/v2/health/ready"})  # asked for by address, and they tell nothing else
CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})


def check_forgery(settings: Settings, method: str, path: str, headers: Headers) -> None:
    """Refuse a request without a key that a foreign page may have made."""
    host = headers.get("host", "")
    name = _name(host)
    if path not in PROBES and not is_loopback(name) and name not in settings.allowed_hosts:
        raise Refused(
            "wrong-host", "Without keys the Host header must be localhost or one of UEPNET_ALLOWED_HOSTS.", close=True
        )
    origin = headers.get("origin")
    if method not in CHANGING or origin is None:
        return
    if origin in settings.cors_origins or "*" in settings.cors_origins:
        return
    if _authority(origin) != host.lower():
        raise Refused(
            "foreign-origin",
            "Web pages of another origin may not call the service: see UEPNET_CORS_ORIGINS.",
            close=True,
        )


def _name(host: str) -> str:
    """The Host header without its port, in lower case; empty where it is no host."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _authority(origin: str) -> str | None:
    """The host and port of an Origin header, in lower case; None where it is no address."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None
