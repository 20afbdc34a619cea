"""Websocket addresses, and the wrapper that starts the pulse with the first connection.

Daphne has no lifespan events, so whatever connects first, a page or a websocket, starts
the listener: by the time somebody has signed in, there is something to see.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from django.urls import path

from fleet.live.consumers import LiveConsumer
from fleet.live.pulse import pulse

websocket_urlpatterns = [path("ws/live/", LiveConsumer.as_asgi())]

Application = Callable[[Any, Any, Any], Awaitable[None]]


class WithPulse:
    """Wraps the ASGI application of a web process."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        pulse.ensure_started()
        await self._application(scope, receive, send)
