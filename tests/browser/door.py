"""A second address of a web process that a test can shut and open: what a lost network does to
a browser, without ending the process."""

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tests.gateway.relay import Relay


class Door:
    """Passes bytes to `url` while it is open; resets and refuses while it is shut."""

    def __init__(self, url: str) -> None:
        where = urlsplit(url)
        self._relay = Relay(host=where.hostname, port=where.port or 80)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="door")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._relay.port}"

    def open(self) -> None:
        self._run(self._relay.mend())

    def shut(self) -> None:
        self._run(self._relay.cut())

    def __enter__(self) -> Self:
        self._thread.start()
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[object, object, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)
