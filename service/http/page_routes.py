"""The web page and /docs: static files, read once, under a policy that allows nothing from outside."""

import mimetypes
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import Response

from uepnet.service.errors import Refused

FOLDER = Path(__file__).parents[1] / "page"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob: data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache", "Permissions-Policy": "interest-cohort=()"}


MISSING = "missing.html"


def wants_page(request: Request) -> bool:
    """Whether a person with a browser asks, and not for the API."""
    is_api = request.url.path.startswith(("/v1", "/v2", "/metrics", "/page/", "/openapi.json"))
    return not is_api and "text/html" in request.headers.get("accept", "")


def missing_page() -> Response:
    return Response((FOLDER / MISSING).read_bytes(), status_code=404, media_type="text/html", headers=HEADERS)


def page_router() -> APIRouter:
    router = APIRouter(include_in_schema=False)
    files = {path.name: path.read_bytes() for path in sorted(FOLDER.iterdir()) if path.is_file()}

    def respond(name: str) -> Response:
        if name not in files:
            raise Refused("not-found", "The page has no such file.")
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        return Response(files[name], media_type=kind, headers=HEADERS)

    @router.get("/")
    async def index() -> Response:
        return respond("index.html")

    @router.get("/alerts")
    async def alerts() -> Response:
        return respond("alerts.html")

    @router.get("/photographs")
    async def photographs() -> Response:
        return respond("photographs.html")

    @router.get("/cameras/{name}")
    async def camera(name: str) -> Response:
        return respond("camera.html")

    @router.get("/docs")
    async def docs() -> Response:
        return respond("docs.html")

    @router.get("/page/{name}")
    async def file(name: str) -> Response:
        return respond(name)

    return router
