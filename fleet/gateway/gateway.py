"""One gateway process put together: parts made, wired, started, and stopped in reverse.

Starting never waits for Postgres longer than a moment: with a kept configuration on disk
the process serves from it at once, marked stale; without one it refuses with `no_capacity`
until Postgres answers. Stopping flushes what was counted.
"""

import asyncio
import contextlib
import functools
import ipaddress
import logging
import random
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from engine.admission.gate import GateConfig
from engine.admission.leased_bucket import QuotaLeases
from engine.scheduler import Scheduler
from engine.scheduling.state import SchedulerConfig
from engine.types import Protocol
from fleet.gateway import snapshot_file
from fleet.gateway.app import GatewayApp
from fleet.gateway.clock import MonotonicClock
from fleet.gateway.config import GatewayConfig
from fleet.gateway.driver import Driver
from fleet.gateway.endpoints import explain
from fleet.gateway.endpoints.explain import ExplainEndpoint
from fleet.gateway.endpoints.infer import InferEndpoint
from fleet.gateway.endpoints.models import ModelsEndpoint
from fleet.gateway.endpoints.operators import EXPLAIN as OPERATORS_EXPLAIN
from fleet.gateway.endpoints.operators import OperatorEndpoints, answer_sibling
from fleet.gateway.endpoints.quote import QuoteEndpoint
from fleet.gateway.engine_metrics import EngineMetrics
from fleet.gateway.garbage import Garbage
from fleet.gateway.identity import Identity
from fleet.gateway.listener import Listener
from fleet.gateway.openai.endpoints import OpenAIEndpoints
from fleet.gateway.openai.idempotency import IdempotencyStore
from fleet.gateway.outbox import Outbox
from fleet.gateway.pace import step
from fleet.gateway.prober import Prober
from fleet.gateway.process import Process
from fleet.gateway.quota_buckets import SharedBuckets
from fleet.gateway.quota_leases import QuotaKeeper
from fleet.gateway.recorder import Recorder
from fleet.gateway.routing_table import RoutingTable
from fleet.gateway.siblings import Siblings
from fleet.gateway.snapshot import Rows, Snapshot
from fleet.gateway.transports.base import Transport
from fleet.gateway.transports.batch import BatchTransport
from fleet.gateway.transports.http_client import HttpClient
from fleet.gateway.transports.openai import OpenAITransport
from fleet.live.publisher import Publisher

FIRST_READ_S = 2.0  # how long a start waits for Postgres before it serves from the disk
BEAT_S = 1.0
LAG_STEP_S = 0.5

log = logging.getLogger("halcyon.gateway")


class Gateway:
    """The parts of one process. Make it inside the running loop."""

    def __init__(self, config: GatewayConfig, number: int = 0) -> None:
        self.config = config
        identity = Identity(config.port, number)
        clock = MonotonicClock()
        leases = QuotaLeases(config.processes)
        scheduler = Scheduler(
            clock,
            random.Random(),
            SchedulerConfig(
                secret=config.secret.encode() or b"halcyon",
                warm_up_ms=config.warm_up_s * 1000.0,
                gate=GateConfig(
                    bucket_factory=SharedBuckets(leases).make if config.valkey_url else None,
                    places_factory=leases.make_places if config.valkey_url else None,
                ),
            ),
        )
        self.client = HttpClient()
        driver = Driver(scheduler, clock, self._transports(scheduler, clock))
        self.process = Process(identity, clock, scheduler, driver)
        self.siblings = Siblings(
            Path(config.private_dir or config.state_dir),
            number,
            config.processes,
            lambda question: answer_sibling(self.process, question),
        )
        self.prober = Prober(scheduler, HttpClient(), driver.touch, self.process.probed)
        self.engine_metrics = EngineMetrics(scheduler, HttpClient())
        self.outbox = Outbox(identity.gateway_id, clock, self.process.usage)
        self.recorder = Recorder(
            config.database_url,
            self.outbox,
            gateway=identity.gateway_id,
            take_windows=scheduler.windows,
            about=self.process.about,
            used_keys=lambda: self.process.snapshot.used,
            went=functools.partial(self._went, "recorder"),
            spool=config.spool_path,
        )
        self.listener = Listener(
            config.database_url,
            in_force=lambda: self.process.snapshot,
            adopt=self._adopt,
            confirmed=self._confirmed,
            lost=self._lost,
            keep=self._keep,
            poll_s=config.poll_s,
        )
        self.leases = leases
        self.process.leases = leases if config.valkey_url else None
        self.quotas = (
            QuotaKeeper(
                config.valkey_url,
                identity.gateway_id,
                leases,
                clock,
                functools.partial(self._went, "limits"),
            )
            if config.valkey_url
            else None
        )
        self.garbage = Garbage()
        self.publisher = Publisher(identity.gateway_id)
        self.table = self._routes()
        self.app = GatewayApp(
            self.table,
            identity.next_request_id,
            body_limit=config.body_limit,
            observe=self.process.observe,
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._known = asyncio.Event()

    def _transports(self, scheduler: Scheduler, clock: MonotonicClock) -> dict[Protocol, Transport]:
        """One per protocol: add yours here."""

        def limits(replica_id: str, concurrency: int | None, batch_size: int | None) -> None:
            scheduler.replica_reported(
                replica_id, max_concurrency=concurrency, max_batch_size=batch_size
            )

        return {
            Protocol.BATCH: BatchTransport(self.client, clock, limits=limits),
            Protocol.OPENAI: OpenAITransport(self.client, clock, key=self.config.upstream_key),
        }

    def _routes(self) -> RoutingTable:
        """Every endpoint of the data plane: add yours here."""
        process = self.process
        networks = [ipaddress.ip_network(each) for each in self.config.metrics_networks]
        operators = OperatorEndpoints(process, self.siblings, networks)
        table = RoutingTable()
        once = IdempotencyStore().wrap
        table.add("POST", "/v1/infer", once(InferEndpoint(process).begin), hot=True)
        openai = OpenAIEndpoints(process)
        table.add("POST", "/v1/chat/completions", once(openai.chat), hot=True)
        table.add("POST", "/v1/completions", once(openai.completions), hot=True)
        table.add("POST", "/v1/embeddings", once(openai.embeddings), hot=True)
        table.add("POST", "/v1/quote", QuoteEndpoint(process).begin)
        models = ModelsEndpoint(process)
        table.add("GET", "/v1/models", models.begin)
        table.add("GET", "/v1/models/{model}", models.one, deep=True)
        table.add("GET", explain.PATH, ExplainEndpoint(process, self.siblings).begin)
        table.add("GET", "/v1/control/state", operators.state)
        table.add("GET", OPERATORS_EXPLAIN, operators.explain)
        table.add("GET", "/metrics", operators.metrics)
        table.add("GET", "/healthz", operators.healthz)
        table.add("GET", "/readyz", operators.readyz)
        table.add("GET", "/openapi.json", operators.openapi)
        return table

    # -- life --------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to listen to Postgres; come back when there is a configuration, or soon."""
        await self.siblings.start()
        self._run("listener", self.listener.run())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_READ_S):
                await self._known.wait()
        if not self._known.is_set():
            kept = await asyncio.to_thread(snapshot_file.restore, self.config.snapshot_path)
            if kept is not None and not self._known.is_set():
                log.warning("Postgres is silent: serving from the configuration kept on disk")
                self._adopt(kept)
        self._run("prober", self.prober.run())
        self._run("engine-metrics", self.engine_metrics.run())
        self._run("recorder", self.recorder.run())
        if self.quotas is not None:
            self._run("quotas", self.quotas.run())
        self._run("garbage", self.garbage.run())
        self._run("beat", self._beat())
        self._run("lag", self._watch_lag())

    async def stop(self) -> None:
        """Stop the parts, write what was counted, say farewell."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.process.driver.close()
        await self.prober.close()
        await self.engine_metrics.close()
        self.process.clock.end()
        await self.recorder.stop()
        if self.quotas is not None:
            await self.quotas.close()
        await self.publisher.close()
        await self.siblings.stop()

    def _run(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=f"gateway-{name}")
        task.add_done_callback(_report_end)
        self._tasks.append(task)

    # -- configuration -----------------------------------------------------------------

    def _adopt(self, snapshot: Snapshot) -> None:
        self.process.adopt(snapshot)
        self.prober.follow(snapshot.fleet.replicas)
        self.engine_metrics.follow(snapshot.fleet.replicas)
        self._known.set()

    def _confirmed(self) -> None:
        self.process.confirmed()
        self.process.degraded.pop("configuration", None)
        self._known.set()

    def _lost(self, why: str) -> None:
        if "configuration" not in self.process.degraded:
            log.warning("Postgres is away, the last configuration stays in force: %s", why)
        self.process.degraded["configuration"] = why

    async def _keep(self, rows: Rows) -> None:
        if self.process.identity.process == 0:
            await asyncio.to_thread(snapshot_file.save, self.config.snapshot_path, rows)

    def _went(self, part: str, why: str | None) -> None:
        """A part works as it should (None), or says what it lacks."""
        if why is None:
            self.process.degraded.pop(part, None)
        else:
            self.process.degraded[part] = why

    # -- once a second -----------------------------------------------------------------

    async def _beat(self) -> None:
        while True:
            process = self.process
            process.driver.sweep()
            self._went("live", self.publisher.last_error)
            process.numbers.update(
                {
                    "configuration_reloads_total": self.listener.reloads,
                    "configuration_reload_seconds": self.listener.last_reload_s or 0.0,
                    "recorder_batches_written_total": self.recorder.written,
                    "recorder_failures_total": self.recorder.failed,
                    "recorder_windows_waiting": len(self.outbox),
                    "recorder_windows_merged_total": self.outbox.merged,
                    "usage_cells": len(process.usage),
                    "upstream_resent_total": self.client.resent,
                    "probes_total": self.prober.sent,
                    "gc_seconds_total": self.garbage.spent_s,
                    "gc_worst_ms": self.garbage.worst_ms,
                    "gc_found_total": self.garbage.found,
                    "engine_pages_read_total": self.engine_metrics.read,
                    "gateways_live": self.leases.live_gateways,
                }
            )
            if self.quotas is not None:
                process.numbers["quota_error_bound"] = self.quotas.error_bound()
                process.numbers["quota_renewals_total"] = self.quotas.renewals
                process.numbers["quota_store_failures_total"] = self.quotas.failures
            await self.publisher.publish(process.view())
            await step(BEAT_S)

    async def _watch_lag(self) -> None:
        """How late the scheduler's timers fire, and this one: the worst of the last second."""
        driver = self.process.driver
        late_ms = 0.0
        while True:
            before_ms, late_ms = late_ms, max(await step(LAG_STEP_S), 0.0) * 1000.0
            late_ms, driver.late_ms = max(late_ms, driver.late_ms), 0.0
            self.process.lag_ms = round(max(before_ms, late_ms), 3)


def _report_end(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("%s ended", task.get_name(), exc_info=error)
