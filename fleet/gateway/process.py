"""What one gateway process is: its identity, its configuration, its engine and its counts.

Endpoints and background parts meet here and nowhere else. Nothing in it waits.
"""

import dataclasses
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from engine.admission.leased_bucket import QuotaLeases
from engine.admission.quote import Quote
from engine.errors import InvalidInput, Refusal, RefusalCode
from engine.scheduler import Scheduler
from engine.types import Request
from fleet.gateway.clock import MonotonicClock
from fleet.gateway.driver import Driver
from fleet.gateway.errors import Problem
from fleet.gateway.identity import Identity
from fleet.gateway.snapshot import EMPTY, Snapshot
from fleet.gateway.usage import UNKNOWN_MODEL, UsageBook

log = logging.getLogger("halcyon.gateway")

RETRY_WHEN_READY_MS = 1000.0
LEASE_DELAY_MS = 250.0  # a leased block takes up to two renewals to arrive
_FIELDS = {"prompt_tokens": "input", "items": "input", "deadline_ms": "deadlineMs"}


class Process:
    """The state of one gateway process. Single-threaded: the event loop's."""

    def __init__(
        self, identity: Identity, clock: MonotonicClock, scheduler: Scheduler, driver: Driver
    ) -> None:
        self.identity = identity
        self.clock = clock
        self.scheduler = scheduler
        self.driver = driver
        self.usage = UsageBook(clock)
        self.snapshot: Snapshot = EMPTY
        self.snapshot_at_ms: float | None = None  # when Postgres last confirmed it
        self.draining = False
        self.leases: QuotaLeases | None = None
        self.degraded: dict[str, str] = {}  # what is lame now, and why
        self.answers: dict[tuple[str, int], int] = {}  # by route and status
        self.refused_by_code: dict[str, int] = {}
        self.lag_ms: float | None = None  # the event loop's, worst of the last second
        self.probed: dict[str, bool] = {}  # by replica: what the last probe said
        self.numbers: dict[str, float] = {}  # gauges and totals of the background parts

    # -- requests --------------------------------------------------------------------

    def submit(self, request: Request) -> Refusal | None:
        """Ask the engine. None: the answer comes to `request.payload`. Raises `Problem`."""
        try:
            refusal = self.driver.submit(request)
        except InvalidInput as error:
            raise _senseless(error) from None
        if refusal is not None:
            self.count_refused(request, refusal.code)
            if refusal.code is RefusalCode.QUOTA_EXCEEDED and self._in_company():
                refusal = _when_leased(refusal)
        return refusal

    def _in_company(self) -> bool:
        return self.leases is not None and self.leases.live_gateways > 1

    def quote(self, request: Request) -> Quote:
        """Ask the engine what it would do. Raises `Problem`."""
        try:
            return self.scheduler.quote(request)
        except InvalidInput as error:
            raise _senseless(error) from None

    def cancel(self, request: Request, prompt: int = 0, completion: int = 0) -> None:
        """The client of `request` left, having used these tokens."""
        request.payload = None
        if prompt:
            self.count_spent(request, prompt, completion)
        self.driver.cancel(request.request_id)
        self.count_refused(request, "cancelled")

    def count_served(self, request: Request, prompt: int, completion: int, at_ms: float) -> None:
        """`request` was answered."""
        self.usage.served(request.tenant, request.model, prompt, completion, at_ms)

    def count_spent(self, request: Request, prompt: int, completion: int) -> None:
        """`request` ended early, having used these tokens."""
        self.usage.spent(request.tenant, request.model, prompt, completion, self.clock.now_ms())

    def count_refused(self, request: Request, code: str) -> None:
        """`request` was refused, failed or left."""
        known = request.model in self.snapshot.fleet.models
        model = request.model if known else UNKNOWN_MODEL
        code = str(code)
        self.refused_by_code[code] = self.refused_by_code.get(code, 0) + 1
        self.usage.refused(request.tenant, model, code, self.clock.now_ms())

    def observe(self, path: str, status: int) -> None:
        """An answer left."""
        key = (path, status)
        self.answers[key] = self.answers.get(key, 0) + 1

    # -- configuration ---------------------------------------------------------------

    def adopt(self, snapshot: Snapshot) -> None:
        """Make `snapshot` the configuration in force."""
        for line in snapshot.rejected:
            log.warning("left out of the configuration: %s", line)
        self.driver.replicas = snapshot.fleet.replicas
        self.scheduler.apply(snapshot.fleet)
        self.snapshot = snapshot
        self.driver.touch()

    def confirmed(self) -> None:
        """Postgres says that the configuration in force is the current one."""
        self.snapshot_at_ms = self.clock.now_ms()

    def drain(self) -> None:
        """Refuse new work from now on; what is held is answered."""
        self.draining = True
        self.scheduler.drain()
        self.driver.touch()

    def require_configuration(self) -> Snapshot:
        """The snapshot in force. Raises `Problem` while there is none."""
        if self.snapshot is EMPTY:
            raise Problem(
                RefusalCode.NO_CAPACITY,
                "this gateway has no configuration yet: Postgres has not answered",
                retry_after_ms=RETRY_WHEN_READY_MS,
            )
        return self.snapshot

    # -- telling ---------------------------------------------------------------------

    def ready(self) -> bool:
        """Whether a load balancer should send work here."""
        return self.snapshot is not EMPTY and not self.draining

    def snapshot_age_s(self) -> float | None:
        """Since Postgres last confirmed the configuration; None if it never did."""
        if self.snapshot_at_ms is None:
            return None
        return (self.clock.now_ms() - self.snapshot_at_ms) / 1000.0

    def about(self) -> dict[str, Any]:
        """The gateway's own section of the live view."""
        started = self.identity.started_at
        return {
            "id": self.identity.gateway_id,
            "process": self.identity.process,
            "startedAt": datetime.fromtimestamp(started, UTC).isoformat(),
            "uptimeS": round(self.clock.uptime_s(), 3),
            "eventLoopLagMs": self.lag_ms,
            "snapshotRevision": self.snapshot.revision,
            "snapshotAgeS": self.snapshot_age_s(),
            "degraded": sorted(self.degraded),
            "draining": self.draining,
        }

    def view(self) -> Mapping[str, Any]:
        """The scheduler's view, with what probes know, sampled decision records, and the
        gateway's section."""
        view = self.scheduler.view()
        for replica in view["replicas"]:
            if replica["status"] == "unknown" and self.probed.get(replica["replicaId"]):
                replica["status"] = "healthy"  # ready, and not needed yet
        return {**view, "requests": self.scheduler.samples(), "gateway": self.about()}


def _when_leased(refusal: Refusal) -> Refusal:
    """The same refusal, to come back once a leased block can have arrived."""
    if refusal.retry_after_ms is None:
        return refusal
    return dataclasses.replace(refusal, retry_after_ms=refusal.retry_after_ms + LEASE_DELAY_MS)


def _senseless(error: InvalidInput) -> Problem:
    """What the engine cannot accept, in the field's name on the wire."""
    field = _FIELDS.get(error.field, error.field)
    return Problem("invalid_request", f"{field}: {error.remedy}", details={"field": field})
