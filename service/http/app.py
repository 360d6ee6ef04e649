"""create_app: the routes, the layers around them, and the life cycle.

A request passes, from the outside in: `RequestMiddleware` (request id, log line, metrics, 500), CORS where it is
configured, `KeyGuard` (401), then the route. A route reads the body (`context.body()`: refused here where the service
is full), runs its work in a thread (`context.run()`: takes a place), and answers. Expected errors become problems.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from uepnet import __version__
from uepnet.model.errors import UepnetError
from uepnet.service.core.loaded_model import InferenceRuntime
from uepnet.service.http import (
    alert_routes,
    camera_routes,
    count_routes,
    history_routes,
    inference_protocol,
    status_routes,
)
from uepnet.service.http.auth import KeyGuard
from uepnet.service.http.context import AppState, known_parameters
from uepnet.service.http.middleware import RequestMiddleware
from uepnet.service.http.page_routes import page_router
from uepnet.service.http.problems import handle
from uepnet.service.settings import Settings

DESCRIPTION = "Count people in crowds: send an image, get a count with a calibrated range, zones and a count map."


def create_app(settings: Settings, runtime: InferenceRuntime | None = None) -> FastAPI:
    """The service; `app.state.parts` is its AppState.

    Without a runtime it loads the configured model in the background, and is not ready until that is done.
    """
    state = AppState(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        loading = asyncio.create_task(state.start(runtime))
        if runtime is not None:  # behind Ray: a replica that has started gets requests at once
            await loading
        async with state.room.running():
            yield
            loading.cancel()
            with suppress(asyncio.CancelledError):
                await loading
            await state.stop()

    app = FastAPI(
        title="uepnet",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.parts = state
    for router in (
        count_routes.router,
        camera_routes.router,
        history_routes.router,
        alert_routes.router,
        status_routes.router,
        inference_protocol.router,
        page_router(),
    ):
        app.include_router(router, dependencies=[Depends(known_parameters)])
    for expected in (UepnetError, RequestValidationError, HTTPException):
        app.add_exception_handler(expected, handle)
    # The last one added is the outermost.
    app.add_middleware(KeyGuard, state=state)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=["Authorization", "X-API-Key", "Content-Type", "X-Request-Id"],
            expose_headers=["X-Count", "X-Range-Low", "X-Range-High", "X-Request-Id", "Retry-After"],
        )
    app.add_middleware(RequestMiddleware, state=state)
    return app
