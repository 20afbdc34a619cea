"""The gateway's side of the live feed: say once a second what the scheduler sees.

`publish` never waits for the network. It leaves the view in a mailbox of one place and
returns; a single task sends whatever lies there. While the channel layer is slow or away,
a newer view replaces the one not yet sent, so memory stays bounded and the dashboard
resumes with the present, not with a backlog. A large view is encoded in a thread: half a
megabyte of JSON is 2-5 ms that the event loop keeps for requests.

Failures are counted, never raised: inference does not depend on being watched.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Mapping
from typing import Any, Protocol

from fleet.live import wire

SEND_TIMEOUT_S = 2.0
FEW_REPLICAS = 32  # so small a view is packed in less time than a thread takes to wake


class Layer(Protocol):
    """What the publisher needs of a Channels layer."""

    async def group_send(self, group: str, message: dict[str, Any]) -> None: ...


class Publisher:
    """Publishes one gateway's views. Use from one event loop; `close` when the gateway stops."""

    def __init__(
        self, gateway: str, *, layer: Layer | None = None, timeout_s: float = SEND_TIMEOUT_S
    ) -> None:
        self.gateway = gateway
        self.sequence = 0
        self.sent = 0
        self.replaced = 0
        self.failed = 0
        self.last_error: str | None = None  # None again after the next success
        self._layer = layer
        self._timeout_s = timeout_s
        self._mailbox: Mapping[str, Any] | None = None
        self._sender: asyncio.Task[None] | None = None

    async def publish(self, view: Mapping[str, Any]) -> None:
        """Hand over the newest view. Returns at once; the view must not be changed after."""
        if self._mailbox is not None:
            self.replaced += 1
        self._mailbox = view
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._drain(), name="halcyon-live-publisher")

    def counters(self) -> dict[str, int]:
        """What became of the views so far, for `/metrics`."""
        return {"sent": self.sent, "replaced": self.replaced, "failed": self.failed}

    async def close(self) -> None:
        """Stop sending and say farewell, so that the dashboard shows no lost gateway."""
        self._mailbox = None
        if self._sender is not None:
            self._sender.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sender
        await self._send(asyncio.to_thread(wire.farewell, self.gateway, self.sequence + 1))

    async def _drain(self) -> None:
        while (view := self._mailbox) is not None:
            self._mailbox = None
            self.sequence += 1
            await self._send(self._packed(view))

    async def _packed(self, view: Mapping[str, Any]) -> wire.Envelope:
        if len(view.get("replicas", ())) <= FEW_REPLICAS:
            return wire.pack(self.gateway, self.sequence, view)
        return await asyncio.to_thread(wire.pack, self.gateway, self.sequence, view)

    async def _send(self, packing: Awaitable[wire.Envelope]) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                envelope = await packing
                await self._channel_layer().group_send(wire.GROUP, dict(envelope))
        except Exception as error:
            self.failed += 1
            self.last_error = f"{type(error).__name__}: {error}".removesuffix(": ")
        else:
            self.sent += 1
            self.last_error = None

    def _channel_layer(self) -> Layer:
        if self._layer is None:
            from channels.layers import get_channel_layer

            self._layer = get_channel_layer()
        return self._layer
