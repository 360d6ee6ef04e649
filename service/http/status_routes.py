"""The model and its reload, metrics."""

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import ValidationError
from starlette.responses import Response

from uepnet.service.errors import Refused
from uepnet.service.http.context import Context
from uepnet.service.http.openapi import RELOAD_BODY, problems
from uepnet.service.schemas import ModelAnswer, ReloadRequest

router = APIRouter()


@router.get(
    "/v1/model",
    tags=["model"],
    summary="The model that serves",
    response_model=ModelAnswer,
    responses=problems(503),
)
async def model(context: Context) -> Response:
    return Response(context.app.model.ready().describe().model_dump_json(), media_type="application/json")


@router.post(
    "/v1/model/reload",
    tags=["model"],
    summary="Load a model directory and serve it in place of the present one",
    description="Needs the admin key. Requests under way finish on the old model; a broken one changes nothing.",
    response_model=ModelAnswer,
    openapi_extra=RELOAD_BODY,
    responses=problems(403, 408, 409, 413, 415, 422, 429, 503),
)
async def reload(context: Context) -> Response:
    if not context.is_admin:
        raise Refused("forbidden", "Send the admin key; without a configured admin key, reloading is off.")
    async with context.small_body() as body:
        try:
            asked = ReloadRequest.model_validate_json(body or b"{}")
        except ValidationError:
            raise Refused("wrong-request", 'The body must be JSON like {"path": "model-2"}, or empty.') from None
    context.log_fields["model_path"] = asked.path or "configured"
    loaded = await context.app.model.reload(asked.path)
    context.log_fields["model"] = f"{loaded.artifact.name} {loaded.artifact.version}"
    return Response(loaded.describe().model_dump_json(), media_type="application/json")


@router.get(
    "/metrics",
    tags=["operations"],
    summary="Prometheus metrics",
    response_class=Response,
    responses={
        200: {"description": "Text format", "content": {"text/plain": {"schema": {"type": "string"}}}},
        **problems(),
    },
)
async def metrics(context: Context) -> Response:
    return Response(await context.app.metrics.text(), media_type=CONTENT_TYPE_LATEST)
