"""A replica that costs next to nothing: it answers every item with the same word.

What is left of a request's CPU when replicas cost nothing is the gateway's own. Plain
asyncio protocol over uvloop and httptools: `python -m bench.overhead_replica PORT...`.
"""

import asyncio
import sys

import httptools
import msgspec
import uvloop

READY = b'{"ready":true}'
_decode = msgspec.msgpack.Decoder().decode
_encode = msgspec.msgpack.Encoder().encode


class ReplicaProtocol(asyncio.Protocol):
    """`POST /execute` in MessagePack; anything else is a health probe."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.parser = httptools.HttpRequestParser(self)
        self.body = b""

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_message_begin(self) -> None:
        self.body = b""

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        if self.parser.get_method() != b"POST":
            self._answer(b"application/json", READY)
            return
        asked = _decode(self.body)
        results = [
            {
                "requestId": item["requestId"],
                "output": "ok",
                "promptTokens": 16,
                "completionTokens": 1,
            }
            for item in asked["items"]
        ]
        answer = {"batchId": asked["batchId"], "executionMs": 0.1, "results": results}
        self._answer(b"application/msgpack", _encode(answer))

    def _answer(self, media: bytes, body: bytes) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n"
        self.transport.write(head % (media, len(body)) + body)  # type: ignore[attr-defined]


async def serve(ports: list[int]) -> None:
    """Serve on all `ports` of 127.0.0.1 until killed."""
    loop = asyncio.get_running_loop()
    for port in ports:
        await loop.create_server(ReplicaProtocol, "127.0.0.1", port, backlog=512)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve([int(port) for port in sys.argv[1:]]))
