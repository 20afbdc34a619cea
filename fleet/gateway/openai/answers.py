"""Speaking OpenAI for replicas of the batch protocol, which answer with a plain output.

A text becomes a completion (streamed as one piece, because that is how it came), a list of
vectors becomes embeddings, as floats or as base64 of little-endian float32.
"""

import base64
import struct
from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode
Usage = dict[str, int]


def usage(prompt_tokens: int, completion_tokens: int) -> Usage:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def completion(
    chat: bool, request_id: str, model: str, created: int, output: object, used: Usage
) -> bytes:
    """A whole answer."""
    text = output if isinstance(output, str) else _encode(output).decode()
    choice: dict[str, Any] = {"index": 0, "finish_reason": "stop", "logprobs": None}
    if chat:
        choice["message"] = {"role": "assistant", "content": text}
    else:
        choice["text"] = text
    return _encode(
        {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{request_id}",
            "object": "chat.completion" if chat else "text_completion",
            "created": created,
            "model": model,
            "choices": [choice],
            "usage": used,
        }
    )


def stream(
    chat: bool,
    request_id: str,
    model: str,
    created: int,
    output: object,
    used: Usage | None,
) -> bytes:
    """The same as events: the text in one piece, the end, the usage if asked for, [DONE]."""
    text = output if isinstance(output, str) else _encode(output).decode()
    piece: dict[str, Any] = {"delta": {"role": "assistant", "content": text}}
    end: dict[str, Any] = {"delta": {}}
    if not chat:
        piece, end = {"text": text}, {"text": ""}
    chunks: list[tuple[list[dict[str, Any]], Usage | None]] = [
        ([{"index": 0, "finish_reason": None, **piece}], None),
        ([{"index": 0, "finish_reason": "stop", **end}], None),
    ]
    if used is not None:
        chunks.append(([], used))
    head = {
        "id": f"{'chatcmpl' if chat else 'cmpl'}-{request_id}",
        "object": "chat.completion.chunk" if chat else "text_completion",
        "created": created,
        "model": model,
    }
    lines = []
    for choices, spent in chunks:
        document: dict[str, Any] = {**head, "choices": choices}
        if spent is not None:
            document["usage"] = spent
        lines.append(b"data: %b\n\n" % _encode(document))
    return b"".join([*lines, b"data: [DONE]\n\n"])


def embeddings(
    model: str, vectors: list[list[float]], prompt_tokens: int, as_base64: bool
) -> bytes:
    """A list of vectors."""
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": _packed(vector) if as_base64 else vector,
        }
        for index, vector in enumerate(vectors)
    ]
    return _encode(
        {
            "object": "list",
            "model": model,
            "data": data,
            "usage": {"prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens},
        }
    )


def _packed(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
