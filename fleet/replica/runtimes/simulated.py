"""A device that only takes time: 18 ms + 0.022 ms per prompt token, as measured on a real one.

    service = (18 + 0.022 x tokens) / speed x U(1 - jitter, 1 + jitter) x log-normal(noise)

It echoes its input, so that who gets whose answer can be checked. The sleep ends at a deadline
on the monotonic clock: a late wake-up is not added to the next batch, and cancelling it frees
the device at once.
"""

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Any, ClassVar

from engine.types import WorkUnit
from fleet.replica.runtimes.base import (
    BoundBy,
    Item,
    ItemOutcome,
    RuntimeSettings,
    Served,
    estimate_tokens,
)

FIXED_MS = 18.0
PER_TOKEN_MS = 0.022
_BYTES_PER_TOKEN = 4
_LONGEST_ECHO_TOKENS = 64


class SimulatedRuntime:
    """Sleeps for as long as the device would compute."""

    work_unit: ClassVar[WorkUnit] = WorkUnit.TOKENS
    bound_by: ClassVar[BoundBy] = BoundBy.DEVICE
    accelerator: ClassVar[str] = "simulated"

    def __init__(self, settings: RuntimeSettings) -> None:
        self._settings = settings
        self._rng = random.Random(settings.seed)
        self._name = f"{settings.model} {settings.version}"

    async def load(self) -> None:
        """Nothing to load."""

    def check(self, value: Any) -> str | None:
        return None

    async def run(self, items: Sequence[Item]) -> list[ItemOutcome]:
        started_s = time.monotonic()
        served = [self._serve(item) for item in items]
        jitter = 1.0 + self._settings.jitter_ratio * self._rng.uniform(-1.0, 1.0)
        if self._settings.noise_sigma:
            jitter *= self._rng.lognormvariate(0.0, self._settings.noise_sigma)
        tokens = sum(each.prompt_tokens for each in served)
        service_ms = (FIXED_MS + PER_TOKEN_MS * tokens) * jitter / self._settings.speed
        end_s = started_s + service_ms / 1000
        while (left_s := end_s - time.monotonic()) > 0:
            await asyncio.sleep(left_s)
        return list(served)

    async def close(self) -> None:
        """Nothing to let go of."""

    def _serve(self, item: Item) -> Served:
        text = item.input if isinstance(item.input, str) else str(item.input)
        tokens = item.prompt_tokens or estimate_tokens(text)
        room = min(item.max_output_tokens, _LONGEST_ECHO_TOKENS) * _BYTES_PER_TOKEN
        output = f"{self._name}: {text}".encode("utf-8", "replace")[:room].decode("utf-8", "ignore")
        return Served(output, tokens, estimate_tokens(output))
