"""The shapes of the native data plane, checked while they are decoded.

Unknown fields are refused by name. `reading` turns msgspec's complaint into a problem that
names the field in the client's own spelling.
"""

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from engine.types import Lane, Priority, RequestType
from fleet.gateway.errors import Problem

MAX_ROWS = 4096
MIN_DEADLINE_MS, MAX_DEADLINE_MS, DEFAULT_DEADLINE_MS = 10.0, 600_000.0, 2_000.0
MAX_OUTPUT_TOKENS, DEFAULT_OUTPUT_TOKENS = 8_192, 256

Text = Annotated[str, Meta(min_length=1)]
Rows = Annotated[list[str | list[float]], Meta(min_length=1, max_length=MAX_ROWS)]
PriorityName = Literal[0, 1, 2, 3, "low", "normal", "high", "critical"]


class InferRequest(
    msgspec.Struct, kw_only=True, forbid_unknown_fields=True, rename="camel", gc=False
):
    """`POST /v1/infer`."""

    model: Annotated[str, Meta(min_length=1, max_length=128)]
    input: Text | Rows
    session_key: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    deadline_ms: Annotated[float, Meta(ge=MIN_DEADLINE_MS, le=MAX_DEADLINE_MS)] = (
        DEFAULT_DEADLINE_MS
    )
    lane: Lane = Lane.INTERACTIVE
    priority: PriorityName | None = None
    max_output_tokens: Annotated[int, Meta(ge=1, le=MAX_OUTPUT_TOKENS)] = DEFAULT_OUTPUT_TOKENS
    request_type: RequestType = RequestType.INFER


class QuoteRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """`POST /v1/quote`: an inference request, or its size alone."""

    model: Annotated[str, Meta(min_length=1, max_length=128)]
    input: Text | Rows | None = None
    prompt_tokens: Annotated[int, Meta(ge=1, le=10_000_000)] | None = None
    session_key: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    deadline_ms: Annotated[float, Meta(ge=MIN_DEADLINE_MS, le=MAX_DEADLINE_MS)] = (
        DEFAULT_DEADLINE_MS
    )
    lane: Lane = Lane.INTERACTIVE
    priority: PriorityName | None = None
    max_output_tokens: Annotated[int, Meta(ge=1, le=MAX_OUTPUT_TOKENS)] = DEFAULT_OUTPUT_TOKENS
    request_type: RequestType = RequestType.INFER


class Usage(msgspec.Struct, rename="camel", gc=False):
    """Tokens charged."""

    prompt_tokens: int
    completion_tokens: int


class Timings(msgspec.Struct, rename="camel", gc=False):
    """Where the time went, in ms."""

    queued_ms: float
    execution_ms: float
    total_ms: float


class Batch(msgspec.Struct, gc=False):
    """The batch it rode in and why that batch left when it did."""

    size: int
    reason: str | None


class InferResponse(msgspec.Struct, rename="camel"):
    """The answer to `POST /v1/infer`."""

    request_id: str
    model: str
    version: str | None
    output: Any
    replica_id: str | None
    hedged: bool
    usage: Usage
    timings: Timings
    batch: Batch


_PRIORITY_NAMES = {priority.name.lower(): priority for priority in Priority}
_AT_PATH = re.compile(r"^(?P<what>.*) - at `\$\.?(?P<path>.*?)`$", re.DOTALL)
_NAMED = re.compile(r"(?:unknown|missing required) field `(?P<field>[^`]*)`", re.DOTALL)


def priority_of(name: int | str | None, ceiling: Priority) -> Priority:
    """The priority asked for. A tenant's own is the most it can claim."""
    if name is None:
        return ceiling
    wanted = _PRIORITY_NAMES[name] if isinstance(name, str) else Priority(name)
    return min(wanted, ceiling)


def reading(error: Exception) -> Problem:
    """What is wrong with a body, naming the field where there is one."""
    if isinstance(error, RecursionError):
        return Problem("invalid_request", "body: nested too deeply", details={"field": "body"})
    text = str(error)
    if not isinstance(error, msgspec.ValidationError):
        return Problem("invalid_request", f"body: {text}", details={"field": "body"})
    path = ""
    if match := _AT_PATH.match(text):
        text, path = match["what"], match["path"]
    if match := _NAMED.search(text):
        path = f"{path}.{match['field']}" if path else match["field"]
    field = (path or "body")[:200]
    return Problem("invalid_request", f"{field}: {text[:400]}", details={"field": field})


def measure(value: str | list[Any]) -> tuple[int, int]:
    """Estimated prompt tokens and batch places of an input.

    A text counts a token for every four bytes of UTF-8, at least one; a row of numbers
    counts its length. Raises `Problem` where texts and rows are mixed.
    """
    if isinstance(value, str):
        size = len(value) if value.isascii() else len(value.encode())
        return (size + 3) // 4, 1
    tokens = 0
    kind = type(value[0])
    for place, row in enumerate(value):
        if type(row) is not kind:
            message = f"input[{place}]: texts and rows of numbers cannot be mixed"
            raise Problem("invalid_request", message, details={"field": f"input[{place}]"})
        if not row:
            message = f"input[{place}]: must not be empty"
            raise Problem("invalid_request", message, details={"field": f"input[{place}]"})
        if kind is str:
            size = len(row) if row.isascii() else len(row.encode())
            tokens += (size + 3) // 4
        else:
            tokens += len(row)
    return tokens, len(value)
