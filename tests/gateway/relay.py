"""A wire between a process and its server that a test can cut, freeze and mend.

`cut` refuses new connections and resets the old ones, as a dead server does. `freeze`
accepts and stays silent, as a stopped process or a lost route does.
"""

import asyncio
import contextlib
from typing import Any


class Relay:
    """Listens on 127.0.0.1 and passes bytes to a TCP port or a Unix socket."""

    def __init__(self, *, host: str | None = None, port: int = 0, path: str | None = None) -> None:
        self._host, self._target_port, self._path = host, port, path
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.port = 0

    async def __aenter__(self) -> "Relay":
        await self.mend()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cut()

    async def mend(self) -> None:
        """Let everything through again."""
        self._flowing.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Refuse and reset."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def freeze(self) -> None:
        """Accept, and pass nothing on."""
        self._flowing.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        onward: asyncio.StreamWriter | None = None
        try:
            await self._flowing.wait()
            if self._path is not None:
                back, onward = await asyncio.open_unix_connection(self._path)
            else:
                back, onward = await asyncio.open_connection(self._host, self._target_port)
            self._writers.add(onward)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass(reader, onward))
                both.create_task(self._pass(back, writer))
        except (OSError, asyncio.CancelledError, ExceptionGroup):
            pass
        finally:
            self._tasks.discard(task)
            for each in (writer, onward):
                if each is not None:
                    self._writers.discard(each)
                    each.close()
                    with contextlib.suppress(OSError):
                        await each.wait_closed()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._flowing.wait()
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
