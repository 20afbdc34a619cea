"""What goes over the wire: MessagePack or JSON, by content type, the answer as the request.

    POST /execute  {batchId, model?, version?,
                    items: [{requestId, input, maxOutputTokens, deadlineMs}]}
    -> {batchId, executionMs, queued, results: [{requestId, output, promptTokens,
        completionTokens} | {requestId, error, status}]}

`deadlineMs` is what is left of the item's time. A failed item carries a `status`: 4xx where it
was the request's doing, 503 where it came too late to start, 5xx where it was the runtime's.
Errors of the whole batch are `{"error": {code, message, retryAfterMs?}}`.
"""

from typing import Any

import msgspec

JSON = b"application/json"
MSGPACK = b"application/msgpack"


class ExecuteItem(msgspec.Struct, rename="camel"):
    """One member of a batch. `promptTokens` spares the replica the counting."""

    request_id: str
    input: Any
    max_output_tokens: int = 256
    deadline_ms: float = 60_000.0
    prompt_tokens: int | None = None


class ExecuteRequest(msgspec.Struct, rename="camel"):
    """A batch. `model` and `version` say for whom, where the replica serves several."""

    batch_id: str
    items: list[ExecuteItem]
    model: str = ""
    version: str = ""


class ExecuteResult(msgspec.Struct, rename="camel", omit_defaults=True):
    """What became of one member."""

    request_id: str
    output: Any = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    error: str | None = None
    status: int | None = None


class ExecuteAnswer(msgspec.Struct, rename="camel"):
    """What became of the batch. `queued` is how many batches wait here now."""

    batch_id: str
    execution_ms: float
    queued: int
    results: list[ExecuteResult]


class PredictRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A single request to a replica that stands alone."""

    input: Any
    priority: str = "standard"


class SimulateRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A failure to inject."""

    fault: str
    duration_seconds: float = 10.0
    milliseconds: float | None = None
    megabytes: int | None = None
    calls: int | None = None
    factor: float | None = None


_to_json = msgspec.json.Encoder().encode
_to_msgpack = msgspec.msgpack.Encoder().encode
_batch_from_json = msgspec.json.Decoder(ExecuteRequest).decode
_batch_from_msgpack = msgspec.msgpack.Decoder(ExecuteRequest).decode


def media_of(content_type: bytes) -> bytes | None:
    """The codec that a content type names; JSON where it names none, None where it is foreign."""
    kind = content_type.split(b";", 1)[0].strip().lower()
    if kind in (b"", JSON):
        return JSON
    if kind in (MSGPACK, b"application/x-msgpack", b"application/vnd.msgpack"):
        return MSGPACK
    return None


def decode_batch(body: bytes, media: bytes) -> ExecuteRequest:
    """A batch from the wire, or `msgspec.MsgspecError` that names what is wrong."""
    return _batch_from_msgpack(body) if media == MSGPACK else _batch_from_json(body)


def encode(value: Any, media: bytes = JSON) -> bytes:
    """Anything of this module for the wire."""
    return _to_msgpack(value) if media == MSGPACK else _to_json(value)
