"""The OpenAI-compatible part of the data plane's contract.

Of a body only what scheduling reads is described: whatever else OpenAI or the server behind
knows may be sent too and passes through.
"""

from typing import Any

from engine.types import Lane
from fleet.gateway.openai.schema import ChatBody, CompletionBody, EmbeddingBody
from fleet.gateway.openapi_parts import (
    IDEMPOTENCY_KEY,
    ONLY_SOME,
    VERSION,
    anything,
    choice_header,
    in_path,
    number_header,
    operation,
    text_header,
)
from fleet.gateway.schema import MAX_DEADLINE_MS, MIN_DEADLINE_MS

BODIES = (ChatBody, CompletionBody, EmbeddingBody)
_ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {"type": "object", "required": ["message", "type", "code", "request_id"]}
    },
}


def paths(
    chat: dict[str, Any], completion: dict[str, Any], embedding: dict[str, Any]
) -> dict[str, Any]:
    """The paths, given the references to the schemas of `BODIES`."""
    return {
        "/v1/chat/completions": {
            "post": _generation("chatCompletions", "The next message of a conversation.", chat)
        },
        "/v1/completions": {"post": _generation("completions", "What follows a text.", completion)},
        "/v1/embeddings": {"post": _run("embeddings", "The vectors of texts.", embedding)},
        "/v1/models": {"get": operation("models", "The models.", answer=anything(), error=_ERROR)},
        "/v1/models/{model}": {
            "get": operation(
                "model",
                "One model.",
                answer=anything(),
                parameters=[in_path("model")],
                error=_ERROR,
            )
        },
    }


def _generation(name: str, summary: str, body: dict[str, Any]) -> dict[str, Any]:
    first = number_header(
        "X-Halcyon-TTFT-Ms", "Until the first token.", MIN_DEADLINE_MS, MAX_DEADLINE_MS
    )
    described = _run(name, summary, body, first)
    events = {"text/event-stream": {"schema": {"type": "string"}}}
    described["responses"]["200"]["content"] |= events  # where `stream` is true
    return described


def _run(name: str, summary: str, body: dict[str, Any], *more: dict[str, Any]) -> dict[str, Any]:
    return operation(
        name,
        summary,
        body=body,
        answer=anything(),
        parameters=[
            number_header(
                "X-Halcyon-Deadline-Ms", "For the whole answer.", MIN_DEADLINE_MS, MAX_DEADLINE_MS
            ),
            *more,
            text_header("X-Halcyon-Session", "Draws requests of a session to one replica.", 256),
            choice_header(
                "X-Halcyon-Lane", "Bulk goes where interactive work leaves room.", list(Lane)
            ),
            VERSION,
            IDEMPOTENCY_KEY,
        ],
        error=_ERROR,
        also=ONLY_SOME,
    )
