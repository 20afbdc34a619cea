"""A model with versions, and what its gateways would have recorded: rows by the real book.

Time is the test's own: rollouts start at `START` and evidence is written for the seconds
that the test asks for, so nothing waits.
"""

import random
from datetime import UTC, datetime, timedelta

from engine.rollout.evidence import EvidenceBook, WindowRecord
from engine.types import Arm
from fleet import services as fleet_services
from fleet.models import Replica, TrafficSplit, WindowStat
from rollouts import services
from rollouts.evaluation import evaluate_due
from rollouts.models import Decision, Rollout
from rollouts.timing import LATENESS_S

START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
POLICY = {"steps": [5, 25, 50, 100], "intervalS": 4}
SPREAD = 0.3


def fleet(*versions: str, model: str = "m", replicas: int = 2) -> None:
    """A model whose first version is stable, each version on some replicas."""
    versions = versions or ("v1", "v2", "v3")
    for version in versions:
        for number in range(replicas):
            fleet_services.register_replica(
                fleet_services.Registration(
                    replica_id=f"{model}-{version}-{number}",
                    model=model,
                    version=version,
                    address=f"http://127.0.0.1:{9100 + number}",
                ),
                actor="test",
                heartbeat=False,
            )
    fleet_services.set_split(model, baseline=versions[0], actor="test")


def history(
    seconds: int = 60, *, model: str = "m", version: str = "v1", per_s: int = 100, seed: int = 1
) -> None:
    """The baseline alone, before `START`."""
    began = START - timedelta(seconds=seconds)
    traffic(began, seconds, model=model, baseline=version, per_s=per_s, seed=seed)


def traffic(
    start: datetime,
    seconds: int,
    *,
    model: str = "m",
    baseline: str = "v1",
    canary: str | None = None,
    percent: float = 0.0,
    per_s: int = 100,
    slowdown: float = 0.0,
    slow_by: float = 0.0,
    faults: float = 0.0,
    baseline_faults: float = 0.0,
    cold: bool = False,
    gateways: int = 1,
    latency_ms: float = 40.0,
    seed: int = 1,
) -> None:
    """What the gateways recorded in these seconds, split between the arms."""
    rng = random.Random(f"{seed} {start.timestamp()}")
    rows = []
    for gateway in range(gateways):
        book = EvidenceBook(1000.0, 0.0)
        for second in range(seconds):
            for number in range(per_s // gateways):
                now_ms = second * 1000.0 + number
                point = rng.random()
                on_canary = canary is not None and point * 100.0 < percent
                arm = Arm.CANARY if on_canary else Arm.BASELINE
                version = canary if on_canary and canary is not None else baseline
                book.arrived(model, version, arm, point, now_ms)
                ratio = faults if on_canary else baseline_faults
                if rng.random() < ratio:
                    book.fault(model, version, arm, now_ms)
                    continue
                execution = rng.lognormvariate(0.0, SPREAD) * (1.0 + slow_by)
                if on_canary:
                    execution *= 1.0 + slowdown
                book.served(
                    model,
                    version,
                    arm,
                    None if cold and on_canary else execution,
                    1.0,
                    latency_ms * execution,
                    True,
                    20,
                    5,
                    now_ms,
                )
            for arm, version in ((Arm.BASELINE, baseline), (Arm.CANARY, canary)):
                if version is not None:
                    size = rng.randint(1, 8)
                    book.batch(
                        model, version, arm, size, second * 1000.0, busy_ms=2.0 + 0.02 * 25 * size
                    )
        records = book.close_windows(seconds * 1000.0)
        rows += [_row(record, start, f"g{gateway}") for record in records]
    WindowStat.objects.bulk_create(rows)


def _row(record: WindowRecord, start: datetime, gateway: str) -> WindowStat:
    return WindowStat(
        gateway=gateway,
        window_start=start + timedelta(milliseconds=record.start_ms),
        model=record.model,
        version=record.version,
        arm=record.arm.value,
        served=record.served,
        faults=record.faults,
        sheds=record.sheds,
        misses=record.misses,
        cancelled=record.cancelled,
        client_errors=record.client_errors,
        refused=record.refused,
        execution=record.execution,
        latency=record.latency,
        batches=record.batches,
        items=record.items,
        busy_ms=record.busy_ms,
        prompt_tokens=record.prompt_tokens,
        completion_tokens=record.completion_tokens,
        assigned=record.assigned,
        sessions=record.sessions,
    )


def start(canary: str = "v2", **changes: object) -> Rollout:
    """Start a rollout at `START` with the short policy."""
    given: dict[str, object] = {
        "policy": POLICY,
        "actor": "ada",
        "reason": "because",
        "now": START,
    }
    given.update(changes)
    return services.start("m", canary, **given)  # type: ignore[arg-type]


def step(rollout: Rollout, **shape: object) -> Decision | None:
    """Record the window that is due next, then judge it at the moment it becomes due."""
    rollout.refresh_from_db()
    if rollout.due_at is None:
        return None
    if shape.pop("silent", False):
        shape["canary"] = None
    else:
        shape.setdefault("canary", rollout.canary)
    traffic(
        rollout.window_start,
        rollout.interval_s,
        model=rollout.model,
        baseline=rollout.baseline,
        percent=rollout.percent,
        **shape,  # type: ignore[arg-type]
    )
    evaluate_due(rollout.due_at)
    rollout.refresh_from_db()
    return rollout.decisions.order_by("-seq").first()


def run(rollout: Rollout, windows: int = 60, **shape: object) -> list[str]:
    """Judge window after window until the rollout ends; the verdicts' names."""
    names = []
    for _ in range(windows):
        decision = step(rollout, **shape)
        if decision is None:
            break
        names.append(decision.name)
        if not rollout.is_active:
            break
    return names


def split_of(model: str = "m") -> tuple[str, str | None, float]:
    split = TrafficSplit.objects.select_related("baseline", "canary").get(model__name=model)
    return split.baseline.name, split.canary and split.canary.name, split.canary_percent


__all__ = ["LATENESS_S", "START", "Replica"]
