"""Links of a chain: each row's digest covers its content and the digest before.

    digest = sha256(previous digest + canonical JSON of the content)

Change, remove or reorder any row, and the first link after it no longer fits. JSON is made
canonical (sorted keys, no spaces, floats by their shortest exact form), and instants are
written in UTC to the microsecond, which is what PostgreSQL keeps, so a digest can be
recomputed from the stored row by anyone.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from math import isfinite
from typing import Any


def link(previous: str, content: Mapping[str, Any]) -> str:
    """The digest of `content`, chained to `previous`."""
    return sha256(previous.encode() + canonical(content).encode()).hexdigest()


def canonical(content: Mapping[str, Any]) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), default=_plain)


def stored(content: Any) -> Any:
    """`content` as it will read after a round trip through a JSON column.

    PostgreSQL keeps numbers as decimals: it knows no NaN, no negative zero and no exponent.
    """
    return _as_column(json.loads(json.dumps(content, sort_keys=True, default=_plain)))


def _as_column(value: Any) -> Any:
    if isinstance(value, float):
        if not isfinite(value):
            return None
        return int(value) if abs(value) >= 1e16 else value + 0.0
    if isinstance(value, str):
        return value.replace("\0", "")
    if isinstance(value, list):
        return [_as_column(item) for item in value]
    if isinstance(value, dict):
        return {_as_column(key): _as_column(item) for key, item in value.items()}
    return value


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds")
    return str(value)
