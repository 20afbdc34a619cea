"""Uvicorn around one gateway process: the socket, the signals, and a graceful end.

SIGTERM: new work is refused with `Retry-After` while what is held is answered; then the
listener closes, counts are written and the process exits 0. A second signal does not wait.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from types import FrameType
from typing import Any

import uvicorn

from fleet.gateway.config import GatewayConfig
from fleet.gateway.gateway import Gateway
from fleet.gateway.wire import WireProtocol
from fleet.gateway.wire_call import HotRoutes

BACKLOG = 2048
SWEEP_S = 5.0
SWITCH_INTERVAL_S = 0.0005  # a thread that digests a snapshot gives way this soon

log = logging.getLogger("halcyon.gateway")


class GatewayServer(uvicorn.Server):
    """Serves one process until it is told to stop."""

    def __init__(
        self, config: GatewayConfig, number: int, listening: socket.socket, lifeline: int | None
    ) -> None:
        self._gateway_config = config
        self._number = number
        self._listening = listening
        self._lifeline = lifeline
        self._gateway: Gateway | None = None
        self._hot: HotRoutes | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: asyncio.Task[None] | None = None
        self._signals = 0
        self._told_to_exit = asyncio.Event()
        super().__init__(
            uvicorn.Config(
                self._app,
                interface="asgi3",
                proxy_headers=False,
                loop="uvloop",
                http=self._protocol,  # type: ignore[arg-type]
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=int(config.idle_s),
                timeout_graceful_shutdown=5,
                backlog=BACKLOG,
            )
        )

    async def _app(self, scope: object, receive: object, send: object) -> None:
        assert self._gateway is not None
        await self._gateway.app(scope, receive, send)  # type: ignore[arg-type]

    def _protocol(self, **arguments: Any) -> WireProtocol:
        assert self._hot is not None
        return WireProtocol(**arguments, hot=self._hot)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the gateway, serve, stop the gateway."""
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._loop = asyncio.get_running_loop()
        gateway = self._gateway = Gateway(self._gateway_config, self._number)
        self._hot = HotRoutes(
            gateway.table.hot(),
            gateway.process.identity.next_request_id,
            gateway.process.observe,
        )
        if self._lifeline is not None:
            self._loop.add_reader(self._lifeline, self._orphaned)
        sweeping = asyncio.create_task(self._sweep())
        with self.capture_signals():
            await gateway.start()
            gateway.garbage.start()
            try:
                await self._serve([self._listening])
            finally:
                sweeping.cancel()
                await gateway.stop()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """First signal: drain. Second: leave at once."""
        self._signals += 1
        if self._signals == 1 and self._loop is not None and self.started:
            self._loop.call_soon_threadsafe(self._begin_to_end)
        else:
            self.should_exit = True
            self.force_exit = self._signals > 1
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._told_to_exit.set)

    async def main_loop(self) -> None:
        """Uvicorn's own asks ten times a second whether it should exit; this one is told."""
        while not await self.on_tick(0):
            await self._told_to_exit.wait()

    def _begin_to_end(self) -> None:
        if self._ending is None:
            self._ending = asyncio.create_task(self._end())

    async def _end(self) -> None:
        """Refuse new work, wait for what is held, then let uvicorn shut down."""
        assert self._gateway is not None
        process, config = self._gateway.process, self._gateway_config
        process.drain()
        began = time.monotonic()
        while time.monotonic() - began < config.drain_s:
            held = process.driver.waiting
            if not held and time.monotonic() - began >= config.grace_s:
                break
            await asyncio.sleep(0.02)
        if process.driver.waiting:
            log.warning("%d requests are left unanswered", len(process.driver.waiting))
        self.should_exit = True
        self._told_to_exit.set()

    def _orphaned(self) -> None:
        """The supervisor is gone: end too."""
        assert self._loop is not None
        assert self._lifeline is not None
        self._loop.remove_reader(self._lifeline)
        self._begin_to_end()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            now_s, idle_s = time.monotonic(), self._gateway_config.idle_s
            for connection in list(self.server_state.connections):
                if isinstance(connection, WireProtocol):
                    since = connection.idle_since()
                    if since is not None and now_s - since > idle_s:
                        connection.transport.close()


def listening_socket(host: str, port: int, *, shared: bool) -> socket.socket:
    """A bound TCP socket. `shared`: other processes of this gateway bind it too."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((host, port))
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def serve(config: GatewayConfig, number: int = 0, lifeline: int | None = None) -> int:
    """Run one process in this one. Returns its exit code."""
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    try:
        sock = listening_socket(config.host, config.port, shared=config.processes > 1)
    except OSError as error:
        print(
            f"gateway: cannot listen on {config.host}:{config.port}: {error.strerror}."
            f" Stop what holds the port, or choose another with --port.",
            file=sys.stderr,
        )
        return 1
    server = GatewayServer(config, number, sock, lifeline)
    log.info("gateway process %d (pid %d) on %s:%d", number, os.getpid(), config.host, config.port)
    server.run()
    return 0
