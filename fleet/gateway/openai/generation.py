"""One OpenAI request under way: the engine's payload, the call's owner, the transport's ear.

The transport reports a whole answer as the result's payload (`Passed`), or speaks while it
comes: `opened` with the first event, `piece` for every chunk. After `opened` the client has
its status, so whatever goes wrong later is told as an event, and `[DONE]` is never added:
what the server did not say is not said.
"""

from typing import Any

import msgspec

from engine.actions import Deliver
from engine.types import Request
from fleet.gateway.call import Call
from fleet.gateway.endpoints.infer import of_answer
from fleet.gateway.errors import Headers, Problem
from fleet.gateway.openai import answers, errors
from fleet.gateway.process import Process
from fleet.gateway.transports.splice import Splice

SSE = b"text/event-stream; charset=utf-8"
SLOW_READER_BYTES = 1024 * 1024


class Passed(msgspec.Struct, gc=False):
    """An upstream's whole answer, to be passed on as it is."""

    status: int
    body: bytes
    media: bytes


class Generation:
    """Carries one chat, completion or embedding request."""

    __slots__ = (
        "_as_base64",
        "_call",
        "_created",
        "_process",
        "_request",
        "_wants_usage",
        "body",
        "hide_usage",
        "input",
        "opened_stream",
        "path",
        "prompt_tokens",
        "speaker",
        "stream",
        "told_error",
    )

    def __init__(
        self,
        call: Call,
        request: Request,
        process: Process,
        *,
        body: bytes,
        value: Any,
        stream: bool = False,
        wants_usage: bool = False,
        hide_usage: bool = False,
        as_base64: bool = False,
        created: int = 0,
    ) -> None:
        self._call = call
        self._request = request
        self._process = process
        self._wants_usage = wants_usage
        self._as_base64 = as_base64
        self._created = created
        self.path = call.path
        self.body = body  # for servers that speak the protocol
        self.input = value  # for replicas of the batch protocol
        self.stream = stream
        self.hide_usage = hide_usage
        self.opened_stream = False
        self.speaker: object = None  # the attempt whose answer the client hears
        self.told_error = False  # the server itself said in the stream what went wrong
        self.prompt_tokens = request.prompt_tokens

    # -- what the transport says -----------------------------------------------------

    def opened(self, replica_id: str) -> None:
        """The first event is here and is no error: the client gets its status."""
        if not self.opened_stream:
            self.opened_stream = True
            self._call.open(200, _headers(replica_id), SSE)

    def piece(self, chunk: bytes, tokens: int) -> bool:
        """Whole events; `tokens` is how many the stream has had so far. Returns whether the
        client lags so far behind that the upstream must wait."""
        self._request.tokens_spent = self.prompt_tokens + tokens
        call = self._call
        call.write(chunk)
        return call.backlog > SLOW_READER_BYTES

    @property
    def tokens(self) -> int:
        """Output tokens that the client has been sent."""
        return max(self._request.tokens_spent - self.prompt_tokens, 0)

    def splice(self, around: tuple[bytes, bytes]) -> Splice | None:
        """A short road to the client for events that are like this around their text; None
        where the client is not sent the chunked coding, or is not alone."""
        pipe = self._call.pipe()
        return None if pipe is None else Splice(around, self._request, pipe)

    @property
    def is_read_slowly(self) -> bool:
        """Whether the client lags so far behind that the upstream must wait."""
        return self._call.backlog > SLOW_READER_BYTES

    # -- what the engine says ----------------------------------------------------------

    def deliver(self, answer: Deliver) -> None:
        call, request, process = self._call, self._request, self._process
        request.payload = None
        if answer.refusal is not None:
            if self.opened_stream:
                process.count_spent(request, self.prompt_tokens, self.tokens)
            process.count_refused(request, answer.refusal.code)
            self._told_no(answer)
            return
        result = answer.result
        assert result is not None
        prompt = result.prompt_tokens or request.prompt_tokens
        at_ms = request.arrived_ms + answer.total_ms
        process.count_served(request, prompt, result.completion_tokens, at_ms)
        if self.opened_stream:
            call.close()
            return
        passed = result.payload
        headers = _headers(answer.replica_id)
        if isinstance(passed, Passed):
            call.answer(passed.status, passed.body, headers, passed.media)
            return
        used = answers.usage(prompt, result.completion_tokens)
        name = request.model
        if self.path == "/v1/embeddings":
            vectors = _vectors(passed)
            if vectors is None:
                self._fail(Problem("invalid_request", f"model {name} does not embed"))
                return
            call.answer(200, answers.embeddings(name, vectors, prompt, self._as_base64), headers)
            return
        chat = self.path == "/v1/chat/completions"
        said = (chat, request.request_id, name, self._created, passed)
        if self.stream:
            call.open(200, headers, SSE)
            call.write(answers.stream(*said, used if self._wants_usage else None))
            call.close()
        else:
            call.answer(200, answers.completion(*said, used), headers)

    def gone(self) -> None:
        """The client left: what came so far is what it used."""
        prompt = self.prompt_tokens if self.opened_stream else 0
        self._process.cancel(self._request, prompt, self.tokens)

    def overdue(self) -> None:
        self._fail(Problem("internal_error", "the request was lost; the log has the reason"))

    def _told_no(self, answer: Deliver) -> None:
        assert answer.refusal is not None
        result = answer.result
        passed = None if result is None else result.payload
        if isinstance(passed, Passed) and not self.opened_stream and 400 <= passed.status < 500:
            self._call.answer(passed.status, passed.body, _headers(answer.replica_id), passed.media)
            return
        self._fail(of_answer(answer, answer.refusal))

    def _fail(self, problem: Problem) -> None:
        if self.opened_stream:
            if not self.told_error:
                self._call.write(errors.event(problem, self._request.request_id))
            self._call.close()
        else:
            self._call.fail(problem)


def _headers(replica_id: str | None) -> Headers:
    if replica_id is None:
        return ()
    return ((b"x-halcyon-replica", replica_id.encode("latin-1", "replace")),)


def _vectors(output: object) -> list[list[float]] | None:
    if not isinstance(output, list) or not output:
        return None
    if isinstance(output[0], list):
        return output
    return [output] if isinstance(output[0], float | int) else None
