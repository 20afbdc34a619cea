"""What the operations of the data plane's contract are put together from."""

from typing import Any

from fleet.gateway.errors import STATUS

REF = "#/components/schemas/{name}"
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
ONLY_SOME = frozenset({409, 422})


def operation(
    name: str,
    summary: str,
    *,
    answer: dict[str, Any],
    body: dict[str, Any] | None = None,
    parameters: list[dict[str, Any]] | None = None,
    error: dict[str, Any] | None = None,
    also: frozenset[int] = frozenset(),
) -> dict[str, Any]:
    """One that asks for a key. `error`: the envelope; `also`: statuses that few others give."""
    told = _as_json(error or {"$ref": REF.format(name="ErrorEnvelope")})
    made: dict[str, Any] = {
        "operationId": name,
        "summary": summary,
        "responses": {
            "200": {"description": "Done.", "content": _as_json(answer)},
            **{
                str(status): {"description": _TAGS[status], "content": told}
                for status in sorted(set(STATUS.values()) & set(_TAGS) - ONLY_SOME | also)
            },
        },
    }
    if body is not None:
        made["requestBody"] = {"required": True, "content": _as_json(body)}
    if parameters:
        made["parameters"] = parameters
    return made


def unguarded(name: str, summary: str, statuses: set[int]) -> dict[str, Any]:
    """One that needs no key."""
    return {
        "operationId": name,
        "summary": summary,
        "security": [],
        "responses": {
            str(status): {"description": summary, "content": _as_json(anything())}
            for status in sorted(statuses)
        },
    }


def text_header(name: str, description: str, longest: int) -> dict[str, Any]:
    """A header of 1 to `longest` characters that may be left out."""
    return _header(name, description, {"type": "string", "minLength": 1, "maxLength": longest})


def number_header(name: str, description: str, least: float, most: float) -> dict[str, Any]:
    """A number in a header that may be left out."""
    return _header(name, description, {"type": "number", "minimum": least, "maximum": most})


def choice_header(name: str, description: str, choices: list[str]) -> dict[str, Any]:
    """One of some words in a header that may be left out."""
    return _header(name, description, {"type": "string", "enum": choices})


def in_path(name: str) -> dict[str, Any]:
    """A piece of the path."""
    schema = {"type": "string", "minLength": 1}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def anything() -> dict[str, Any]:
    """Any object."""
    return {"type": "object"}


def _header(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": description, "schema": schema}


def _as_json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


IDEMPOTENCY_KEY = text_header("Idempotency-Key", "The same key and body are run once.", 255)
VERSION = text_header("X-Halcyon-Version", "Which version, for keys that may choose.", 128)
