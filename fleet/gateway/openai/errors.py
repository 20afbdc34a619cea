"""Errors in OpenAI's own envelope, so that its clients raise what their users expect.

    {"error": {"message", "type", "param", "code"}}

The codes are Halcyon's where OpenAI has no word for it; type and status are OpenAI's, and
`Retry-After` goes along as everywhere.
"""

import math
from typing import Any

import msgspec

from fleet.gateway.errors import Headers, Problem

_PATHS = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/models"})

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    409: "conflict_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
}
_CODES = {"unauthorized": "invalid_api_key", "quota_exceeded": "rate_limit_exceeded"}


def speaks(path: str) -> bool:
    """Whether clients of this path expect OpenAI's envelope."""
    return path in _PATHS or path.startswith("/v1/models/")


def error_body(problem: Problem, request_id: str) -> dict[str, Any]:
    """The envelope as a document."""
    details = dict(problem.details or {})
    error: dict[str, Any] = {
        "message": problem.message,
        "type": _TYPES.get(problem.status, "server_error"),
        "param": details.pop("field", None),
        "code": _CODES.get(problem.code, problem.code),
        "request_id": request_id,
    }
    if details:
        error["details"] = details
    return {"error": error}


def envelope(problem: Problem, request_id: str) -> tuple[int, bytes, Headers]:
    """Status, body and headers of a problem, as OpenAI would say it."""
    headers = problem.headers
    if problem.retry_after_ms is not None:
        wait_s = max(1, math.ceil(problem.retry_after_ms / 1000.0))
        headers = (*headers, (b"retry-after", b"%d" % wait_s))
    return problem.status, msgspec.json.encode(error_body(problem, request_id)), headers


def event(problem: Problem, request_id: str) -> bytes:
    """The same inside a stream that has begun."""
    return b"data: %b\n\n" % msgspec.json.encode(error_body(problem, request_id))
