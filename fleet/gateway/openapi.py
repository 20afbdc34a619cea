"""The data plane's contract as OpenAPI 3.1, made from the very types that decode requests."""

from typing import Any

import msgspec

from fleet.gateway.errors import STATUS, ErrorEnvelope
from fleet.gateway.schema import InferRequest, InferResponse, QuoteRequest

_REF = "#/components/schemas/{name}"
_TAGS = {
    400: "The body or a header is wrong; `details.field` names it.",
    401: "No key, or one that is unknown, expired or revoked.",
    403: "This key may not do that.",
    404: "No such model, path or request.",
    408: "The body did not arrive in time.",
    409: "This `Idempotency-Key` came with another body.",
    413: "The body is over the limit.",
    415: "The body must be application/json.",
    422: "The model's own server found the request wrong.",
    429: "The tenant's quota is used up until `retryAfterMs`.",
    502: "The replicas that tried failed.",
    503: "Refused now: overloaded, queue full, no capacity, or the deadline cannot be met.",
    504: "The deadline passed.",
    500: "A bug of ours.",
}
INFER_ONLY = frozenset({409, 422})


def document() -> dict[str, Any]:
    """The whole document."""
    types = (InferRequest, InferResponse, QuoteRequest, ErrorEnvelope)
    refs, components = msgspec.json.schema_components(types, ref_template=_REF)
    infer, answer, quote, _ = refs
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Halcyon data plane",
            "version": "1",
            "description": "Inference within a deadline, or a refusal that says when to come back.",
        },
        "components": {
            "schemas": components,
            "securitySchemes": {
                "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
        "security": [{"apiKey": []}, {"bearer": []}],
        "paths": {
            "/v1/infer": {
                "post": _operation(
                    "infer",
                    "Run a model within a deadline.",
                    body=infer,
                    answer=answer,
                    parameters=[
                        _header("Idempotency-Key", "The same key and body are run once.", 255),
                        _header(
                            "X-Halcyon-Version", "Which version, for keys that may choose.", 128
                        ),
                    ],
                    also=INFER_ONLY,
                )
            },
            "/v1/quote": {
                "post": _operation(
                    "quote", "Would this be served in time now?", body=quote, answer=_anything()
                )
            },
            "/v1/models": {
                "get": _operation("models", "The models.", answer=_anything(), error=_openai())
            },
            "/v1/models/{model}": {
                "get": _operation(
                    "model",
                    "One model.",
                    answer=_anything(),
                    parameters=[_in_path("model")],
                    error=_openai(),
                )
            },
            "/v1/requests/{id}/explain": {
                "get": _operation(
                    "explain",
                    "Every decision made about a recent request.",
                    answer=_anything(),
                    parameters=[_in_path("id")],
                )
            },
            "/healthz": {"get": _open("healthz", "Alive.", {200})},
            "/readyz": {"get": _open("readyz", "Ready for work.", {200, 503})},
        },
    }


def _operation(
    name: str,
    summary: str,
    *,
    answer: dict[str, Any],
    body: dict[str, Any] | None = None,
    parameters: list[dict[str, Any]] | None = None,
    error: dict[str, Any] | None = None,
    also: frozenset[int] = frozenset(),
) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": name,
        "summary": summary,
        "responses": {
            "200": {"description": "Done.", "content": _json(answer)},
            **{
                str(status): {"description": _TAGS[status], "content": _json(error or _envelope())}
                for status in sorted(set(STATUS.values()) & set(_TAGS) - INFER_ONLY | also)
            },
        },
    }
    if body is not None:
        operation["requestBody"] = {"required": True, "content": _json(body)}
    if parameters:
        operation["parameters"] = parameters
    return operation


def _open(name: str, summary: str, statuses: set[int]) -> dict[str, Any]:
    return {
        "operationId": name,
        "summary": summary,
        "security": [],
        "responses": {
            str(status): {"description": summary, "content": _json(_anything())}
            for status in sorted(statuses)
        },
    }


def _header(name: str, description: str, longest: int) -> dict[str, Any]:
    return {
        "name": name,
        "in": "header",
        "description": description,
        "schema": {"type": "string", "minLength": 1, "maxLength": longest},
    }


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _anything() -> dict[str, Any]:
    return {"type": "object"}


def _envelope() -> dict[str, Any]:
    return {"$ref": _REF.format(name="ErrorEnvelope")}


def _openai() -> dict[str, Any]:
    """OpenAI's own envelope, of the paths that its clients call."""
    inside = {"type": "object", "required": ["message", "type", "code", "request_id"]}
    return {"type": "object", "required": ["error"], "properties": {"error": inside}}


def _in_path(name: str) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1}
    return {"name": name, "in": "path", "required": True, "schema": schema}
