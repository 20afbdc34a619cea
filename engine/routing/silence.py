"""Has it said anything at all since this request was sent?

A missed deadline alone proves nothing: the deadline may have been too tight for anybody, or
the answer half written. A replica is silent where a deadline passed, not one byte of any
request has come since that request was sent, and it usually takes less time than that.
What breaks without it: a slow fleet counts as a hanging one, and is switched off.
"""


class Silence:
    """The last sign of life of one replica."""

    __slots__ = ("_last_byte_ms",)

    def __init__(self) -> None:
        self._last_byte_ms: float | None = None

    def broken(self, now_ms: float) -> None:
        """A byte came, or a whole answer, or a refusal."""
        self._last_byte_ms = now_ms

    def since(self, sent_ms: float, elapsed_ms: float, usual_ms: float | None) -> bool:
        """Whether a request sent then, that took `elapsed_ms`, met nothing but silence."""
        last_byte_ms = self._last_byte_ms
        if last_byte_ms is not None and last_byte_ms >= sent_ms:
            return False
        return usual_ms is None or elapsed_ms >= usual_ms
