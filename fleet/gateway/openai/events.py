"""Watching a stream of server-sent events go by, without taking it apart.

Chunks pass through as they arrive, whole events at a time; what is needed is found by
searching bytes, not by parsing JSON: the usage, an error, how many pieces of text came, and
whether the server said `[DONE]`. Only an event that mentions usage or an error is decoded.

Most events of a stream differ in one string alone. What stands before and after it is learned
from the first such event; another one with the same ends and no quote in between is one more
piece of text and nothing else, and three comparisons show it.

If usage was asked for on the client's behalf, the event that carries nothing else is kept
back; every other byte is the server's own.
"""

from typing import Any

import msgspec

_BLANK = (b"\n\n", b"\r\n\r\n")
_DONE = b"data: [DONE]"
_TEXT = (b'"content":"', b'"content": "', b'"text":"', b'"text": "')
_EMPTY = (b'"content":""', b'"content": ""', b'"text":""', b'"text": ""')
_BACKSLASH = ord("\\")
NOTHING = (b"", b"")
MAX_EVENT_BYTES = 4 * 1024 * 1024


class StreamWatch:
    """The state of one stream. `feed` returns the bytes that may go on to the client."""

    __slots__ = (
        "_hide_usage",
        "_plain",
        "_tail",
        "completion_tokens",
        "done",
        "error",
        "finished",
        "pieces",
        "prompt_tokens",
    )

    def __init__(self, *, hide_usage: bool) -> None:
        self._hide_usage = hide_usage
        self._tail = b""
        self._plain = NOTHING  # what stands around the text of this stream's events
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.pieces = 0  # events that carried text: tokens, where nobody says how many
        self.done = False
        self.finished = False  # a finish_reason came
        self.error: dict[str, Any] | None = None

    def feed(self, data: bytes) -> bytes:
        """Take what arrived; return the whole events in it. Raises `ValueError` where an event
        does not end."""
        if self._tail:
            data = self._tail + data
        elif (
            self._plain is not NOTHING
            and data.startswith(self._plain[0])
            and data.endswith(self._plain[1])
        ):
            begin, end = len(self._plain[0]), len(data) - len(self._plain[1])
            if begin < end and data.find(b'"', begin, end) < 0 and data[end - 1] != _BACKSLASH:
                self.pieces += 1
                return data
        end = len(data) if data.endswith(b"\n\n") else _last_end(data)
        if end == 0:
            if len(data) > MAX_EVENT_BYTES:
                raise ValueError(f"an event is over {MAX_EVENT_BYTES} bytes")
            self._tail = data
            return b""
        whole, self._tail = data[:end], data[end:]
        pieces = self._pieces_in(whole)
        self.pieces += pieces
        if _DONE in whole:
            self.done = True
        if b'"finish_reason"' in whole and not self.finished:
            self.finished = whole.count(b'"finish_reason"') > _nulls(whole)
        if b'"usage"' in whole or b'"error"' in whole:
            kept = self._look(whole)
            if kept != whole or self.error is not None or self.completion_tokens:
                return kept
        if pieces == 1 and not self.finished and not self.done:
            self._learn(whole)
        return whole

    def rest(self) -> bytes:
        """What came after the last whole event."""
        tail, self._tail = self._tail, b""
        return tail

    @property
    def around(self) -> tuple[bytes, bytes]:
        """What stands before and after the text of a plain event; `NOTHING` before the first
        one, and where half an event is here or the stream said how it ends."""
        if self._tail or self.completion_tokens or self.finished or self.done:
            return NOTHING
        return self._plain

    @property
    def tokens(self) -> int:
        """Output tokens: as the server counts them, or else the pieces that came."""
        return self.completion_tokens or self.pieces

    def _pieces_in(self, whole: bytes) -> int:
        pieces = 0
        for mark in _TEXT:
            pieces += whole.count(mark)
        for mark in _EMPTY:
            pieces -= whole.count(mark)
        return pieces

    def _learn(self, event: bytes) -> None:
        """`event` told one piece of text and nothing else: remember what stands around it."""
        if len(_split(event)) != 1:
            return
        for mark in _TEXT:
            place = event.find(mark)
            if place >= 0:
                begin = place + len(mark)
                end = event.find(b'"', begin)
                if b"\\" not in event[begin:end]:
                    self._plain = (event[:begin], event[end:])
                return

    def _look(self, whole: bytes) -> bytes:
        kept: list[bytes] = []
        for event in _split(whole):
            document = _decode(event)
            if document is None:
                kept.append(event)
                continue
            usage = document.get("usage")
            if isinstance(usage, dict):
                self.prompt_tokens = _count(usage.get("prompt_tokens"))
                self.completion_tokens = _count(usage.get("completion_tokens"))
                if self._hide_usage and document.get("choices") == []:
                    continue
            error = document.get("error")
            if isinstance(error, dict | str):
                self.error = error if isinstance(error, dict) else {"message": error}
            kept.append(event)
        return b"".join(kept)


def _nulls(whole: bytes) -> int:
    return whole.count(b'"finish_reason":null') + whole.count(b'"finish_reason": null')


def _last_end(data: bytes) -> int:
    """Where the last whole event ends, or 0."""
    end = 0
    for blank in _BLANK:
        place = data.rfind(blank)
        if place >= 0:
            end = max(end, place + len(blank))
    return end


def _split(whole: bytes) -> list[bytes]:
    blank = _BLANK[1] if _BLANK[1] in whole else _BLANK[0]
    return [event + blank for event in whole.split(blank)[:-1]]


def _decode(event: bytes) -> dict[str, Any] | None:
    lines = [line[5:].strip() for line in event.splitlines() if line.startswith(b"data:")]
    try:
        document = msgspec.json.decode(b"\n".join(lines))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _count(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else 0
