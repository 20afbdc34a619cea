"""Talking to servers that speak OpenAI: one request an exchange, streams passed through.

A whole answer is reported with its body and the usage it names. A stream is reported when it
ends; until then its events go straight to the client. The client hears nothing before the
first event is whole, because servers with a full queue say 200 and then send an error as the
first event: that becomes the status it stands for, and may be tried elsewhere. After it,
a stream that breaks off is a fault that nobody repeats.

A client that reads slowly stops the upstream from being read, so at most a megabyte waits.
"""

import asyncio
from typing import Any

import msgspec

from engine.actions import Dispatch, ItemResult, LeaseReport
from engine.outcomes import Outcome, classify
from engine.types import ReplicaSpec
from fleet.gateway.clock import MonotonicClock
from fleet.gateway.openai.events import NOTHING, StreamWatch
from fleet.gateway.openai.generation import Generation, Passed
from fleet.gateway.openai.schema import with_model
from fleet.gateway.transports.base import Done, FirstByte
from fleet.gateway.transports.batch import BACKSTOP_MS, retry_after_ms, upstream_message
from fleet.gateway.transports.connection import Exchange
from fleet.gateway.transports.http_client import HttpClient

_RESUME_CHECK_S = 0.02
_JSON = b"application/json"


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Whole(msgspec.Struct, gc=False):
    usage: _Usage | None = None


_decode = msgspec.json.Decoder(_Whole).decode


class OpenAITransport:
    """`Transport` for `Protocol.OPENAI`. `key` is what the upstreams ask for, if anything."""

    def __init__(self, client: HttpClient, clock: MonotonicClock, *, key: str = "") -> None:
        self._client = client
        self._clock = clock
        self._headers = b"authorization: Bearer %b\r\n" % key.encode() if key else b""

    def start(
        self, dispatch: Dispatch, spec: ReplicaSpec, done: Done, first_byte: FirstByte
    ) -> "Upstream":
        request = dispatch.requests[0]
        generation = request.payload
        assert isinstance(generation, Generation)
        body = generation.body
        if spec.loaded_models and request.model not in spec.loaded_models:
            body = with_model(body, min(spec.loaded_models))
        upstream = Upstream(
            generation, spec.replica_id, self._clock, done, first_byte, mute=dispatch.shadow
        )
        give_up_ms = max(dispatch.give_up_ms, self._clock.now_ms()) + BACKSTOP_MS
        upstream.exchange = self._client.request(
            spec.address,
            "POST",
            generation.path,
            self._clock.monotonic_s(give_up_ms),
            upstream.answered,
            upstream.failed,
            body=body,
            media=_JSON,
            extra=self._headers,
        )
        if generation.stream:
            upstream.exchange.on_chunk = upstream.chunk
        return upstream

    async def close(self) -> None:
        await self._client.close()


class Upstream:
    """One request on its way through one server."""

    __slots__ = (
        "_clock",
        "_done",
        "_first_byte",
        "_first_ms",
        "_generation",
        "_mute",
        "_over",
        "_replica_id",
        "_resume",
        "_sent_ms",
        "_spliced",
        "_watch",
        "exchange",
    )

    def __init__(
        self,
        generation: Generation,
        replica_id: str,
        clock: MonotonicClock,
        done: Done,
        first_byte: FirstByte,
        *,
        mute: bool,
    ) -> None:
        self._generation = generation
        self._watch = StreamWatch(hide_usage=generation.hide_usage)
        self._mute = mute  # a shadow: its answer is counted and nobody hears it
        self._replica_id = replica_id
        self._clock = clock
        self._done = done
        self._first_byte = first_byte
        self._sent_ms = clock.now_ms()
        self._first_ms: float | None = None
        self._over = False
        self._resume: asyncio.TimerHandle | None = None
        self._spliced = NOTHING  # around the text of the events that take the short road
        self.exchange: Exchange | None = None

    def abort(self) -> None:
        self._over = True
        if self._resume is not None:
            self._resume.cancel()
        if self.exchange is not None:
            self.exchange.cancel()

    # -- streams -----------------------------------------------------------------------

    def chunk(self, data: bytes) -> None:
        """A piece of a stream with status 200."""
        if self._over:
            return
        watch = self._watch
        if self._spliced is not NOTHING:
            watch.pieces = self._generation.tokens  # with those that took the short road
        try:
            whole = watch.feed(data)
        except ValueError as error:
            self._end(LeaseReport(Outcome.FAULT, error=str(error)))
            return
        begun = self._first_ms is not None
        if watch.error is not None and not begun:
            self._end(_refused_in_stream(watch.error))
            return
        if not whole:
            return
        if not begun:
            self._first_ms = self._clock.now_ms() - self._sent_ms
            if not self._mute and not self._begin():
                return
        if not self._mute:
            tokens = watch.completion_tokens or watch.pieces
            if self._generation.piece(whole, tokens) and self._resume is None:
                self._wait_for_reader()
            if watch.around is not self._spliced:
                self._splice()
        if watch.error is not None:
            self._generation.told_error = not self._mute
            report = _refused_in_stream(watch.error)
            report.outcome, report.items = Outcome.FAULT, None
            self._end(report)

    def _splice(self) -> None:
        """Let events like the one that just came take the short road, if there is one."""
        watch = self._watch
        self._spliced = around = watch.around
        splice = None if around is NOTHING else self._generation.splice(around)
        if self.exchange is not None:
            self.exchange.shorten(None if splice is None else splice.take)

    def _begin(self) -> bool:
        """The client hears one attempt only: the first to speak."""
        generation = self._generation
        if generation.speaker is not None:
            self._end(LeaseReport(Outcome.CANCELLED, error="another attempt spoke first"))
            return False
        generation.speaker = self
        self._first_byte()
        generation.opened(self._replica_id)
        return True

    def _wait_for_reader(self) -> None:
        if self.exchange is not None:
            self.exchange.pause()
        loop = asyncio.get_running_loop()
        self._resume = loop.call_later(_RESUME_CHECK_S, self._look_at_reader)

    def _look_at_reader(self) -> None:
        self._resume = None
        if self._over or self.exchange is None:
            return
        if self._generation.is_read_slowly:
            self._wait_for_reader()
        else:
            self.exchange.resume()

    def _end(self, report: LeaseReport) -> None:
        """Report now, and close: nothing more of this answer is wanted."""
        if not self._over:
            self.abort()
            self._done(report)

    # -- ends --------------------------------------------------------------------------

    def failed(self, why: str) -> None:
        if not self._over:
            self._over = True
            self._done(LeaseReport(Outcome.FAULT, error=why))

    def answered(self, status: int, headers: dict[bytes, bytes], body: bytes) -> None:
        if self._over:
            return
        self._over = True
        outcome = classify(status)
        if outcome is not Outcome.SUCCESS:
            self._done(_refused(outcome, status, headers, body))
        elif self._first_ms is not None:
            self._done(self._streamed())
        elif self._generation.stream:
            self._done(LeaseReport(Outcome.FAULT, error="the stream ended without an event"))
        else:
            self._done(_whole(status, headers, body))

    def _streamed(self) -> LeaseReport:
        watch = self._watch
        rest = watch.rest()
        if rest.strip() and not self._mute:
            self._generation.piece(rest, watch.tokens)
        if not watch.done and not watch.finished:
            return LeaseReport(Outcome.FAULT, error="the stream broke off")
        item = ItemResult(
            Outcome.SUCCESS,
            prompt_tokens=watch.prompt_tokens,
            completion_tokens=watch.tokens,
        )
        return LeaseReport(Outcome.SUCCESS, [item], status=200, first_byte_ms=self._first_ms)


def _whole(status: int, headers: dict[bytes, bytes], body: bytes) -> LeaseReport:
    try:
        said = _decode(body).usage
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return LeaseReport(Outcome.FAULT, error=f"unreadable answer: {error}"[:300], status=status)
    item = ItemResult(
        Outcome.SUCCESS,
        Passed(status, body, headers.get(b"content-type", _JSON)),
        (said and said.prompt_tokens) or 0,
        (said and said.completion_tokens) or 0,
    )
    return LeaseReport(Outcome.SUCCESS, [item], status=status)


def _refused(
    outcome: Outcome, status: int, headers: dict[bytes, bytes], body: bytes
) -> LeaseReport:
    message = upstream_message(body) or f"HTTP {status}"
    if outcome is Outcome.CLIENT_ERROR:
        passed = Passed(status, body, headers.get(b"content-type", _JSON))
        item = ItemResult(outcome, passed, error=message, status=status)
        return LeaseReport(outcome, [item], error=message, status=status)
    return LeaseReport(
        outcome, error=message, status=status, retry_after_ms=retry_after_ms(headers)
    )


def _refused_in_stream(error: dict[str, Any]) -> LeaseReport:
    """An error event: classified by the status it names, a fault where it names none."""
    code = error.get("code") or error.get("status")
    status = code if isinstance(code, int) and 400 <= code <= 599 else 500
    message = str(error.get("message") or "the stream began with an error")[:500]
    outcome = classify(status)
    if outcome is Outcome.CLIENT_ERROR:
        body = msgspec.json.encode({"error": error})
        item = ItemResult(outcome, Passed(status, body, _JSON), error=message, status=status)
        return LeaseReport(outcome, [item], error=message, status=status)
    return LeaseReport(outcome, error=message, status=status)
