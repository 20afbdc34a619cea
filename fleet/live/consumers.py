"""One browser's live connection: a snapshot, then numbered patches, newest only.

From the browser: `watch` (topic and parameters), `ack` (a message was drawn), `snapshot`
(a number was missing), `pause`, `resume`. To it: `snapshot` and `delta`, both numbered.

At most `WINDOW` messages are on their way undrawn. A browser that falls behind gets no
backlog: ticks pass it by, and the next patch leads from what it drew last to the present.
The session is looked at again every `RECHECK_S`, so that a person who was signed out or
disabled stops seeing the fleet; a database that is away ends nobody's session.
"""

import asyncio
import contextlib
import json
import logging
from typing import Any

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.contrib.auth import get_user_model
from django.db import DatabaseError

from fleet.live.pulse import pulse
from fleet.live.topics import Edition, encode, known, names, once, press

WINDOW = 2
RECHECK_S = 30.0
MAX_MESSAGE = 4096

SIGNED_OUT = 4401
BAD_MESSAGE = 4400
BROKEN = 1011

log = logging.getLogger(__name__)


class LiveConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]
    """See the module. One instance per websocket.

    It has no channel of its own (no layer has this alias): the pulse listens for all, so a
    broker that is away costs no browser its connection.
    """

    channel_layer_alias = ""

    async def connect(self) -> None:
        self._topic = ""
        self._params: dict[str, str] = {}
        self._seq = 0
        self._acked = 0
        self._paused = False
        self._drawn: Edition | None = None  # None: the next message must be a snapshot
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        await self.accept()
        user = self.scope.get("user")
        if user is None or not user.is_authenticated:
            await self.close(SIGNED_OUT)
            return
        pulse.ensure_started()
        pulse.wake_on_tick(self._wake)
        self._tasks = [
            asyncio.create_task(self._tell(), name="halcyon-live-viewer"),
            asyncio.create_task(self._recheck(), name="halcyon-live-session"),
        ]

    async def disconnect(self, code: int) -> None:
        pulse.forget(self._wake)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        try:
            message = _parse(text_data)
            self._obey(message)
        except ValueError as error:
            await self.close(BAD_MESSAGE, reason=str(error)[:120])

    def _obey(self, message: dict[str, Any]) -> None:
        verb = message.get("do")
        if verb == "ack":
            self._acked = max(self._acked, min(int(message.get("seq", 0)), self._seq))
        elif verb == "watch":
            topic, params = message.get("topic"), message.get("params") or {}
            if not isinstance(topic, str) or not known(topic):
                raise ValueError(f"no such topic: use one of {', '.join(names())}")
            if not isinstance(params, dict):
                raise ValueError("params must be an object of strings")
            self._topic = topic
            self._params = {str(key): str(value) for key, value in params.items()}
            self._drawn = None
        elif verb == "snapshot":
            self._drawn = None
        elif verb in ("pause", "resume"):
            self._paused = verb == "pause"
            self._drawn = None
        else:
            raise ValueError("do must be one of watch, ack, snapshot, pause, resume")
        self._wake.set()

    async def _tell(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                if not self._paused and self._topic and self._seq - self._acked < WINDOW:
                    await self._say_the_newest()
        except Exception:
            log.exception("a live page of topic %s broke", self._topic)
            await self.close(BROKEN)

    async def _say_the_newest(self) -> None:
        scene = pulse.scene()
        edition = press.edition(scene, self._topic, self._params)
        if self._drawn is None:
            extra = once(scene, self._topic, self._params)
            body = b'"doc":%b,"once":%b' % (encode(edition.document), encode(extra))
            await self._post(b"snapshot", edition, body)
        elif edition is not self._drawn and edition.tick > self._drawn.tick:
            body = b'"patch":%b' % press.patch(self._drawn, edition)
            await self._post(b"delta", edition, body)

    async def _post(self, kind: bytes, edition: Edition, body: bytes) -> None:
        self._seq += 1
        self._drawn = edition
        head = b'{"t":"%b","seq":%d,"at":%d,' % (kind, self._seq, edition.at_ms)
        await self.send(text_data=(head + body + b"}").decode())

    async def _recheck(self) -> None:
        while True:
            await asyncio.sleep(RECHECK_S)
            with contextlib.suppress(DatabaseError, OSError):
                if not await _still_welcome(self.scope["user"].pk, self.scope["session"]):
                    await self.close(SIGNED_OUT)
                    return


@database_sync_to_async
def _still_welcome(user_pk: Any, session: Any) -> bool:
    return (
        session.exists(session.session_key)
        and get_user_model().objects.filter(pk=user_pk, is_active=True).exists()
    )


def _parse(text: str | None) -> dict[str, Any]:
    if text is None or len(text) > MAX_MESSAGE:
        raise ValueError("send JSON text of at most 4 KB")
    try:
        message = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError("send JSON text") from error
    if not isinstance(message, dict):
        raise ValueError("send a JSON object")
    return message
