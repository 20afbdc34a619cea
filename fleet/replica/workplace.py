"""The asyncio driver of the station: orders in, batches through the runtime, outcomes out.

An `Order` is what one HTTP request asks for: a whole batch from a gateway, or one prediction
where the replica stands alone. Its future is settled exactly once: with the outcomes of its
items, or with one of

    Refused      the station turned it away (queue full, admission control), or it is draining
    TimedOut     it waited too long to start
    RuntimeBusy  the runtime says so
    any other    the batch failed

A client that leaves cancels its order: waiting, it leaves the queue; running alone, its batch
is cancelled; in company, its part of the answer is dropped.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

from engine.errors import Refusal, RefusalCode
from engine.regulation.fair_queue import Waiting
from engine.regulation.station import Job, Station
from fleet.replica.faults import Faults
from fleet.replica.runtimes.base import TOO_LATE, Failed, Item, ItemOutcome, Runtime

ModelKey = tuple[str, str]  # model, version


class Refused(Exception):
    """The order was turned away; nothing of it ran."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class TimedOut(Exception):
    """The order waited too long to start."""


def monotonic_ms() -> float:
    return time.monotonic() * 1000


class Order:
    """What one client waits for. `queue_wait_ms` and `execution_ms` are set when it ran."""

    __slots__ = ("entry", "execution_ms", "future", "items", "queue_wait_ms", "runtime", "task")

    def __init__(
        self, items: list[Item], runtime: Runtime, future: "asyncio.Future[list[ItemOutcome]]"
    ) -> None:
        self.items = items
        self.runtime = runtime
        self.future = future
        self.entry: Waiting[Order] | None = None
        self.task: asyncio.Task[list[ItemOutcome]] | None = None
        self.queue_wait_ms = 0.0
        self.execution_ms = 0.0


class Workplace:
    """Runs a station's batches on a runtime. `on_alarm` is called when load calls for a decision
    between two ticks."""

    def __init__(
        self,
        station: Station[Order],
        runtime: Runtime,
        faults: Faults,
        clock_ms: Callable[[], float] = monotonic_ms,
        also: Mapping[ModelKey, Runtime] | None = None,
    ) -> None:
        self.station = station
        self.runtime = runtime
        self.also = dict(also or {})
        self.faults = faults
        self.clock_ms = clock_ms
        self.draining = False
        self.in_flight_items = 0
        self.batches = 0
        self.failed_batches = 0
        self.on_alarm: Callable[[], object] = lambda: None
        self._tasks: dict[asyncio.Task[list[ItemOutcome]], list[Order]] = {}
        self._expiry: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    async def load(self) -> None:
        """Load everything that is served."""
        for runtime in (self.runtime, *self.also.values()):
            await runtime.load()

    async def close(self) -> None:
        for runtime in (self.runtime, *self.also.values()):
            await runtime.close()

    def place(
        self,
        items: list[Item],
        *,
        priority: str,
        timeout_ms: float | None = None,
        runtime: Runtime | None = None,
    ) -> Order:
        """Queue an order, or raise `Refused`. It runs on `runtime`, else on the first."""
        self.faults.refuse_if_busy()
        if self.draining:
            raise Refused(
                Refusal(
                    code=RefusalCode.NO_CAPACITY,
                    message="the replica is draining",
                    limit_name="draining",
                    retry_after_ms=1000.0,
                )
            )
        loop = asyncio.get_running_loop()
        order = Order(items, runtime or self.runtime, loop.create_future())
        answer = self.station.submit(
            order,
            priority=priority,
            now_ms=self.clock_ms(),
            items=len(items),
            timeout_ms=timeout_ms,
        )
        if self.station.alarm(self.clock_ms()):
            self.on_alarm()
        if isinstance(answer, Refusal):
            raise Refused(answer)
        order.entry = answer
        self._idle.clear()
        self.pump()
        return order

    def cancel(self, order: Order) -> None:
        """The client left: nobody waits for this order any more."""
        order.future.cancel()
        if order.entry is not None and self.station.cancel(order.entry):
            self._check_idle()
            return
        task = order.task
        if task is not None and all(each.future.cancelled() for each in self._tasks.get(task, ())):
            task.cancel()

    def pump(self) -> None:
        """Start what can start, time out what waited too long."""
        now_ms = self.clock_ms()
        for entry in self.station.expire(now_ms):
            if not entry.item.future.done():
                waited_ms = now_ms - entry.arrived_ms
                entry.item.future.set_exception(TimedOut(f"not started within {waited_ms:.0f} ms"))
        while (job := self.station.next_batch(now_ms)) is not None:
            self._start(job)
        self._arm_expiry(now_ms)
        self._check_idle()

    async def idle(self) -> None:
        """Return when nothing waits and nothing runs."""
        await self._idle.wait()

    def abandon(self) -> None:
        """Cancel everything that runs: the process ends now."""
        for task in list(self._tasks):
            task.cancel()

    def _start(self, job: Job[Order]) -> None:
        orders = [entry.item for entry in job.entries]
        items = [item for order in orders for item in order.items]
        task = asyncio.get_running_loop().create_task(self._execute(orders[0].runtime, items))
        # A callback, not a `finally` in the task: one cancelled before its first step has none.
        task.add_done_callback(lambda done: self._ended(job, orders, len(items), done))
        for order in orders:
            order.task = task
        self._tasks[task] = orders
        self.in_flight_items += len(items)
        self.batches += 1

    def _ended(
        self,
        job: Job[Order],
        orders: list[Order],
        items: int,
        task: "asyncio.Task[list[ItemOutcome]]",
    ) -> None:
        now_ms = self.clock_ms()
        self.in_flight_items -= items
        error = None if task.cancelled() else task.exception()
        ok = error is None and not task.cancelled()
        self.station.finish(job, now_ms, ok=ok)
        del self._tasks[task]
        start = 0
        for order, entry in zip(orders, job.entries, strict=True):
            order.queue_wait_ms = job.started_ms - entry.arrived_ms
            order.execution_ms = now_ms - job.started_ms
            if order.future.done():
                pass
            elif error is not None:
                order.future.set_exception(error)
            elif ok:
                order.future.set_result(task.result()[start : start + len(order.items)])
            else:
                order.future.cancel()
            start += len(order.items)
        self.failed_batches += error is not None
        self.pump()

    async def _execute(self, runtime: Runtime, items: Sequence[Item]) -> list[ItemOutcome]:
        """The items through the runtime, in pieces no larger than the regulated batch size.

        What expired meanwhile is not run: its place goes to work that somebody waits for.
        """
        await self.faults.before_batch()
        outcomes: list[ItemOutcome] = [Failed("not started in time", TOO_LATE)] * len(items)
        now_ms = self.clock_ms()
        wanted = [index for index, item in enumerate(items) if item.expires_ms > now_ms]
        size = self.station.controller.batch_size
        for start in range(0, len(wanted), size):
            started_s = time.monotonic()
            piece = wanted[start : start + size]
            results = await runtime.run([items[index] for index in piece])
            for index, result in zip(piece, results, strict=True):
                outcomes[index] = result
            await self.faults.after_batch(time.monotonic() - started_s)
        return outcomes

    def _arm_expiry(self, now_ms: float) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        next_ms = self.station.queue.next_expiry_ms()
        if next_ms is not None:
            wait_s = max(0.0, next_ms - now_ms) / 1000 + 0.001
            self._expiry = asyncio.get_running_loop().call_later(wait_s, self.pump)

    def _check_idle(self) -> None:
        if not self._tasks and len(self.station.queue) == 0:
            self._idle.set()
