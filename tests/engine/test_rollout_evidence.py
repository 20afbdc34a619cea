"""What a gateway counts, window by window."""

from math import nan

import pytest

from engine.errors import InvalidInput, RefusalCode
from engine.rollout.evidence import EvidenceBook, WindowRecord, sparse_of
from engine.rollout.splitter import point_of
from engine.stats.histogram import LogHistogram
from engine.types import Arm


def book() -> EvidenceBook:
    return EvidenceBook(1000.0, 0.0)


def serve(evidence: EvidenceBook, arm: Arm, now_ms: float, **changes: object) -> None:
    values: dict[str, object] = {
        "execution_ms": 30.0,
        "predicted_ms": 20.0,
        "latency_ms": 50.0,
        "in_time": True,
        "prompt_tokens": 7,
        "completion_tokens": 3,
    }
    values.update(changes)
    version = "v2" if arm is Arm.CANARY else "v1"
    evidence.served("m", version, arm, now_ms=now_ms, **values)  # type: ignore[arg-type]


def only(records: list[WindowRecord]) -> WindowRecord:
    assert len(records) == 1
    return records[0]


def test_a_window_closes_once_and_holds_what_ended_in_it() -> None:
    evidence = book()
    serve(evidence, Arm.CANARY, 10.0)
    assert evidence.close_windows(999.0) == []
    record = only(evidence.close_windows(1000.0))
    assert (record.seq, record.start_ms, record.served) == (0, 0.0, 1)
    assert record.prompt_tokens == 7
    assert evidence.close_windows(5000.0) == []


def test_a_window_that_saw_nothing_leaves_no_record() -> None:
    evidence = book()
    serve(evidence, Arm.CANARY, 10.0)
    serve(evidence, Arm.CANARY, 5010.0)
    assert [r.seq for r in evidence.close_windows(9000.0)] == [0, 5]


def test_timings_are_relative_to_the_prediction() -> None:
    evidence = book()
    serve(evidence, Arm.CANARY, 10.0, execution_ms=30.0, predicted_ms=20.0)
    record = only(evidence.close_windows(1000.0))
    ratio = LogHistogram.from_sparse(record.execution).quantile(0.5)
    assert ratio == pytest.approx(1.5, rel=0.01)


def test_a_replica_still_warming_up_counts_its_answers_but_not_its_timings() -> None:
    evidence = book()
    serve(evidence, Arm.CANARY, 10.0, execution_ms=None)
    record = only(evidence.close_windows(1000.0))
    assert record.served == 1
    assert record.execution == {}
    assert sum(record.latency.values()) == 1


def test_a_failed_batch_of_sixteen_is_sixteen_failures() -> None:
    evidence = book()
    evidence.fault("m", "v2", Arm.CANARY, 10.0, n=16)
    assert only(evidence.close_windows(1000.0)).faults == 16


def test_each_end_is_counted_for_what_it_is() -> None:
    evidence = book()
    evidence.shed("m", "v2", Arm.CANARY, RefusalCode.QUEUE_FULL, 1.0)
    evidence.shed("m", "v2", Arm.CANARY, RefusalCode.INVALID_REQUEST, 2.0)
    evidence.miss("m", "v2", Arm.CANARY, 3.0)
    evidence.cancelled("m", "v2", Arm.CANARY, 4.0)
    evidence.client_error("m", "v2", Arm.CANARY, 5.0)
    serve(evidence, Arm.CANARY, 6.0, in_time=False)
    evidence.batch("m", "v2", Arm.CANARY, 4, 7.0, busy_ms=12.5)
    record = only(evidence.close_windows(1000.0))
    assert (record.sheds, record.client_errors, record.misses, record.cancelled) == (1, 2, 2, 1)
    assert record.refused == {"queue_full": 1, "invalid_request": 1}
    assert (record.batches, record.items, record.busy_ms) == (1, 4, 12.5)


def test_sessions_are_estimated_and_requests_counted() -> None:
    evidence = book()
    for number in range(300):
        for _ in range(3):
            point = point_of("salt", f"s{number}")
            evidence.arrived("m", "v1", Arm.BASELINE, point, 10.0)
    record = only(evidence.close_windows(1000.0))
    assert record.assigned == 900
    assert record.sessions == pytest.approx(300, rel=0.1)


def test_nobody_counted_is_none_and_not_zero() -> None:
    evidence = book()
    serve(evidence, Arm.BASELINE, 10.0)
    record = only(evidence.close_windows(1000.0))
    assert record.assigned is None
    assert record.sessions is None


def test_what_is_not_a_number_is_left_out_of_the_histogram() -> None:
    assert sum(sparse_of([1.0, nan, float("inf"), -1.0, 2.0]).values()) == 2
    assert sparse_of([]) == {}


def test_bucketing_a_window_at_once_equals_recording_one_by_one() -> None:
    values = [0.0, 1e-7, 0.3, 1.0, 1.019, 1.021, 7.5, 1e6]
    histogram = LogHistogram()
    for value in values:
        histogram.record(value)
    assert sparse_of(values) == histogram.to_sparse()


def test_a_window_of_no_length_is_refused() -> None:
    with pytest.raises(InvalidInput, match="window_ms"):
        EvidenceBook(0.0)
