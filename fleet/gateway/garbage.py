"""Collecting cycles by the clock instead of by allocation counts.

The gateway frees nearly everything by reference count: nothing on the request path makes
cycles. But the last thousands of decision records are alive at any time, a score of objects
each, and Python's collector, which runs every so many allocations, walks them again and again
in search of garbage that is not there: 30 to 45 % of the CPU of a request (ADR 0073).

So the automatic collector is off. What was alive at the start is frozen out of sight; young
objects are looked through every ten seconds, older ones every minute, all of them every ten
minutes. Cycles (closed connections, tracebacks, hedged attempts) wait that long and no longer.
"""

import asyncio
import gc
import time

YOUNG_S = 10.0
OLDER_EVERY = 6
ALL_EVERY = 60


class Garbage:
    """The collector of one process."""

    def __init__(self) -> None:
        self.worst_ms = 0.0  # the longest collection so far
        self.spent_s = 0.0
        self.found = 0

    def start(self) -> None:
        """Take over from the automatic collector."""
        gc.collect()
        gc.freeze()
        gc.disable()

    async def run(self) -> None:
        """Until cancelled."""
        turn = 0
        while True:
            await asyncio.sleep(YOUNG_S)
            turn += 1
            self.collect(2 if turn % ALL_EVERY == 0 else 1 if turn % OLDER_EVERY == 0 else 0)

    def collect(self, generation: int) -> None:
        """Look through one generation and the younger ones."""
        began_s = time.perf_counter()
        self.found += gc.collect(generation)
        took_s = time.perf_counter() - began_s
        self.spent_s += took_s
        self.worst_ms = max(self.worst_ms, took_s * 1000.0)
