"""Every error and every refusal of the engine.

    EngineError
    |-- InvalidInput          a value out of range: names the field, the value, the remedy
    |   `-- UnknownName       a model, version, tenant or replica that nothing defines
    `-- BrokenInvariant       the engine contradicts itself: a bug, never the caller's fault

A refusal is not an exception: it is a `Refusal`, a decision like any other, with a code
from the closed set `RefusalCode`, the limit that was hit, its value, and when to come back.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum


class EngineError(Exception):
    """Base of all engine errors."""


class InvalidInput(EngineError, ValueError):
    """A value that the engine cannot accept. Correct the field it names."""

    def __init__(self, name: str, value: object, remedy: str) -> None:
        super().__init__(f"{name}={value!r}: {remedy}")
        self.field = name
        self.value = value
        self.remedy = remedy


class UnknownName(InvalidInput):
    """A name that the snapshot does not define. Create it first, or correct the spelling."""

    def __init__(self, kind: str, value: str, known: Iterable[str] = ()) -> None:
        names = sorted(known)[:8]
        hint = f"known: {', '.join(names)}" if names else "none is defined yet"
        super().__init__(kind, value, f"no such {kind}; {hint}")


class BrokenInvariant(EngineError, AssertionError):
    """The engine's own bookkeeping contradicts itself. Report it with the message."""


def require_range(
    name: str, value: float, low: float = -math.inf, high: float = math.inf, *, unit: str = ""
) -> float:
    """Return `value` if it is finite and within [low, high], else raise `InvalidInput`."""
    if not math.isfinite(value) or not low <= value <= high:
        upper = "" if high == math.inf else f" and <= {high:g}"
        raise InvalidInput(name, value, f"must be a number >= {low:g}{upper} {unit}".rstrip())
    return value


def require_positive(name: str, value: float, *, unit: str = "") -> float:
    """Return `value` if it is finite and > 0, else raise `InvalidInput`."""
    if not math.isfinite(value) or value <= 0:
        raise InvalidInput(name, value, f"must be a number > 0 {unit}".rstrip())
    return value


class RefusalCode(StrEnum):
    """Why a request was not served: a closed set, the same on the wire, in rows and in charts."""

    QUOTA_EXCEEDED = "quota_exceeded"
    OVERLOADED = "overloaded"
    QUEUE_FULL = "queue_full"
    DEADLINE_UNREACHABLE = "deadline_unreachable"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    NO_CAPACITY = "no_capacity"
    UPSTREAM_FAILURE = "upstream_failure"
    MODEL_NOT_FOUND = "model_not_found"
    INVALID_REQUEST = "invalid_request"
    FORBIDDEN = "forbidden"


@dataclass(slots=True, frozen=True, kw_only=True)
class Refusal:
    """A request turned away, as data.

    `limit_name`, `limit` and `used` say which comparison failed and by how much;
    `retry_after_ms` is computed from them, or None where no wait would help.
    """

    code: RefusalCode
    message: str
    limit_name: str | None = None
    limit: float | None = None
    used: float | None = None
    retry_after_ms: float | None = None
    details: dict[str, object] = field(default_factory=dict)
