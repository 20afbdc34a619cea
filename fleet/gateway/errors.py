"""The one error envelope of the data plane, and every status that goes with it.

    {"error": {"code", "message", "requestId", "retryAfterMs"?, "details"?}}

A `Problem` is what went wrong before the engine was asked (bad JSON, bad key, wrong
method); an engine `Refusal` becomes one too, so that clients learn a single shape. The
`Retry-After` header is the refusal's own computed wait in whole seconds, rounded up:
whoever waits that long does not come back too early.
"""

import functools
import math
from collections.abc import Mapping
from typing import Any

import msgspec

from engine.errors import Refusal, RefusalCode

Headers = tuple[tuple[bytes, bytes], ...]

STATUS: Mapping[str, int] = {
    RefusalCode.QUOTA_EXCEEDED: 429,
    RefusalCode.OVERLOADED: 503,
    RefusalCode.QUEUE_FULL: 503,
    RefusalCode.DEADLINE_UNREACHABLE: 503,
    RefusalCode.DEADLINE_EXCEEDED: 504,
    RefusalCode.NO_CAPACITY: 503,
    RefusalCode.UPSTREAM_FAILURE: 502,
    RefusalCode.MODEL_NOT_FOUND: 404,
    RefusalCode.INVALID_REQUEST: 400,
    RefusalCode.FORBIDDEN: 403,
    "unauthorized": 401,
    "not_found": 404,
    "method_not_allowed": 405,
    "request_timeout": 408,
    "idempotency_conflict": 409,
    "payload_too_large": 413,
    "unsupported_media_type": 415,
    "internal_error": 500,
}


class Problem(Exception):
    """A request that cannot be served, ready to be told to its client."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int | None = None,
        retry_after_ms: float | None = None,
        details: Mapping[str, object] | None = None,
        headers: Headers = (),
    ) -> None:
        super().__init__(message)
        self.code = str(code)
        self.message = message
        self.status = STATUS.get(self.code, 500) if status is None else status
        self.retry_after_ms = retry_after_ms
        self.details = details
        self.headers = headers


class ErrorBody(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel"):
    """What is inside the envelope."""

    code: str
    message: str
    request_id: str
    retry_after_ms: int | None = None
    details: dict[str, Any] | None = None


class ErrorEnvelope(msgspec.Struct):
    """The answer to every request that is not served."""

    error: ErrorBody


_encode = msgspec.json.Encoder().encode


def envelope(problem: Problem, request_id: str) -> tuple[int, bytes, Headers]:
    """Status, body and headers of a problem."""
    wait_ms = problem.retry_after_ms
    headers = problem.headers
    if wait_ms is not None:
        wait_ms = max(1.0, wait_ms)
        headers = (*headers, (b"retry-after", b"%d" % math.ceil(wait_ms / 1000.0)))
    body = ErrorBody(
        code=problem.code,
        message=problem.message,
        request_id=request_id,
        retry_after_ms=None if wait_ms is None else math.ceil(wait_ms),
        details=dict(problem.details) if problem.details else None,
    )
    return problem.status, _encode(ErrorEnvelope(body)), headers


def of_refusal(refusal: Refusal) -> Problem:
    """An engine refusal as a problem: the limit that was hit, its value and the use go along."""
    details: dict[str, object] = {}
    if refusal.limit_name is not None:
        details["limitName"] = refusal.limit_name
        details["limit"] = refusal.limit
        details["used"] = refusal.used
    for name, value in refusal.details.items():
        details[camel(name)] = value
    return Problem(
        refusal.code, refusal.message, retry_after_ms=refusal.retry_after_ms, details=details
    )


@functools.lru_cache(maxsize=512)
def camel(name: str) -> str:
    """`earliest_deadline_ms` as JSON spells it: `earliestDeadlineMs`."""
    head, *rest = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)
