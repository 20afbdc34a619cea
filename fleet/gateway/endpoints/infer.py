"""`POST /v1/infer`: from bytes to a request of the engine, and from its answer to bytes.

Everything here happens once per request, so it is plain: decode, whose key, how big, submit.
The answer comes back through `Inference.deliver` when the engine has one; a client that
leaves earlier ends in `Inference.gone`, which cancels.
"""

import msgspec

from engine.actions import Deliver
from engine.errors import Refusal, RefusalCode
from engine.outcomes import Outcome
from engine.types import Request
from fleet.gateway.auth import authenticate
from fleet.gateway.call import Call
from fleet.gateway.errors import Problem, of_refusal
from fleet.gateway.process import Process
from fleet.gateway.schema import (
    Batch,
    InferRequest,
    InferResponse,
    Timings,
    Usage,
    measure,
    priority_of,
    reading,
)
from fleet.gateway.snapshot import KeyEntry

_decode = msgspec.json.Decoder(InferRequest).decode
_encode = msgspec.json.Encoder().encode
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
PASSED_ON = frozenset({400, 404, 409, 413, 415, 422})  # a replica's verdict on the request


class InferEndpoint:
    """The endpoint; one for the whole process."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def begin(self, call: Call) -> None:
        """Read the request and hand it to the engine. Raises `Problem`."""
        process = self._process
        entry = authenticate(call, process.require_configuration())
        try:
            asked = _decode(call.body)
        except UNREADABLE as error:
            raise reading(error) from None
        call.body = b""
        tokens, items = measure(asked.input)
        now_ms = process.clock.now_ms()
        request = Request(  # by position, see there
            call.request_id,
            entry.tenant,
            asked.model,
            tokens,
            now_ms + asked.deadline_ms,
            now_ms,
            asked.max_output_tokens,
            items,
            asked.lane,
            priority_of(asked.priority, entry.priority),
            asked.request_type,
            asked.session_key,
            None,  # prefix_key
            chosen_version(call, entry),
        )
        inference = Inference(call, request, asked.input, process)
        request.payload = inference
        refusal = process.submit(request)
        if refusal is None:
            call.owner = inference
        else:
            call.fail(of_refusal(refusal))


class Inference:
    """One request under way: the engine's `payload` and the call's owner."""

    __slots__ = ("_call", "_process", "_request", "input")

    def __init__(self, call: Call, request: Request, value: object, process: Process) -> None:
        self.input = value
        self._call = call
        self._request = request
        self._process = process

    def deliver(self, answer: Deliver) -> None:
        """The engine's one answer."""
        call, request, result = self._call, self._request, answer.result
        request.payload = None  # the decision record outlives the answer, the input need not
        if answer.refusal is not None:
            self._process.count_refused(request, answer.refusal.code)
            call.fail(of_answer(answer, answer.refusal))
            return
        assert result is not None
        prompt = result.prompt_tokens or request.prompt_tokens
        completion = result.completion_tokens
        at_ms = request.arrived_ms + answer.total_ms
        self._process.count_served(request, prompt, completion, at_ms)
        call.answer(
            200,
            _encode(
                InferResponse(
                    request.request_id,
                    request.model,
                    answer.version,
                    result.payload,
                    answer.replica_id,
                    answer.hedged,
                    Usage(prompt, completion),
                    Timings(
                        int(answer.queued_ms * 1000.0 + 0.5) / 1000.0,  # as `round`, quicker
                        round(answer.execution_ms, 3),  # a replica may say it is not a number
                        int(answer.total_ms * 1000.0 + 0.5) / 1000.0,
                    ),
                    Batch(answer.batch_size, answer.reason),
                )
            ),
        )

    def gone(self) -> None:
        """The client left."""
        self._process.cancel(self._request)

    def overdue(self) -> None:
        """The engine forgot it: a bug of ours."""
        self._call.fail(Problem("internal_error", "the request was lost; the log has the reason"))


def chosen_version(call: Call, entry: KeyEntry) -> str | None:
    """The tester's override, for keys that may choose. Raises `Problem` for others."""
    sent = call.headers.get(b"x-halcyon-version")
    if sent is None:
        return None
    if not entry.may_choose_version:
        raise Problem(
            "forbidden",
            "x-halcyon-version: this key may not choose a version",
            details={"field": "x-halcyon-version"},
        )
    return sent.decode("latin-1").strip()[:128]


def of_answer(answer: Deliver, refusal: Refusal) -> Problem:
    """A delivered refusal. What a replica says of the request itself keeps its status."""
    problem = of_refusal(refusal)
    result = answer.result
    if (
        refusal.code is RefusalCode.INVALID_REQUEST
        and result is not None
        and result.outcome is Outcome.CLIENT_ERROR
    ):
        if result.status in PASSED_ON:
            problem.status = result.status
        elif result.status is not None:
            problem.code = str(RefusalCode.UPSTREAM_FAILURE)
            problem.status = 502
    return problem
