"""What a runtime is: something that loads once and turns a batch of items into outcomes.

A runtime says what its service time grows with (`work_unit`), so that the gateway fits the
right cost model, and what it is bound by (`bound_by`), so that the replica regulates itself on
the use of that: the machine's CPU, or the time of a device that this process does not see.

`run` returns one outcome per item, in order. An item that cannot be served is a `Failed`
among them: it fails alone. An exception fails the batch. `check` is asked before an item is
queued, so that a malformed one costs no device time.

Cancelling `run` means that nobody waits any more. A runtime that computes in threads extends
`ThreadedRuntime`: the event loop stays free, and a cancelled batch keeps its slot until its
thread has ended, because until then the device is in use.
"""

import asyncio
import contextlib
import math
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Protocol

from engine.types import WorkUnit

BAD_INPUT, RUNTIME_FAILED, TOO_LATE = 400, 500, 503


class BoundBy(StrEnum):
    """Whose time a batch takes."""

    CPU = "cpu"  # this machine's cores
    DEVICE = "device"  # something else: a simulated device, a server elsewhere


@dataclass(slots=True, frozen=True, kw_only=True)
class RuntimeSettings:
    """What a runtime may need to know. Each takes what concerns it."""

    model: str
    version: str
    speed: float = 1.0
    jitter_ratio: float = 0.08
    noise_sigma: float = 0.0
    seed: int | None = None
    input_dim: int = 128
    threads: int = 1
    state_dir: Path = Path("var")
    upstream_url: str = ""
    upstream_model: str = ""
    upstream_key: str = ""


@dataclass(slots=True)
class Item:
    """One member of a batch. `prompt_tokens` is None where the caller did not count; past
    `expires_ms`, on the monotonic clock, nobody wants it any more."""

    input: Any
    max_output_tokens: int = 256
    prompt_tokens: int | None = None
    expires_ms: float = math.inf


@dataclass(slots=True)
class Served:
    """An item's result."""

    output: Any
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(slots=True)
class Failed:
    """An item that failed alone. 4xx is the request's doing, anything else the runtime's."""

    error: str
    status: int = RUNTIME_FAILED


ItemOutcome = Served | Failed


class RuntimeBusy(Exception):
    """The runtime cannot take a batch now. Try again in `retry_after_s`."""

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Runtime(Protocol):
    """What the replica needs of whatever computes."""

    work_unit: ClassVar[WorkUnit]
    bound_by: ClassVar[BoundBy]
    accelerator: ClassVar[str]

    async def load(self) -> None:
        """Get ready to run. Called once; the replica is `starting` until it returns."""
        ...

    def check(self, value: Any) -> str | None:
        """Why `value` cannot be an input, or None where it can."""
        ...

    async def run(self, items: Sequence[Item]) -> list[ItemOutcome]:
        """Run a batch. One outcome an item, in order."""
        ...

    async def close(self) -> None:
        """Let go of everything."""
        ...


class ThreadedRuntime:
    """Base of runtimes that compute in threads: implement `load_now` and `compute`."""

    def __init__(self, settings: RuntimeSettings) -> None:
        self.settings = settings
        self._pool = ThreadPoolExecutor(settings.threads, thread_name_prefix="runtime")

    def load_now(self) -> None:
        """Load weights. Runs in a thread."""
        raise NotImplementedError

    def compute(self, items: Sequence[Item], stop: threading.Event) -> list[ItemOutcome]:
        """Run a batch in a thread. May end early, with any outcomes, once `stop` is set."""
        raise NotImplementedError

    async def load(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._pool, self.load_now)

    async def run(self, items: Sequence[Item]) -> list[ItemOutcome]:
        stop = threading.Event()
        work = asyncio.get_running_loop().run_in_executor(self._pool, self.compute, items, stop)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            stop.set()
            with contextlib.suppress(Exception):
                await work
            raise

    async def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def estimate_tokens(text: str) -> int:
    """About four UTF-8 bytes a token: what callers without a tokenizer reckon with."""
    return max(1, (len(text.encode("utf-8", "surrogatepass")) + 3) // 4)
