"""The service as replicas over many machines, on Ray Serve. Each replica is the whole app of `uepnet.service.http.app`.

    serve run uepnet.deploy.ray_serve:build insecure=1               one replica, on this machine, without keys
    serve run uepnet.deploy.ray_serve:build replicas=2 threads=1 model=models/station
    serve deploy deploy/ray_cluster.yml                              a cluster: GPUs, autoscaling, roll-outs

Replicas need UEPNET_API_KEYS in their environment, or insecure=1: Ray decides on which addresses they are reachable.
What a process keeps for itself, and what happens to it behind several of them:

| what | here |
|---|---|
| cameras, zones | frames may reach any replica: /v1/cameras asks all, the newest count wins (clocks in step) |
| /v1/events | a stream asks the other replicas once a second, and passes on what is new |
| /metrics | of all replicas, each with its label `replica`; a camera's once, whichever replica saw it last |
| admission | per replica (429), before it Ray's own queue (503); the cluster's limit is the sum |
| a reload | refused (409), since it would reach one replica: a new model is a new deployment, which Ray rolls out |
"""

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from typing import Any

import ray
from fastapi import APIRouter, FastAPI
from prometheus_client import CONTENT_TYPE_LATEST
from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from starlette.responses import Response, StreamingResponse

from uepnet.deploy.fleet import ReplicaReport, metrics_text, newer
from uepnet.model.errors import InputError
from uepnet.service.core.loaded_model import load_runtime
from uepnet.service.errors import Refused
from uepnet.service.http import camera_routes
from uepnet.service.http.app import create_app
from uepnet.service.http.context import AppState, Context
from uepnet.service.logs import configure_logs
from uepnet.service.memory import return_large_blocks
from uepnet.service.settings import Settings, load_settings

NAME = "uepnet"
FRESH_SECONDS = 1.0  # how old the other replicas' news may be


class Replica:
    def __init__(self, flags: Mapping[str, str]) -> None:
        """Returns once the model is loaded and warm: only then does Ray send requests."""
        self._settings = replica_settings(flags)
        configure_logs(self._settings)
        return_large_blocks()
        self._runtime = load_runtime(self._settings, self._settings.model)
        context = serve.get_replica_context()
        self._id: str = context.replica_id.unique_id
        self._application: str = context.app_name
        self._reports: list[ReplicaReport] = []
        self._asked = 0.0
        self._asking = asyncio.Lock()

    def __serve_build_asgi_app__(self) -> FastAPI:  # Ray's name for it
        app = create_app(self._settings, self._runtime)
        self._state: AppState = app.state.parts
        router = APIRouter()
        for endpoint, path in (
            (self._metrics, "/metrics"),
            (self._cameras, "/v1/cameras"),
            (self._events, "/v1/events"),
        ):
            router.add_api_route(path, endpoint, methods=["GET"], include_in_schema=False)
        router.add_api_route("/v1/model/reload", self._reload, methods=["POST"], include_in_schema=False)
        app.router.routes[:0] = router.routes  # before the app's own; keys and logs stay around them
        return app

    def check_health(self) -> None:
        """Asked by Ray every few seconds; a replica whose device has died is replaced."""
        if not self._state.model.is_alive:
            raise RuntimeError("the device thread has died or stalled")

    async def report(self) -> ReplicaReport:
        return ReplicaReport(self._id, list(self._state.metrics.registry.collect()), self._state.cameras.latest())

    async def _hear(self) -> None:
        """Ask all replicas, at most once a second, and take over what others know better about cameras."""
        async with self._asking:
            if time.monotonic() - self._asked < FRESH_SECONDS:
                return
            self._reports = await self._everyone()
            self._asked = time.monotonic()
        for camera in newer(self._reports, self._state.cameras.latest()):
            self._state.room.show(camera)

    async def _everyone(self) -> list[ReplicaReport]:
        """One report a replica that answers; at the worst this one's own."""
        handle = serve.get_deployment_handle(NAME, self._application)
        try:
            answers = await handle.broadcast("report").results_async(timeout_s=5, return_exceptions=True)
        except (RayServeException, RayError, TimeoutError):
            answers = []
        reports = [answer for answer in answers if isinstance(answer, ReplicaReport)]
        return reports or [await self.report()]

    async def _metrics(self) -> Response:
        await self._hear()
        text = metrics_text(self._reports, list(self._state.cameras.collect()))
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    async def _reload(self, context: Context) -> Response:
        raise Refused("model-refused", "A reload would reach one replica only: deploy the new model instead.")

    async def _cameras(self, context: Context) -> Response:
        await self._hear()
        return await camera_routes.cameras(context)

    async def _events(self, context: Context) -> Response:
        await self._hear()
        response = await camera_routes.events(context)
        if isinstance(response, StreamingResponse):
            response.body_iterator = self._with_news(response.body_iterator)
        return response

    async def _with_news(self, stream: AsyncIterable[Any]) -> AsyncIterator[Any]:
        async def keep_hearing() -> None:
            while True:
                await asyncio.sleep(FRESH_SECONDS)
                await self._hear()

        hearing = asyncio.create_task(keep_hearing())
        try:
            async for event in stream:
                yield event
        finally:
            hearing.cancel()


def replica_settings(flags: Mapping[str, str]) -> Settings:
    """Flags and the node's environment; threads are as many as Ray gave the replica, unless told."""
    settings = load_settings(flags)
    check_keys(settings)
    assigned = ray.get_runtime_context().get_assigned_resources()  # type: ignore[no-untyped-call]
    cores = max(1, int(assigned.get("CPU", 1)))
    given = {"threads": settings.threads or cores, "decode_threads": settings.decode_threads or cores}
    return settings.model_copy(update=given)


def check_keys(settings: Settings) -> None:
    """Ray's proxies listen where Ray is told to: the service cannot see whether other machines reach them."""
    if not settings.api_keys and not settings.insecure:
        raise InputError("Behind Ray the service needs keys: set UEPNET_API_KEYS on every node, or insecure=1.")


def build(args: Mapping[str, Any]) -> serve.Application:
    """The application, for `serve run` and `serve deploy`. `args` are settings by name, and `replicas`."""
    flags = {name: str(value) for name, value in args.items()}
    replicas = flags.pop("replicas", None)
    if replicas is not None and not replicas.isdecimal():
        raise InputError(f"replicas is a number, not {replicas!r}.")
    settings = load_settings(flags)  # a wrong one is reported before anything runs
    deployment = serve.deployment(
        name=NAME,
        num_replicas=None if replicas is None else int(replicas),
        max_ongoing_requests=settings.max_requests,
        max_queued_requests=8 * settings.max_requests,
        health_check_period_s=5,
        graceful_shutdown_timeout_s=settings.drain_seconds + settings.send_seconds + 10,
        logging_config={"enable_access_log": False},  # the service writes its own line a request
    )
    application: serve.Application = deployment(serve.ingress()(Replica)).bind(flags)
    return application
