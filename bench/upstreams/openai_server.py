"""A small real HTTP server that speaks the OpenAI protocol and fails as it is told.

    python -m bench.upstreams.openai_server --port 9000 --name a

`POST /_script` sets how it behaves from now on (the fields of `Script`), `GET /_stats` says
what it has seen. Without a script it answers at once, so that what a proxy in front of it
costs is all that is measured. One token is one word of the answer.
"""

import argparse
import asyncio
import base64
import json
import struct
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec
import uvicorn

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Script(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """How to behave. `next` counts the requests the mode holds for; None is for good."""

    mode: Literal["ok", "fail", "busy", "reject", "hang", "reset"] = "ok"
    status: int = 500
    delay_ms: float = 0.0
    token_delay_ms: float = 0.0
    tokens: int = 8
    capacity: int | None = None
    first_event_error: bool = False
    break_after_tokens: int | None = None
    error_after_tokens: int | None = None
    send_done: bool = True
    retry_after_s: float | None = None
    next: int | None = None
    waiting: int | None = None  # with a number: a page at /metrics, as vLLM's
    cache_ratio: float = 0.0


class Upstream:
    """One server: its script and what it has seen."""

    def __init__(self, name: str, model: str) -> None:
        self.name = name
        self.model = model
        self.script = Script()
        self.last: dict[str, Any] = {}  # the latest request as it came
        self.stats = {
            "requests": 0,
            "active": 0,
            "peak": 0,
            "completed": 0,
            "disconnected": 0,
            "tokens": 0,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path = scope["path"]
        if path == "/_script":
            self.script = msgspec.json.decode(await _body(receive), type=Script)
            await _json(send, 200, msgspec.to_builtins(self.script))
        elif path == "/_stats":
            await _json(send, 200, self.stats)
        elif path == "/health":
            await _json(send, 200, {"status": "ok"})
        elif path == "/v1/models":
            await _json(send, 200, {"object": "list", "data": [{"id": self.model}]})
        elif path == "/metrics" and self.script.waiting is not None:
            await _start(send, 200, b"text/plain; version=0.0.4")
            await send({"type": "http.response.body", "body": self._metrics()})
        elif path.startswith("/v1/"):
            await self._infer(path, scope, receive, send)
        else:
            await _json(send, 404, {"error": {"message": f"no such path {path}"}})

    async def _infer(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        body = self.last = json.loads(await _body(receive))
        stats = self.stats
        stats["requests"] += 1
        script = self._script_of_this_request()
        if script.capacity is not None and stats["active"] >= script.capacity:
            await _fail(send, 503, "busy", script)
            return
        stats["active"] += 1
        stats["peak"] = max(stats["peak"], stats["active"])
        work = asyncio.ensure_future(self._answer(path, body, script, send))
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
                stats["completed"] += 1
            else:
                stats["disconnected"] += 1
        finally:
            stats["active"] -= 1
            work.cancel()
            gone.cancel()

    def _metrics(self) -> bytes:
        labels = f'{{engine="0",model_name="{self.model}"}}'
        return (
            "# HELP vllm:num_requests_running Number of requests in model execution batches.\n"
            "# TYPE vllm:num_requests_running gauge\n"
            f"vllm:num_requests_running{labels} {float(self.stats['active'])}\n"
            f"vllm:num_requests_waiting{labels} {float(self.script.waiting or 0)}\n"
            f"vllm:kv_cache_usage_perc{labels} {self.script.cache_ratio}\n"
        ).encode()

    def _script_of_this_request(self) -> Script:
        script = self.script
        if script.next is None:
            return script
        if script.next <= 1:
            self.script = Script()
        else:
            script.next -= 1
        return script

    async def _answer(self, path: str, body: dict[str, Any], script: Script, send: Send) -> None:
        if script.mode == "hang":
            await asyncio.Event().wait()
        if script.delay_ms:
            await asyncio.sleep(script.delay_ms / 1000.0)
        if script.mode == "reset":
            raise ConnectionResetError("told to")
        if script.mode == "fail":
            await _fail(send, script.status, "told to fail", script)
        elif script.mode == "busy":
            await _fail(send, 503, "busy", script)
        elif script.mode == "reject":
            await _fail(send, 400, "bad request, says the model", script)
        elif path == "/v1/embeddings":
            await _json(send, 200, _embeddings(body, self.model))
        elif body.get("stream"):
            await self._stream(path, body, script, send)
        else:
            await asyncio.sleep(script.tokens * script.token_delay_ms / 1000.0)
            tokens = min(script.tokens, int(body.get("max_tokens") or script.tokens))
            self.stats["tokens"] += tokens
            await _json(send, 200, self._completion(path, body, tokens))

    def _completion(self, path: str, body: dict[str, Any], tokens: int) -> dict[str, Any]:
        text = " ".join([self.name] * tokens)
        chat = path.endswith("/chat/completions")
        choice: dict[str, Any] = {"index": 0, "finish_reason": "length"}
        if chat:
            choice["message"] = {"role": "assistant", "content": text}
        else:
            choice["text"] = text
        return {
            "id": "cmpl-1",
            "object": "chat.completion" if chat else "text_completion",
            "created": 1,
            "model": body.get("model", self.model),
            "choices": [choice],
            "usage": _usage(body, tokens),
        }

    async def _stream(self, path: str, body: dict[str, Any], script: Script, send: Send) -> None:
        await _start(send, 200, b"text/event-stream")
        if script.first_event_error:
            await _event(send, {"error": {"message": "overloaded", "code": 503}})
            await send({"type": "http.response.body", "body": b""})
            return
        chat = path.endswith("/chat/completions")
        tokens = min(script.tokens, int(body.get("max_tokens") or script.tokens))
        for number in range(tokens):
            if script.break_after_tokens == number:
                raise ConnectionResetError("told to")
            if script.error_after_tokens == number:
                await _event(send, {"error": {"message": "lost a worker", "code": 500}})
                await send({"type": "http.response.body", "body": b""})
                return
            if script.token_delay_ms:
                await asyncio.sleep(script.token_delay_ms / 1000.0)
            self.stats["tokens"] += 1
            word = f"{self.name} "
            choice: dict[str, Any] = {"index": 0, "finish_reason": None}
            choice.update({"delta": {"content": word}} if chat else {"text": word})
            await _event(send, _chunk(body, chat, [choice]))
        finish: dict[str, Any] = {"index": 0, "finish_reason": "length"}
        finish.update({"delta": {}} if chat else {"text": ""})
        await _event(send, _chunk(body, chat, [finish]))
        if (body.get("stream_options") or {}).get("include_usage"):
            await _event(send, _chunk(body, chat, []) | {"usage": _usage(body, tokens)})
        if script.send_done:
            await send(
                {"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": True}
            )
        await send({"type": "http.response.body", "body": b""})


def _chunk(body: dict[str, Any], chat: bool, choices: list[Any]) -> dict[str, Any]:
    return {
        "id": "cmpl-1",
        "object": "chat.completion.chunk" if chat else "text_completion",
        "created": 1,
        "model": body.get("model"),
        "choices": choices,
    }


def _usage(body: dict[str, Any], tokens: int) -> dict[str, int]:
    said = body.get("prompt") or body.get("messages") or ""
    prompt = max(1, len(json.dumps(said)) // 4)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": tokens,
        "total_tokens": prompt + tokens,
    }


def _embeddings(body: dict[str, Any], model: str) -> dict[str, Any]:
    texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
    vector: list[float] | str = [1.0, 0.0]
    if body.get("encoding_format") == "base64":
        vector = base64.b64encode(struct.pack("<2f", 1.0, 0.0)).decode()
    return {
        "object": "list",
        "model": body.get("model", model),
        "data": [
            {"object": "embedding", "index": i, "embedding": vector} for i, _ in enumerate(texts)
        ],
        "usage": {"prompt_tokens": len(texts), "total_tokens": len(texts)},
    }


async def _body(receive: Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b""
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _start(send: Send, status: int, kind: bytes, *more: tuple[bytes, bytes]) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [(b"content-type", kind), *more],
        }
    )


async def _event(send: Send, data: dict[str, Any]) -> None:
    line = b"data: " + msgspec.json.encode(data) + b"\n\n"
    await send({"type": "http.response.body", "body": line, "more_body": True})


async def _fail(send: Send, status: int, message: str, script: Script) -> None:
    more = []
    if script.retry_after_s is not None:
        more.append((b"retry-after", str(script.retry_after_s).encode()))
    payload = {"error": {"message": message, "type": "server_error", "code": status}}
    await _json(send, status, payload, *more)


async def _json(send: Send, status: int, data: object, *more: tuple[bytes, bytes]) -> None:
    encoded = msgspec.json.encode(data)
    await _start(
        send, status, b"application/json", (b"content-length", str(len(encoded)).encode()), *more
    )
    await send({"type": "http.response.body", "body": encoded})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--name", default="upstream", help="the word its answers are made of")
    parser.add_argument("--model", default="tiny", help="the model it says it serves")
    args = parser.parse_args()
    uvicorn.run(
        Upstream(args.name, args.model),
        host="127.0.0.1",
        port=args.port,
        log_level="error",
        access_log=False,
    )


if __name__ == "__main__":
    main()
