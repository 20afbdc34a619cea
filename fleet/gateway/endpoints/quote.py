"""`POST /v1/quote`: would this be served in time now, how surely, and if not, what would do."""

import dataclasses
import math
from typing import Any

import msgspec

from engine.errors import Refusal
from engine.types import Request
from fleet.gateway.auth import authenticate
from fleet.gateway.call import Call
from fleet.gateway.endpoints.infer import UNREADABLE, chosen_version
from fleet.gateway.errors import Problem, camel, of_refusal
from fleet.gateway.process import Process
from fleet.gateway.schema import QuoteRequest, measure, priority_of, reading

_decode = msgspec.json.Decoder(QuoteRequest).decode


class QuoteEndpoint:
    """Answers from the code that admits; takes nothing."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def begin(self, call: Call) -> None:
        """Judge the request. Raises `Problem`."""
        process = self._process
        entry = authenticate(call, process.require_configuration())
        try:
            asked = _decode(call.body)
        except UNREADABLE as error:
            raise reading(error) from None
        if asked.input is None and asked.prompt_tokens is None:
            raise Problem(
                "invalid_request",
                "input: give the input, or its size as promptTokens",
                details={"field": "input"},
            )
        tokens, items = (1, 1) if asked.input is None else measure(asked.input)
        now_ms = process.clock.now_ms()
        quote = process.quote(
            Request(
                request_id=call.request_id,
                tenant=entry.tenant,
                model=asked.model,
                prompt_tokens=asked.prompt_tokens or tokens,
                deadline_ms=now_ms + asked.deadline_ms,
                arrived_ms=now_ms,
                max_output_tokens=asked.max_output_tokens,
                items=items,
                lane=asked.lane,
                priority=priority_of(asked.priority, entry.priority),
                request_type=asked.request_type,
                session_key=asked.session_key,
                version=chosen_version(call, entry),
            )
        )
        call.answer(200, msgspec.json.encode({"requestId": call.request_id, **wire(quote)}))


def wire(quote: Any) -> dict[str, object]:
    """A quote as JSON: camelCase, refusals as the envelope shows them."""
    return {
        camel(each.name): _value(getattr(quote, each.name)) for each in dataclasses.fields(quote)
    }


def _value(value: object) -> object:
    if isinstance(value, Refusal):
        problem = of_refusal(value)
        return {
            "code": problem.code,
            "message": problem.message,
            "retryAfterMs": None
            if problem.retry_after_ms is None
            else math.ceil(problem.retry_after_ms),
            "details": problem.details,
        }
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
