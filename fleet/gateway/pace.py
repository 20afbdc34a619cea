"""When a part of the gateway looks again: together with the others, and not before it must.

To wake costs more than to look: whoever sleeps finds its caches full of somebody else's data.
So all sleep to multiples of a period since this process began, those of one instant wake
once, and who knows when something is due rests until then. Processes began apart and stay
apart.
"""

import asyncio
import time

_BEGAN_S = time.monotonic()
_EARLY_S = 0.01  # a multiple so near is the one that just was: timers come early, too


async def step(period_s: float) -> float:
    """Sleep to the next multiple of `period_s`; returns how late it woke, in seconds."""
    now_s = time.monotonic()
    left_s = _left_s(period_s, now_s, now_s)
    await asyncio.sleep(left_s)
    return time.monotonic() - now_s - left_s


class Rest:
    """The sleep of one looker, in steps of `period_s`. Make it anywhere, use it in one loop."""

    def __init__(self, period_s: float) -> None:
        self.period_s = period_s
        self._awake = asyncio.Event()

    def horizon_s(self) -> float:
        """What is due by then (`time.monotonic`) is due at this step: no other is nearer."""
        return time.monotonic() + self.period_s / 2

    def nudge(self) -> None:
        """There is something to look at: look at the next step."""
        self._awake.set()

    async def until(self, due_s: float) -> None:
        """Sleep to the step nearest to `due_s` (`time.monotonic`), to the next one if that is
        past or as soon as somebody nudges."""
        now_s = time.monotonic()
        left_s = _left_s(self.period_s, due_s - self.period_s / 2, now_s)
        timer = asyncio.get_running_loop().call_later(left_s, self._awake.set)
        try:
            await self._awake.wait()
        finally:
            timer.cancel()
            self._awake.clear()
        if now_s + left_s - time.monotonic() > _EARLY_S:
            await step(self.period_s)


def _left_s(period_s: float, after_s: float, now_s: float) -> float:
    """From `now_s` to the first multiple of the period after both."""
    after_s = max(after_s, now_s + _EARLY_S)
    return after_s + period_s - (after_s - _BEGAN_S) % period_s - now_s
