"""Two plain ways to serve the same encoder, as yardsticks: one text at a time, and batches of
16 in the order of arrival, padded to their longest.

    python -m bench.live_encoders PORT

serves `POST /single/v1/infer` and `POST /padded/v1/infer` with the gateway's JSON, model and
tokenizer of `fleet/replica/runtimes/embedding.py`, one thread. Nothing is checked, counted or
refused and there is no hop in between, so what they lack in thought they save in work. A
padded batch leaves when it is full or its first member has waited for 25 ms.
"""

import asyncio
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import uvicorn

from fleet.replica.runtimes.base import RuntimeSettings
from fleet.replica.runtimes.embedding import EmbeddingRuntime

BATCH = 16
LINGER_S = 0.025

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_Waiting = tuple[str, "asyncio.Future[dict[str, Any]]"]


class Line:
    """Requests in the order of arrival, served by one thread in batches of up to `batch`."""

    def __init__(self, name: str, batch: int, runtime: EmbeddingRuntime) -> None:
        self._name = name
        self._batch = batch
        self._runtime = runtime
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue()
        self._thread = ThreadPoolExecutor(1)
        self._serving = asyncio.get_running_loop().create_task(self._serve())

    async def ask(self, text: str) -> dict[str, Any]:
        """The answer, once its turn has come."""
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((text, answer))
        return await answer

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            members = [await self._queue.get()]
            leaves_s = loop.time() + LINGER_S
            while len(members) < self._batch:
                try:
                    async with asyncio.timeout_at(leaves_s):
                        members.append(await self._queue.get())
                except TimeoutError:
                    break
            texts = [text for text, _ in members]
            vectors = await loop.run_in_executor(self._thread, self._embed, texts)
            for (_, answer), vector in zip(members, vectors, strict=True):
                if not answer.done():
                    size = {"size": len(members)}
                    answer.set_result(
                        {"output": vector, "version": "v1", "replicaId": self._name, "batch": size}
                    )

    def _embed(self, texts: Sequence[str]) -> list[list[float]]:
        found: list[list[float]] = self._runtime.embed(self._runtime.tokens(texts)).tolist()
        return found


class Encoders:
    """Plain ASGI in front of both lines."""

    def __init__(self) -> None:
        self._lines: dict[str, Line] = {}

    def _line(self, path: str) -> Line:
        if not self._lines:
            runtime = EmbeddingRuntime(RuntimeSettings(model="minilm", version="v1"))
            runtime.load_now()
            for name, batch in (("single", 1), ("padded", BATCH)):
                self._lines[f"/{name}/v1/infer"] = Line(name, batch, runtime)
        return self._lines[path]

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        message = await receive()
        body = message["body"]
        while message.get("more_body"):
            message = await receive()
            body += message["body"]
        answer = _encode(await self._line(scope["path"]).ask(_decode(body)["input"]))
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


if __name__ == "__main__":
    uvicorn.run(
        Encoders(),
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        lifespan="off",
        interface="asgi3",
        access_log=False,
        log_config=None,
    )
