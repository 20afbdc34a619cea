"""`/v1/chat/completions`, `/v1/completions`, `/v1/embeddings`: from a call to the engine.

Deadlines come in headers, because OpenAI's bodies have no place for them:
`x-halcyon-deadline-ms` for the whole answer (600 s at most, 120 s if not said),
`x-halcyon-ttft-ms` for the first token of a stream. A session is named by
`x-halcyon-session` or by the body's `user`; without one the beginning of the prompt draws
requests that share it to the same replica, whose cache then knows it already.
"""

import time
from collections.abc import Callable

from xxhash import xxh3_64_hexdigest

from engine.types import Lane, Request
from fleet.gateway.auth import authenticate
from fleet.gateway.call import Call
from fleet.gateway.endpoints.infer import chosen_version
from fleet.gateway.errors import Problem, of_refusal
from fleet.gateway.openai.generation import Generation
from fleet.gateway.openai.schema import (
    PREFIX_BYTES,
    Asked,
    read_chat,
    read_completion,
    read_embedding,
    texts_of,
    tokens_of,
    with_usage,
)
from fleet.gateway.process import Process
from fleet.gateway.schema import MAX_DEADLINE_MS, MIN_DEADLINE_MS, priority_of
from fleet.gateway.snapshot import KeyEntry

DEFAULT_DEADLINE_MS = 120_000.0


class OpenAIEndpoints:
    """The endpoints; one object for the whole process."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def chat(self, call: Call) -> None:
        """`POST /v1/chat/completions`. Raises `Problem`."""
        self._generate(call, read_chat)

    def completions(self, call: Call) -> None:
        """`POST /v1/completions`. Raises `Problem`."""
        self._generate(call, read_completion)

    def embeddings(self, call: Call) -> None:
        """`POST /v1/embeddings`. Raises `Problem`."""
        process = self._process
        entry = authenticate(call, process.require_configuration())
        body, call.body = call.body, b""
        asked = read_embedding(body)
        texts = texts_of(asked)
        request = self._request(
            call,
            entry,
            model=asked.model,
            prompt_tokens=max(sum(tokens_of(text) for text in texts), 1),
            output_tokens=0,
            user=asked.user,
            prefix=None,
        )
        request.items = len(texts)
        generation = Generation(
            call,
            request,
            process,
            body=body,
            value=texts if len(texts) > 1 else texts[0],
            as_base64=asked.encoding_format == "base64",
        )
        self._submit(call, request, generation)

    def _generate(self, call: Call, read: Callable[[bytes], Asked]) -> None:
        process = self._process
        entry = authenticate(call, process.require_configuration())
        body, call.body = call.body, b""
        asked = read(body)
        request = self._request(
            call,
            entry,
            model=asked.model,
            prompt_tokens=asked.prompt_tokens,
            output_tokens=asked.output_tokens,
            user=asked.user,
            prefix=asked.prompt[:PREFIX_BYTES],
        )
        hide_usage = asked.stream and not asked.says_usage
        generation = Generation(
            call,
            request,
            process,
            body=with_usage(body) if hide_usage else body,
            value=asked.prompt.decode("utf-8", "replace"),
            stream=asked.stream,
            wants_usage=asked.wants_usage,
            hide_usage=hide_usage,
            created=int(time.time()),
        )
        self._submit(call, request, generation)

    def _request(
        self,
        call: Call,
        entry: KeyEntry,
        *,
        model: str,
        prompt_tokens: int,
        output_tokens: int,
        user: str | None,
        prefix: bytes | None,
    ) -> Request:
        headers = call.headers
        now_ms = self._process.clock.now_ms()
        deadline_ms = _milliseconds(headers.get(b"x-halcyon-deadline-ms"), b"x-halcyon-deadline-ms")
        first_ms = _milliseconds(headers.get(b"x-halcyon-ttft-ms"), b"x-halcyon-ttft-ms")
        session = headers.get(b"x-halcyon-session")
        return Request(
            request_id=call.request_id,
            tenant=entry.tenant,
            model=model,
            prompt_tokens=prompt_tokens,
            max_output_tokens=output_tokens,
            deadline_ms=now_ms + (DEFAULT_DEADLINE_MS if deadline_ms is None else deadline_ms),
            first_token_deadline_ms=None if first_ms is None else now_ms + first_ms,
            arrived_ms=now_ms,
            lane=_lane(headers.get(b"x-halcyon-lane")),
            priority=priority_of(None, entry.priority),
            session_key=session.decode("latin-1")[:256] if session else (user or None),
            prefix_key=None if prefix is None else xxh3_64_hexdigest(prefix),
            version=chosen_version(call, entry),
        )

    def _submit(self, call: Call, request: Request, generation: Generation) -> None:
        request.payload = generation
        refusal = self._process.submit(request)
        if refusal is None:
            call.owner = generation
        else:
            call.fail(of_refusal(refusal))


def _milliseconds(sent: bytes | None, name: bytes) -> float | None:
    if sent is None:
        return None
    try:
        value = float(sent)
    except ValueError:
        value = -1.0
    if not MIN_DEADLINE_MS <= value <= MAX_DEADLINE_MS:
        field = name.decode()
        raise Problem(
            "invalid_request",
            f"{field}: must be a number of milliseconds from {MIN_DEADLINE_MS:g} "
            f"to {MAX_DEADLINE_MS:g}",
            details={"field": field},
        )
    return value


def _lane(sent: bytes | None) -> Lane:
    if sent is None:
        return Lane.INTERACTIVE
    try:
        return Lane(sent.decode("latin-1"))
    except ValueError:
        raise Problem(
            "invalid_request",
            "x-halcyon-lane: must be interactive or bulk",
            details={"field": "x-halcyon-lane"},
        ) from None
