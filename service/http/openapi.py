"""What FastAPI cannot derive for the OpenAPI document: bodies that we read ourselves, problems, examples."""

from typing import Any

from pydantic import BaseModel

from uepnet.service.errors import PROBLEMS
from uepnet.service.http.problems import MEDIA_TYPE
from uepnet.service.schemas import Problem, ReloadRequest

MODEL = {"name": "uepnet", "version": "1", "precision": "fp32", "device": "cpu"}
COUNT_EXAMPLE = {
    "count": 411.7,
    "range": {"low": 350.2, "high": 480.9, "level": 0.9},
    "width": 1024,
    "height": 768,
    "zones": [{"name": "gate", "count": 57.3}],
    "saturated": 0.0,
    "scales": [{"scale": 0.82, "share": 0.7}, {"scale": 1.63, "share": 0.3}],
    "familiarity": 0.94,
    "unfamiliar": False,
    "warnings": [],
    "model": MODEL,
    "timings_ms": {"decode": 8.1, "queue": 0.2, "inference": 187.4, "total": 197.0},
    "request_id": "5f0c7f9e2f0b4b8f9a1d",
}
ZONES_EXAMPLE = '{"zones": [{"name": "gate", "units": "fractions", "polygon": [[0.1, 0.2], [0.5, 0.2], [0.3, 0.9]]}]}'
BINARY = {"type": "string", "format": "binary"}
ZONES = {
    "type": "string",
    "description": "JSON: named polygons in pixels or in fractions of the frame",
    "example": ZONES_EXAMPLE,
}


def inline(model: type[BaseModel]) -> dict[str, Any]:
    """A model's JSON schema without references, to stand anywhere in the document."""
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})

    def resolve(node: Any) -> Any:
        if isinstance(node, dict):
            if "$ref" in node:
                return resolve(definitions[node["$ref"].rpartition("/")[2]])
            return {key: resolve(value) for key, value in node.items()}
        return [resolve(item) for item in node] if isinstance(node, list) else node

    resolved: dict[str, Any] = resolve(schema)
    return resolved


def _form(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": required}
    return {"multipart/form-data": {"schema": schema}}


COUNT_BODY = {
    "requestBody": {
        "required": True,
        "description": "An image as the whole body (the fast path), or a form with the image and zones.",
        "content": {
            "image/jpeg": {"schema": BINARY},
            "image/png": {"schema": BINARY},
            "image/*": {"schema": BINARY},
            "application/octet-stream": {"schema": BINARY},
            **_form({"image": BINARY, "zones": ZONES}, ["image"]),
        },
    }
}
BATCH_BODY = {
    "requestBody": {
        "required": True,
        "description": "A form whose parts are images, in order; one part called zones applies to all of them.",
        "content": _form({"image": {"type": "array", "items": BINARY, "minItems": 1}, "zones": ZONES}, ["image"]),
    }
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The responses of a route that may fail with these statuses."""
    responses: dict[int | str, dict[str, Any]] = {}
    for status in (*statuses, 401, 500):
        names = [(name, title) for name, (found, title) in PROBLEMS.items() if found == status]
        name, title = names[0]
        example = {
            "type": f"urn:uepnet:problem:{name}",
            "title": title,
            "status": status,
            "detail": "One sentence.",
            "request_id": COUNT_EXAMPLE["request_id"],
        }
        responses[status] = {
            "description": "; ".join(title for _, title in names),
            "content": {MEDIA_TYPE: {"schema": PROBLEM_SCHEMA, "example": example}},
        }
    return responses


PROBLEM_SCHEMA = inline(Problem)
COUNT_HEADER = {"X-Count": {"schema": {"type": "number"}, "description": "the count, in a PNG or NPY answer"}}
COUNT_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The count; by Accept as JSON, as a picture, or as an array",
        "headers": COUNT_HEADER,
        "content": {
            "application/json": {"example": COUNT_EXAMPLE},
            "image/png": {"schema": BINARY},
            "application/x-npy": {"schema": BINARY},
        },
    },
    **problems(406, 408, 413, 415, 422, 429, 503, 504),
}
RELOAD_BODY = {
    "requestBody": {
        "required": False,
        "description": "Which model; without a body the configured one is loaded anew.",
        "content": {"application/json": {"schema": inline(ReloadRequest), "example": {"path": "model-2"}}},
    }
}
