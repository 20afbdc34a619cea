"""Which version serves whom, and what of it counts as evidence."""

from collections import Counter
from dataclasses import replace

from engine.outcomes import Outcome
from engine.types import Arm, Request, SplitSpec, Strategy
from tests.engine.harness import Table, replica, snapshot

TWO = [replica("a"), replica("b", version="v2")]


def _split(ratio: float, *, shadow: bool = False) -> SplitSpec:
    return SplitSpec(
        model="m", baseline="v1", canary="v2", canary_ratio=ratio, salt="salt", shadow=shadow
    )


def _serve(table: Table, sessions: int, **changes: object) -> dict[str, str]:
    """Serve one request for each session; returns the version that each one met."""
    names = {}
    for number in range(sessions):
        names[f"s{number}"] = str(table.submit(session_key=f"s{number}", **changes))
        for dispatch in table.advance(50.0):
            table.finish(dispatch, execution_ms=20.0)
        for dispatch in list(table.running.values()):
            table.finish(dispatch, execution_ms=20.0)
    return {session: str(table.delivered[name].version) for session, name in names.items()}


def test_widening_the_split_keeps_everyone_who_is_on_the_canary() -> None:
    seen: dict[str, set[str]] = {}
    for percent in (5, 25, 60):
        table = Table(shot=snapshot(TWO, split=_split(percent / 100)))
        versions = _serve(table, 200)
        seen[str(percent)] = {s for s, version in versions.items() if version == "v2"}
    assert seen["5"] < seen["25"] < seen["60"]


def test_a_testers_override_reaches_its_version_and_stays_out_of_the_evidence() -> None:
    table = Table(shot=snapshot(TWO, split=_split(0.0)))
    versions = _serve(table, 20, version="v2")
    assert Counter(versions.values()) == {"v2": 20}
    table.advance(2000.0)
    assert not [w for w in table.scheduler.windows() if w.version == "v2" and w.served]


def test_an_override_that_names_no_version_is_refused_with_the_known_ones() -> None:
    table = Table(shot=snapshot(TWO, split=_split(0.0)))
    refusal = table.submit(version="v9")
    assert not isinstance(refusal, str)
    assert refusal.code == "invalid_request"
    assert refusal.details["known"] == ["v1", "v2"]


def test_a_shadow_canary_gets_a_copy_and_its_answer_reaches_nobody() -> None:
    table = Table(shot=snapshot(TWO, split=_split(1.0, shadow=True)))
    versions = _serve(table, 20)
    assert Counter(versions.values()) == {"v1": 20}
    assert {d.version for d in table.dispatches if d.shadow} == {"v2"}
    assert table.scheduler.conservation()["arrived"] == 20
    table.advance(2000.0)
    served: Counter[str] = Counter()
    for window in table.scheduler.windows():
        served[window.version] += window.served
    assert served == {"v1": 20, "v2": 20}


def test_a_failed_batch_counts_as_a_failure_of_each_of_its_members() -> None:
    table = Table(shot=snapshot([replica("b", version="v2")], split=_split(1.0)))
    for number in range(16):
        table.submit(session_key=f"s{number}")
    failed = 0
    for _ in range(200):
        for dispatch in list(table.running.values()):
            failed += len(dispatch.requests)
            table.finish(dispatch, Outcome.FAULT)
        if not table.scheduler.in_flight:
            break
        table.advance(20.0)
    assert failed >= 16
    table.advance(3000.0)
    windows = [w for w in table.scheduler.windows() if w.arm is Arm.CANARY]
    assert sum(w.faults for w in windows) == failed


def test_an_abort_brings_home_even_those_who_wait_for_the_canary() -> None:
    table = Table(shot=snapshot(TWO, split=_split(1.0)))
    table.submit(session_key="first", deadline_ms=9000.0)
    table.advance(50.0)
    waiting = str(table.submit(session_key="second", deadline_ms=9000.0))
    table.poll()
    table.scheduler.apply(snapshot(TWO, revision=2, split=SplitSpec(model="m", baseline="v1")))
    dispatches = table.advance(100.0)
    assert [d.version for d in dispatches] == ["v1"]
    table.finish(dispatches[0])
    assert table.delivered[waiting].version == "v1"


def test_a_slow_canary_does_not_become_its_own_yardstick() -> None:
    table = Table(shot=snapshot(TWO, split=_split(0.5)))
    for number in range(400):
        table.submit(session_key=f"s{number}")
        for _ in range(2):
            for dispatch in [*table.poll(), *list(table.running.values())]:
                if dispatch.lease_id in table.running:
                    slow_ms = 60.0 if dispatch.version == "v2" else 20.0
                    table.clock.advance(slow_ms)
                    table.finish(dispatch, execution_ms=slow_ms)
    table.advance(2000.0)
    ratios: dict[str, list[int]] = {"v1": [], "v2": []}
    for window in table.scheduler.windows()[-40:]:
        ratios[window.version] += [b for b, n in window.execution.items() for _ in range(n)]
    median = {v: sorted(buckets)[len(buckets) // 2] for v, buckets in ratios.items()}
    assert median["v2"] > median["v1"] + 30  # buckets of 2 %: three times slower is 55 of them


def test_explain_tells_every_comparison_of_a_served_and_of_a_refused_request() -> None:
    table = Table(shot=snapshot(TWO, split=_split(0.3)))
    name = str(table.submit(session_key="alice"))
    for dispatch in table.advance(50.0):
        table.finish(dispatch)
    record = table.scheduler.explain(name)
    assert record is not None
    stages = [stage["stage"] for stage in record["stages"]]  # type: ignore[attr-defined, index]
    assert stages == ["admission", "split", "queue", "batch", "route", "outcome"]
    assert record["state"] == "done"
    table.submit(model="nope", request_id="lost")
    refused = table.scheduler.explain("lost")
    assert refused is not None
    assert refused["refusal"]["code"] == "model_not_found"  # type: ignore[index]
    assert table.scheduler.explain("never-seen") is None


def test_a_quote_takes_nothing_and_agrees_with_what_submit_would_say() -> None:
    table = Table(shot=snapshot([replica("a", draining=True)]))
    now_ms = table.clock.now_ms()
    request = Request(
        request_id="q",
        tenant="acme",
        model="m",
        prompt_tokens=100,
        deadline_ms=now_ms + 1000.0,
        arrived_ms=now_ms,
    )
    quote = table.scheduler.quote(request)
    assert quote.refusal is not None
    assert quote.refusal.code == "no_capacity"
    assert table.scheduler.conservation()["arrived"] == 0


def test_affinity_keeps_a_model_where_it_is_warm_and_still_uses_the_rest_under_load() -> None:
    shot = snapshot(
        [
            replica("cold", max_batch_size=4, loaded_models=frozenset({"other"})),
            replica("warm", max_batch_size=4, loaded_models=frozenset({"m"})),
        ]
    )
    spec = replace(shot.models["m"], strategy=Strategy.AFFINITY)
    table = Table(shot=replace(shot, models={"m": spec}))
    for _ in range(20):
        table.submit()
        for dispatch in table.advance(60.0):
            table.finish(dispatch)
    quiet = Counter(dispatch.replica_id for dispatch in table.dispatches)
    assert quiet["warm"] >= 18
    for _ in range(60):
        table.submit(deadline_ms=20_000.0)
    for _ in range(400):
        table.advance(20.0)
        for dispatch in list(table.running.values()):
            table.finish(dispatch)
    assert table.scheduler.in_flight == 0
