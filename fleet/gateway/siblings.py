"""Questions between the processes of one gateway, over Unix sockets in a private directory.

The kernel spreads connections over the processes of a port, so whoever asks for a decision
record, the live state or the metrics reaches any one of them. That one asks its siblings.
A frame is four bytes of length and a MessagePack body. A sibling that is being restarted
refuses the connection at once; one that does not answer within `TIMEOUT_S` hangs. Both are
left out of what is merged.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

TIMEOUT_S = 3.0
MAX_FRAME = 64 * 1024 * 1024

Question = Mapping[str, Any]
Answerer = Callable[[Question], Any]

log = logging.getLogger("halcyon.gateway")


class Siblings:
    """Answers the questions of the others and asks them."""

    def __init__(self, directory: Path, process: int, processes: int, answer: Answerer) -> None:
        self._directory = directory
        self._process = process
        self._processes = processes
        self._answer = answer
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Begin to answer. A gateway of one process needs no socket."""
        if self._processes <= 1:
            return
        path = self._path(self._process)
        path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, path=str(path))

    async def stop(self) -> None:
        """Answer no more."""
        if self._server is not None:
            self._server.close()
            self._path(self._process).unlink(missing_ok=True)

    async def ask(self, process: int, question: Question) -> Any:
        """The answer of one process, this one included; None where it does not answer."""
        if process == self._process:
            return self._answer(question)
        if not 0 <= process < self._processes:
            return None
        writer = None
        try:
            async with asyncio.timeout(TIMEOUT_S):
                reader, writer = await asyncio.open_unix_connection(str(self._path(process)))
                await _send(writer, question)
                return await _receive(reader)
        except (OSError, TimeoutError, EOFError, msgspec.MsgspecError):
            return None
        finally:
            if writer is not None:
                writer.close()

    async def ask_all(self, question: Question) -> list[Any]:
        """The answers of all processes in order, those that do not answer left out."""
        answers = await asyncio.gather(
            *(self.ask(process, question) for process in range(self._processes))
        )
        return [answer for answer in answers if answer is not None]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                question = await _receive(reader)
            await _send(writer, self._answer(question))
        except (OSError, TimeoutError, EOFError, msgspec.MsgspecError) as error:
            log.debug("a sibling's question broke off: %s", error)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _path(self, process: int) -> Path:
        return self._directory / f"{process}.sock"


async def _send(writer: asyncio.StreamWriter, value: Any) -> None:
    body = msgspec.msgpack.encode(value)
    writer.write(len(body).to_bytes(4, "big") + body)
    await writer.drain()


async def _receive(reader: asyncio.StreamReader) -> Any:
    size = int.from_bytes(await reader.readexactly(4), "big")
    if size > MAX_FRAME:
        raise EOFError(f"a frame of {size} bytes")
    return msgspec.msgpack.decode(await reader.readexactly(size))
