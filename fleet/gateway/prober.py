"""Asking each replica how it is, once a second, from each gateway for itself.

Of very many replicas each is asked less often: a process sends `MAX_PER_S` probes a second
at most, because real requests tell more of a busy replica than probes do.

A replica of the batch protocol answers `GET /readyz`: 200 ready, 503 not ready (loading,
draining), with what it knows of itself in the body: the ceilings that its self-regulation
set, its queue, what it has loaded. An OpenAI-compatible server answers `GET /health`, or
`/v1/models` where it has no health page. Two probes without an answer mean down. The engine
decides what follows from that; breakers learn from real requests, not from probes.
"""

import time
from collections.abc import Callable, Mapping

import msgspec

from engine.scheduler import Scheduler
from engine.types import Protocol, ReplicaSpec
from fleet.gateway.pace import Rest
from fleet.gateway.transports.connection import Exchange
from fleet.gateway.transports.http_client import HttpClient

PERIOD_S = 1.0
STEP_S = 0.1
MAX_PER_S = 100
TIMEOUT_S = 2.0
DOWN_AFTER = 2
PATHS: Mapping[Protocol, tuple[str, ...]] = {
    Protocol.BATCH: ("/readyz",),
    Protocol.OPENAI: ("/health", "/v1/models"),
}


class Report(msgspec.Struct, rename="camel"):
    """What a replica says of itself; everything is optional."""

    max_concurrency: int | None = None
    max_batch_size: int | None = None
    queued: int | None = None
    gpu_memory_ratio: float | None = None
    loaded_models: list[str] | None = None


_decode = msgspec.json.Decoder(Report).decode


class Probe:
    """The probing of one replica."""

    __slots__ = ("exchange", "failures", "next_s", "path", "ready", "spec")

    def __init__(self, spec: ReplicaSpec) -> None:
        self.spec = spec
        self.path = 0
        self.failures = 0
        self.next_s = 0.0
        self.ready: bool | None = None
        self.exchange: Exchange | None = None


class Prober:
    """Keeps a probe per replica of the snapshot and tells the scheduler what comes back."""

    def __init__(
        self,
        scheduler: Scheduler,
        client: HttpClient,
        touch: Callable[[], None],
        probed: dict[str, bool],
    ) -> None:
        self._scheduler = scheduler
        self._client = client
        self._touch = touch
        self._probed = probed
        self._probes: dict[str, Probe] = {}
        self._rest = Rest(STEP_S)
        self.sent = 0

    def follow(self, replicas: Mapping[str, ReplicaSpec]) -> None:
        """Probe these from now on. What is known of those that stay is kept."""
        probes: dict[str, Probe] = {}
        for replica_id, spec in replicas.items():
            probe = self._probes.pop(replica_id, None)
            if probe is None or probe.spec.address != spec.address:
                probe = Probe(spec)
            probe.spec = spec
            probes[replica_id] = probe
        for gone in self._probes.values():
            self._probed.pop(gone.spec.replica_id, None)
            if gone.exchange is not None:
                gone.exchange.cancel()
        self._probes = probes
        self._rest.nudge()

    async def run(self) -> None:
        """Until cancelled. Probes are spread over the period by their order."""
        while True:
            now_s, horizon_s = time.monotonic(), self._rest.horizon_s()
            period_s = max(PERIOD_S, len(self._probes) / MAX_PER_S)
            next_s = now_s + period_s
            for place, probe in enumerate(list(self._probes.values())):
                if probe.exchange is None and probe.next_s <= horizon_s:
                    first = probe.next_s == 0.0
                    spread_s = (place % 16) / 16 * period_s if first else 0.0
                    probe.next_s = now_s + period_s + spread_s
                    self._send(probe, now_s)
                next_s = min(next_s, probe.next_s)
            await self._rest.until(next_s)

    async def close(self) -> None:
        """Let go of every connection."""
        await self._client.close()

    def _send(self, probe: Probe, now_s: float) -> None:
        paths = PATHS[probe.spec.protocol]
        self.sent += 1
        try:
            probe.exchange = self._client.request(
                probe.spec.address,
                "GET",
                paths[probe.path],
                now_s + TIMEOUT_S,
                lambda status, _headers, body: self._answered(probe, status, body),
                lambda _why: self._failed(probe),
            )
        except ValueError:
            self._failed(probe)

    def _answered(self, probe: Probe, status: int, body: bytes) -> None:
        probe.exchange = None
        if status == 404 and probe.path + 1 < len(PATHS[probe.spec.protocol]):
            probe.path += 1
            probe.next_s = 0.0
            self._rest.nudge()
            return
        probe.failures = 0
        report = Report()
        if probe.spec.protocol is Protocol.BATCH:
            try:
                report = _decode(body)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                report = Report()
        self._tell(probe, 200 <= status < 300, report)

    def _failed(self, probe: Probe) -> None:
        probe.exchange = None
        probe.failures += 1
        if probe.failures >= DOWN_AFTER:
            self._tell(probe, False, Report())

    def _tell(self, probe: Probe, ready: bool, report: Report) -> None:
        changed = probe.ready is not ready
        probe.ready = self._probed[probe.spec.replica_id] = ready
        loaded = report.loaded_models
        self._scheduler.replica_reported(
            probe.spec.replica_id,
            ready=ready,
            max_concurrency=report.max_concurrency,
            max_batch_size=report.max_batch_size,
            queued=report.queued,
            gpu_memory_ratio=report.gpu_memory_ratio,
            loaded_models=None if loaded is None else frozenset(loaded),
        )
        if changed or report.max_concurrency is not None:
            self._touch()
