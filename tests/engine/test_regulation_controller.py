"""The four rules, each by itself, and the silence where something is not known."""

from dataclasses import replace

import pytest

from engine.errors import InvalidInput
from engine.regulation.controller import (
    Observation,
    Regulation,
    RegulationConfig,
    RegulationController,
    Rule,
)

CALM = Observation(
    p95_ms=60.0,
    busy_ratio=0.3,
    memory_ratio=0.4,
    queue_depth=0,
    queue_room=300,
    round_size=32,
    execution_ms=40.0,
)
LATE = replace(CALM, p95_ms=300.0, busy_ratio=0.99)
CONTENDED = replace(LATE, execution_ms=250.0)
OVERLOADED = replace(LATE, execution_ms=50.0, queue_depth=80)


def controller(**changes: float) -> RegulationController:
    return RegulationController(
        RegulationConfig(slo_ms=150.0, max_workers=4, batch_size=8, **changes)  # type: ignore[arg-type]
    )


def limits(decision: Regulation) -> tuple[int, int, bool]:
    return decision.max_workers, decision.batch_size, decision.admission_control


def test_long_execution_on_a_busy_machine_takes_a_worker_and_shrinks_the_batch() -> None:
    decision = controller().decide(CONTENDED, 2000.0)
    assert decision.rule is Rule.CONTENTION
    assert limits(decision) == (3, 6, False)
    assert "p95 300 ms" in decision.text
    assert "workers 4 -> 3, batch 8 -> 6" in decision.text
    assert decision.numbers["busy_ratio"] == 0.99


def test_a_growing_queue_turns_admission_control_on_and_takes_no_worker() -> None:
    decision = controller().decide(OVERLOADED, 2000.0)
    assert decision.rule is Rule.OVERLOAD
    assert limits(decision) == (4, 8, True)


def test_room_to_spare_gives_back_workers_and_batch_and_opens_the_gate() -> None:
    regulated = controller(regrow_hold_ms=0.0)
    regulated.decide(CONTENDED, 2000.0)
    regulated.decide(OVERLOADED, 4000.0)
    decision = regulated.decide(CALM, 8000.0)
    assert decision.rule is Rule.HEADROOM
    assert limits(decision) == (4, 8, False)
    assert "admission control off" in decision.text


def test_memory_pressure_shrinks_the_batch_whatever_else_holds() -> None:
    regulated = controller()
    assert limits(regulated.decide(replace(CALM, memory_ratio=0.9), 2000.0)) == (4, 6, False)
    assert limits(regulated.decide(replace(CONTENDED, memory_ratio=0.9), 4000.0)) == (3, 3, False)


@pytest.mark.parametrize("unknown", ["p95_ms", "busy_ratio"])
@pytest.mark.parametrize("seen", [CONTENDED, OVERLOADED, replace(CALM, memory_ratio=0.99)])
def test_nothing_is_decided_where_latency_or_use_is_unknown(
    seen: Observation, unknown: str
) -> None:
    regulated = controller()
    decision = regulated.decide(replace(seen, **{unknown: None}), 2000.0)  # type: ignore[arg-type]
    assert decision.rule is Rule.NO_DATA
    assert not decision.changed
    assert limits(decision) == (4, 8, False)
    assert regulated.last_change is None


def test_limits_stop_at_their_floor_and_at_what_was_configured() -> None:
    regulated = controller(regrow_hold_ms=0.0)
    for step in range(30):
        floor = regulated.decide(CONTENDED, 2000.0 * step)
    assert limits(floor) == (1, 1, False)
    for step in range(30, 60):
        top = regulated.decide(CALM, 2000.0 * step)
    assert limits(top) == (4, 8, False)


def test_a_worker_taken_by_mistake_comes_back_and_is_not_taken_again() -> None:
    regulated = controller()
    regulated.decide(CONTENDED, 2000.0)
    idle = replace(LATE, busy_ratio=0.5, refused=40, subject=60)
    assert regulated.decide(idle, 4000.0).max_workers == 4
    assert regulated.decide(CONTENDED, 6000.0).max_workers == 4


def test_the_gate_stays_on_while_it_is_still_needed() -> None:
    regulated = controller()
    regulated.decide(OVERLOADED, 0.0)
    for step in range(1, 20):
        needed = replace(CALM, busy_ratio=0.9, refused=30, subject=100)
        assert regulated.decide(needed, 2000.0 * step).admission_control
    opened = regulated.decide(replace(CALM, busy_ratio=0.9, subject=100), 40_000.0)
    assert not opened.admission_control


def test_the_gate_opens_where_latency_is_fine_but_never_low() -> None:
    regulated = controller()
    regulated.decide(OVERLOADED, 0.0)
    ordinary = replace(CALM, p95_ms=120.0, busy_ratio=0.7, subject=100)
    assert not regulated.decide(ordinary, 2000.0).admission_control


def test_a_smaller_batch_must_still_carry_the_demand() -> None:
    regulated = controller()
    assert regulated.decide(replace(CONTENDED, batch_floor=7), 2000.0).batch_size == 7
    assert regulated.decide(replace(CONTENDED, batch_floor=7), 4000.0).batch_size == 7


def test_a_forecast_past_the_objective_asks_for_a_decision_before_the_next_tick() -> None:
    regulated = controller()
    assert not regulated.alarm(400.0, 1000.0)
    assert regulated.alarm(400.0, 1200.0)
    assert not regulated.alarm(None, 1300.0)
    assert not regulated.alarm(400.0, 1400.0), "a peak that ended does not count as lasting"


@pytest.mark.parametrize(
    ("field", "value"),
    [("slo_ms", 0.0), ("slo_ms", float("nan")), ("max_workers", 0), ("calm_ratio", 0.9)],
)
def test_a_config_out_of_range_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(InvalidInput, match=field):
        RegulationConfig(**{field: value})  # type: ignore[arg-type]
