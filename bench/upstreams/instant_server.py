"""An OpenAI server that costs next to nothing, so that what stands in front of it is measured.

    python -m bench.upstreams.instant_server --port 9000

A completion is one ready-made answer, sent as soon as the request is whole. A stream sends
`max_tokens` events, one every `GAP_MS`, and every event carries the instant it was sent (the
machine's monotonic clock in nanoseconds), so that a reader can tell how long it travelled.

Streams beat each in its own time, as those of many servers together do, until
`POST /pace/step`; from then on all beat together, as the streams of one server with
continuous batching do, which computes a token of each running sequence in one step.
`POST /pace/free` goes back.
"""

import argparse
import asyncio
import json
import random
import re
import time
from typing import cast

import uvloop

GAP_MS = 20.0
_ANSWER = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "tiny",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "a short answer"},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15},
    }
).encode()
_MODELS = b'{"object":"list","data":[{"id":"tiny","object":"model","owned_by":"bench"}]}'
_EVENT = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"tiny",'
    b'"choices":[{"index":0,"delta":{"content":"%d "},"finish_reason":null}]}\n\n'
)
_END = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"tiny",'
    b'"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"transfer-encoding: *chunked", re.IGNORECASE)
_STREAM = re.compile(rb'"stream": *true')
_TOKENS = re.compile(rb'"max_(?:completion_)?tokens": *(\d+)')  # some routers rename it


def _whole(status: bytes, body: bytes) -> bytes:
    head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % (status, len(body)) + body


_COMPLETION = _whole(b"200 OK", _ANSWER)
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


class Pace:
    """When the next event of a stream is due."""

    def __init__(self) -> None:
        self.in_step = False
        self._step = asyncio.Event()  # set: the step is over
        self._step.set()

    async def start(self) -> None:
        """Wait for a stream's first event."""
        if self.in_step:
            await self.gap()
        else:
            await asyncio.sleep(random.random() * GAP_MS / 1000.0)

    async def gap(self) -> None:
        """Wait from one event to the next; in step, until the step under way is over."""
        if not self.in_step:
            await asyncio.sleep(GAP_MS / 1000.0)
            return
        if self._step.is_set():
            self._step = asyncio.Event()
            asyncio.get_running_loop().call_later(GAP_MS / 1000.0, self._step.set)
        await self._step.wait()


class Connection(asyncio.Protocol):
    """One keep-alive connection; requests come one after another."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._data = b""
        self._stream: asyncio.Task[None] | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._stream is not None:
            self._stream.cancel()

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            head, rest = self._data[:end], self._data[end + 4 :]
            length = _LENGTH.search(head)
            if length is not None:
                size = int(length[1])
            elif _CHUNKED.search(head):
                last = rest.find(b"0\r\n\r\n")
                size = last + 5 if last >= 0 else len(rest) + 1
            else:
                size = 0
            if len(rest) < size:
                return
            self._data = rest[size:]
            self._answer(head, rest[:size])

    def _answer(self, head: bytes, body: bytes) -> None:
        if head.startswith(b"POST "):
            if _STREAM.search(body):
                asked = _TOKENS.search(body)
                tokens = int(asked[1]) if asked else 16
                self._stream = asyncio.get_running_loop().create_task(self._tell(tokens))
            elif head.startswith(b"POST /pace/"):
                self._pace.in_step = head.startswith(b"POST /pace/step ")
                self._transport.write(_whole(b"200 OK", b"{}"))
            else:
                self._transport.write(_COMPLETION)
        elif head.startswith((b"GET /health ", b"GET /v1/models ")):
            self._transport.write(_whole(b"200 OK", _MODELS))
        else:
            self._transport.write(_whole(b"404 Not Found", b"{}"))

    async def _tell(self, tokens: int) -> None:
        write = self._transport.write
        write(_STREAM_HEAD)
        await self._pace.start()
        for _ in range(tokens):
            event = _EVENT % time.monotonic_ns()
            write(b"%x\r\n%b\r\n" % (len(event), event))
            await self._pace.gap()
        write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(_END), _END))


async def _serve(port: int) -> None:
    loop = asyncio.get_running_loop()
    pace = Pace()
    server = await loop.create_server(lambda: Connection(pace), "127.0.0.1", port, backlog=1024)
    async with server:
        await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, required=True)
    uvloop.run(_serve(parser.parse_args().port))


if __name__ == "__main__":
    main()
