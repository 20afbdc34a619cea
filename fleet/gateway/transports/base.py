"""The port between the driver and a replica's protocol.

`start` sends a dispatch and returns a handle at once; `done` is called exactly once, later,
with the report, unless `abort` came first: then the driver has reported already and nothing
more may be said. A stream calls `first_byte` when its first token arrives; after that the
engine neither hedges nor retries it.

A new protocol is one module here and one entry in the driver's `transports`. A transport
that is easier to write as a coroutine extends `TaskTransport`.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from engine.actions import Dispatch, LeaseReport
from engine.outcomes import Outcome
from engine.types import ReplicaSpec

Done = Callable[[LeaseReport], None]
FirstByte = Callable[[], None]


class Handle(Protocol):
    """A dispatch on its way."""

    def abort(self) -> None:
        """Stop: close the connection, say nothing more."""
        ...


class Transport(Protocol):
    """Carries dispatches to replicas of one protocol."""

    def start(
        self, dispatch: Dispatch, spec: ReplicaSpec, done: Done, first_byte: FirstByte
    ) -> Handle:
        """Send it. Must not call `done` before returning."""
        ...

    async def close(self) -> None:
        """Let go of every connection."""
        ...


class TaskHandle:
    """A dispatch that runs as a task."""

    __slots__ = ("_task",)

    def __init__(self, task: "asyncio.Task[None]") -> None:
        self._task = task

    def abort(self) -> None:
        self._task.cancel()


class TaskTransport:
    """Base of transports written as a coroutine: implement `execute`."""

    async def execute(
        self, dispatch: Dispatch, spec: ReplicaSpec, first_byte: FirstByte
    ) -> LeaseReport:
        """Run the attempt and say how it ended. Cancelled when the attempt is aborted."""
        raise NotImplementedError

    def start(
        self, dispatch: Dispatch, spec: ReplicaSpec, done: Done, first_byte: FirstByte
    ) -> TaskHandle:
        task = asyncio.get_running_loop().create_task(
            self._run(dispatch, spec, done, first_byte), name=f"lease-{dispatch.lease_id}"
        )
        return TaskHandle(task)

    async def close(self) -> None:
        """Nothing to let go of, unless a subclass keeps connections."""

    async def _run(
        self, dispatch: Dispatch, spec: ReplicaSpec, done: Done, first_byte: FirstByte
    ) -> None:
        try:
            report = await self.execute(dispatch, spec, first_byte)
        except Exception as error:
            report = LeaseReport(Outcome.FAULT, error=f"{type(error).__name__}: {error}")
        done(report)
