"""As much of an OpenAI request as scheduling needs; the body itself goes on untouched.

Unknown parameters are not ours to judge: they pass through, and the server behind decides.
What must be known is the model, how big the prompt is, how much may come out, whether it
streams, and who asks for usage. Prompts stay raw bytes: their length is their estimate.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from fleet.gateway.errors import Problem
from fleet.gateway.schema import DEFAULT_OUTPUT_TOKENS, reading

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
MAX_OUTPUT_TOKENS = 1_000_000
PREFIX_BYTES = 512
Model = Annotated[str, Meta(min_length=1, max_length=256)]
Tokens = Annotated[int, Meta(ge=0, le=MAX_OUTPUT_TOKENS)]
Messages = Annotated[
    msgspec.Raw,
    Meta(extra_json_schema={"type": "array", "minItems": 1, "items": {"type": "object"}}),
]
Prompt = Annotated[msgspec.Raw, Meta(extra_json_schema={"type": ["string", "array"]})]


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class ChatBody(msgspec.Struct):
    """`POST /v1/chat/completions`."""

    model: Model
    messages: Messages
    stream: bool | None = None
    max_tokens: Tokens | None = None
    max_completion_tokens: Tokens | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    user: str | None = None
    stream_options: StreamOptions | None = None


class CompletionBody(msgspec.Struct):
    """`POST /v1/completions`."""

    model: Model
    prompt: Prompt
    stream: bool | None = None
    max_tokens: Tokens | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    user: str | None = None
    stream_options: StreamOptions | None = None


class EmbeddingBody(msgspec.Struct):
    """`POST /v1/embeddings`."""

    model: Model
    input: Any
    encoding_format: str | None = None
    dimensions: Annotated[int, Meta(ge=1, le=65_536)] | None = None
    user: str | None = None


class Asked(msgspec.Struct, gc=False):
    """What all three have in common, for the scheduler."""

    model: str
    prompt: bytes
    prompt_tokens: int
    output_tokens: int
    stream: bool
    wants_usage: bool
    says_usage: bool  # the client sent stream_options itself
    user: str | None


_chat = msgspec.json.Decoder(ChatBody).decode
_completion = msgspec.json.Decoder(CompletionBody).decode
_embedding = msgspec.json.Decoder(EmbeddingBody).decode


def read_chat(body: bytes) -> Asked:
    """Raises `Problem` naming the field."""
    try:
        asked = _chat(body)
    except UNREADABLE as error:
        raise reading(error) from None
    messages = bytes(asked.messages)
    if not messages.startswith(b"[") or messages[1:].lstrip().startswith(b"]"):
        raise Problem(
            "invalid_request",
            "messages: must be a non-empty array",
            details={"field": "messages"},
        )
    limit = asked.max_completion_tokens
    return _asked(asked, messages, asked.max_tokens if limit is None else limit)


def read_completion(body: bytes) -> Asked:
    """Raises `Problem` naming the field."""
    try:
        asked = _completion(body)
    except UNREADABLE as error:
        raise reading(error) from None
    prompt = bytes(asked.prompt)
    if prompt[:1] not in (b'"', b"["):
        raise Problem(
            "invalid_request",
            "prompt: must be a string or an array",
            details={"field": "prompt"},
        )
    return _asked(asked, prompt, asked.max_tokens)


def read_embedding(body: bytes) -> EmbeddingBody:
    """Raises `Problem` naming the field."""
    try:
        asked = _embedding(body)
    except UNREADABLE as error:
        raise reading(error) from None
    if asked.encoding_format not in (None, "float", "base64"):
        raise Problem(
            "invalid_request",
            f"encoding_format: must be float or base64, not {asked.encoding_format!r}",
            details={"field": "encoding_format"},
        )
    return asked


def _asked(asked: ChatBody | CompletionBody, prompt: bytes, limit: int | None) -> Asked:
    options = asked.stream_options
    output = DEFAULT_OUTPUT_TOKENS if limit is None else limit
    return Asked(
        model=asked.model,
        prompt=prompt,
        prompt_tokens=max((len(prompt) + 3) // 4, 1),
        output_tokens=output * (asked.n or 1),
        stream=bool(asked.stream),
        wants_usage=options is not None and bool(options.include_usage),
        says_usage=options is not None,
        user=asked.user,
    )


def texts_of(body: EmbeddingBody) -> list[Any]:
    """The inputs of an embedding request, one per answer. Raises `Problem`."""
    value = body.input
    if isinstance(value, str):
        texts: list[Any] = [value]
    elif isinstance(value, list) and value and all(isinstance(each, int) for each in value):
        texts = [value]  # one text as token numbers
    elif isinstance(value, list) and value:
        texts = value
    else:
        texts = []
    good = all(
        (isinstance(text, str) and text)
        or (isinstance(text, list) and text and all(isinstance(n, int) for n in text))
        for text in texts
    )
    if not texts or not good:
        raise Problem(
            "invalid_request",
            "input: must be a non-empty text, a list of them, or lists of token numbers",
            details={"field": "input"},
        )
    return texts


def tokens_of(text: Any) -> int:
    """Estimated tokens of one embedding input."""
    if isinstance(text, str):
        size = len(text) if text.isascii() else len(text.encode())
        return (size + 3) // 4
    return len(text)


def with_usage(body: bytes) -> bytes:
    """The body of a stream with `include_usage` asked for: billing needs it."""
    end = body.rindex(b"}")
    return body[:end] + b',"stream_options":{"include_usage":true}}'


def with_model(body: bytes, model: str) -> bytes:
    """The body with the upstream's own name for the model."""
    document = msgspec.json.decode(body)
    document["model"] = model
    return msgspec.json.encode(document)
