"""create_app: the routes, the layers around them, and the life cycle.

A request passes, from outside in: `Access` (id, log, metrics, 500), CORS where it is on, `KeyGuard` (401), the
route, which asks the house for admission and runs its work in a thread. Expected errors become problems.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from uepnet import __version__
from uepnet.model.errors import UepnetError
from uepnet.service import count_routes, protocol, status_routes
from uepnet.service.access import Access
from uepnet.service.auth import KeyGuard
from uepnet.service.engine import ServedRuntime
from uepnet.service.pages import page_router
from uepnet.service.problems import handle
from uepnet.service.serving import Serving
from uepnet.service.settings import Settings

DESCRIPTION = "Count people in crowds: send an image, get a count with a calibrated range, zones and a count map."


def create_app(settings: Settings, runtime: ServedRuntime | None = None) -> FastAPI:
    """The service. Without a runtime it loads the configured model in the background and is not ready until then."""
    serving = Serving(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        loading = asyncio.create_task(serving.start(runtime))
        yield
        loading.cancel()
        with suppress(asyncio.CancelledError):
            await loading
        await serving.stop()

    app = FastAPI(
        title="uepnet",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.serving = serving
    for router in (count_routes.router, status_routes.router, protocol.router, page_router()):
        app.include_router(router)
    for expected in (UepnetError, RequestValidationError, HTTPException):
        app.add_exception_handler(expected, handle)
    # The last one added is the outermost.
    app.add_middleware(KeyGuard, api_keys=settings.api_keys, admin_key=settings.admin_key, metrics=serving.metrics)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "X-API-Key", "Content-Type", "X-Request-Id"],
            expose_headers=["X-Count", "X-Range-Low", "X-Range-High", "X-Request-Id", "Retry-After"],
        )
    app.add_middleware(Access, metrics=serving.metrics, house=serving.house)
    return app
