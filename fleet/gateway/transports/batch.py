"""The batch protocol: `POST /execute`, MessagePack by choice, JSON if the replica prefers it.

    {batchId, model, version,
     items: [{requestId, input, maxOutputTokens, deadlineMs, promptTokens}]}
    -> {batchId, executionMs, queued?, results: [{requestId, output, promptTokens,
        completionTokens} | {requestId, error, status?}]}

`deadlineMs` is what is left of each member's time. An item may fail alone: with a 4xx
`status` it was the request's fault, else the replica's. A 503 or 429 with `Retry-After` is
busy, never a fault. An answer that misses a member fails that member; one that cannot be
read fails the batch.

A self-regulating replica says its ceilings with every answer, as headers; a change is passed
on at once (`limits`), so that the gateway never sends more than the replica now takes.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import msgspec

from engine.actions import Dispatch, ItemResult, LeaseReport
from engine.outcomes import Outcome, classify
from engine.types import ReplicaSpec
from fleet.gateway.clock import MonotonicClock
from fleet.gateway.transports.base import Done, FirstByte
from fleet.gateway.transports.connection import Exchange
from fleet.gateway.transports.http_client import HttpClient

MSGPACK = b"application/msgpack"
CONCURRENCY, BATCH_SIZE = b"x-halcyon-max-concurrency", b"x-halcyon-max-batch-size"
OnLimits = Callable[[str, int | None, int | None], None]
BACKSTOP_MS = 500.0  # the engine enforces deadlines; past this the transport does


class ExecuteItem(msgspec.Struct, rename="camel", gc=False):
    """One member on the wire."""

    request_id: str
    input: Any
    max_output_tokens: int
    deadline_ms: float
    prompt_tokens: int


class ExecuteRequest(msgspec.Struct, rename="camel"):
    """A batch on the wire."""

    batch_id: str
    items: list[ExecuteItem]
    model: str
    version: str


class ExecuteResult(msgspec.Struct, rename="camel"):
    """What became of one member."""

    request_id: str
    output: Any = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    error: Any = None
    status: int | None = None


class ExecuteAnswer(msgspec.Struct, rename="camel"):
    """What became of the batch."""

    results: list[ExecuteResult]
    batch_id: str = ""
    execution_ms: float | None = None
    queued: int | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode_msgpack = msgspec.msgpack.Decoder(ExecuteAnswer).decode
_decode_json = msgspec.json.Decoder(ExecuteAnswer).decode


class BatchTransport:
    """`Transport` for `Protocol.BATCH`."""

    def __init__(
        self,
        client: HttpClient,
        clock: MonotonicClock,
        *,
        headers: bytes = b"",
        limits: OnLimits = lambda _replica_id, _concurrency, _batch_size: None,
    ) -> None:
        self._client = client
        self._limits = limits
        self._said: dict[str, tuple[bytes, bytes]] = {}
        self._clock = clock
        self._headers = headers

    def start(
        self, dispatch: Dispatch, spec: ReplicaSpec, done: Done, first_byte: FirstByte
    ) -> "BatchHandle":
        now_ms = self._clock.now_ms()
        requests = dispatch.requests
        items = [
            ExecuteItem(
                request.request_id,
                request.payload.input,  # type: ignore[attr-defined]
                request.max_output_tokens,
                request.deadline_ms - now_ms,
                request.prompt_tokens,
            )
            for request in requests
        ]
        batch_id = f"{requests[0].request_id}.{dispatch.lease_id}"
        body = _encode(ExecuteRequest(batch_id, items, dispatch.model, dispatch.version))
        handle = BatchHandle(dispatch, done, self)
        handle.exchange = self._client.request(
            spec.address,
            "POST",
            "/execute",
            self._clock.monotonic_s(max(dispatch.give_up_ms, now_ms) + BACKSTOP_MS),
            handle.answered,
            handle.failed,
            body=body,
            media=MSGPACK,
            extra=self._headers,
        )
        return handle

    def heard(self, replica_id: str, headers: dict[bytes, bytes]) -> None:
        """Pass on the ceilings of an answer where they changed."""
        said = (headers.get(CONCURRENCY, b""), headers.get(BATCH_SIZE, b""))
        if said == (b"", b"") or self._said.get(replica_id) == said:
            return
        if len(self._said) > 4096:
            self._said.clear()
        self._said[replica_id] = said
        concurrency, batch_size = (int(v) if v.isdigit() and v != b"0" else None for v in said)
        self._limits(replica_id, concurrency, batch_size)

    async def close(self) -> None:
        await self._client.close()


class BatchHandle:
    """A batch on its way."""

    __slots__ = ("_dispatch", "_done", "_transport", "exchange")

    def __init__(self, dispatch: Dispatch, done: Done, transport: BatchTransport) -> None:
        self._dispatch = dispatch
        self._done = done
        self._transport = transport
        self.exchange: Exchange | None = None

    def abort(self) -> None:
        if self.exchange is not None:
            self.exchange.cancel()

    def failed(self, why: str) -> None:
        self._done(LeaseReport(Outcome.FAULT, error=why))

    def answered(self, status: int, headers: dict[bytes, bytes], body: bytes) -> None:
        outcome = classify(status)
        self._transport.heard(self._dispatch.replica_id, headers)
        if outcome is not Outcome.SUCCESS:
            self._done(
                LeaseReport(
                    outcome,
                    error=upstream_message(body) or f"HTTP {status}",
                    status=status,
                    retry_after_ms=retry_after_ms(headers),
                )
            )
            return
        decode = (
            _decode_msgpack if b"msgpack" in headers.get(b"content-type", b"") else _decode_json
        )
        try:
            answer = decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._done(LeaseReport(Outcome.FAULT, error=f"unreadable answer: {error}"[:300]))
            return
        self._done(
            LeaseReport(
                Outcome.SUCCESS,
                items=self._items(answer.results),
                execution_ms=answer.execution_ms,
                queued_at_replica=answer.queued,
                status=status,
            )
        )

    def _items(self, results: list[ExecuteResult]) -> list[ItemResult]:
        """The results in the order of the members."""
        requests = self._dispatch.requests
        known: dict[str, ExecuteResult] | None = None
        items: list[ItemResult] = []
        for place, request in enumerate(requests):
            result = results[place] if place < len(results) else None
            if result is None or result.request_id != request.request_id:
                if known is None:
                    known = {each.request_id: each for each in results}
                result = known.get(request.request_id)
            if result is None:
                missing = "the answer has no result for this item"
                items.append(ItemResult(Outcome.FAULT, error=missing))
            elif result.error is not None:
                items.append(_rejected(result))
            else:
                items.append(
                    ItemResult(
                        Outcome.SUCCESS,
                        result.output,
                        result.prompt_tokens or 0,
                        result.completion_tokens or 0,
                    )
                )
        return items


def _rejected(result: ExecuteResult) -> ItemResult:
    error, status = result.error, result.status
    if isinstance(error, dict):
        status = error.get("status", status) if status is None else status
        error = error.get("message") or error.get("code")
    outcome = classify(status if isinstance(status, int) else None)
    if outcome is Outcome.SUCCESS:
        outcome = Outcome.FAULT
    return ItemResult(outcome, error=str(error)[:500], status=status)


def upstream_message(body: bytes) -> str | None:
    """What an error answer says, from the shapes that servers use."""
    if not body:
        return None
    found: Any = None
    for decode in (msgspec.json.decode, msgspec.msgpack.decode):
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            found = decode(body)
            break
    for key in ("error", "message", "detail"):
        if isinstance(found, dict) and key in found:
            found = found[key]
    return found[:500] if isinstance(found, str) else None


def retry_after_ms(headers: dict[bytes, bytes]) -> float | None:
    """`Retry-After` in seconds, fractions allowed; a date is ignored."""
    value = headers.get(b"retry-after")
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds * 1000.0 if 0.0 <= seconds <= 3600.0 else None
