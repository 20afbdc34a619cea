"""Usage cells, the outbox and snapshots: what must add up, adds up."""

import random
from datetime import timedelta

import msgspec
import pytest

from engine.rollout.evidence import WindowRecord
from engine.types import Arm, Priority
from fleet.gateway import outbox as outbox_module
from fleet.gateway import snapshot_file
from fleet.gateway import usage as usage_module
from fleet.gateway.clock import MonotonicClock
from fleet.gateway.identity import Identity, process_of
from fleet.gateway.outbox import Outbox
from fleet.gateway.snapshot import (
    EMPTY,
    SLICE,
    KeyRow,
    ModelRow,
    ReplicaRow,
    Rows,
    SplitRow,
    TenantRow,
    VersionRow,
    build,
    equal,
)
from fleet.gateway.usage import UsageBook

MINUTE_MS = 60_000.0


class ShiftedClock(MonotonicClock):
    """The real clock, some minutes on."""

    def __init__(self) -> None:
        super().__init__()
        self.extra_ms = 0.0

    def now_ms(self) -> float:
        return super().now_ms() + self.extra_ms


def record(second: int, served: int = 1, arm: Arm = Arm.BASELINE) -> WindowRecord:
    return WindowRecord(
        model="m",
        version="v1",
        arm=arm,
        seq=second,
        start_ms=second * 1000.0,
        served=served,
        execution={10: served},
        latency={20: served, second % 7: 1},
        refused={"overloaded": 1},
        prompt_tokens=3 * served,
    )


class TestUsage:
    def test_a_row_holds_absolute_counts_and_is_written_again_only_when_it_moved(self) -> None:
        clock = MonotonicClock()
        book = UsageBook(clock)
        book.served("acme", "m", 10, 3, clock.now_ms())
        book.refused("acme", "m", "overloaded", clock.now_ms())
        rows, receipt = book.collect()
        assert [row[3:] for row in rows] == [(2, 1, {"overloaded": 1}, 10, 3)]
        book.served("acme", "m", 10, 3, clock.now_ms())  # while the batch is on its way
        book.written(receipt)
        again, receipt = book.collect()
        assert [row[3] for row in again] == [3]
        book.written(receipt)
        assert book.collect()[0] == []

    def test_closed_minutes_are_forgotten_once_they_are_written(self) -> None:
        clock = ShiftedClock()
        book = UsageBook(clock)
        for _ in range(3):
            book.served("acme", "m", 1, 1, clock.now_ms())
            clock.extra_ms += MINUTE_MS
        assert len(book) == 3
        rows, receipt = book.collect()
        assert len({row[2] for row in rows}) == 3
        book.written(receipt)
        assert len(book) == 1

    def test_a_long_outage_folds_minutes_and_loses_no_request(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(usage_module, "MAX_CELLS", 60)
        clock = ShiftedClock()
        book = UsageBook(clock)
        for _ in range(40):
            for tenant in range(10):
                book.served(f"t{tenant}", "m", 2, 1, clock.now_ms())
            clock.extra_ms += MINUTE_MS
        assert len(book) <= 80
        rows, _ = book.collect()
        assert sum(row[3] for row in rows) == 400
        assert sum(row[6] for row in rows) == 800

    def test_cells_that_may_be_in_the_database_are_never_folded(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(usage_module, "MAX_CELLS", 4)
        clock = ShiftedClock()
        book = UsageBook(clock)
        book.served("acme", "m", 1, 1, clock.now_ms())
        sent, _ = book.collect()
        for _ in range(8):
            clock.extra_ms += MINUTE_MS
            book.served("acme", "m", 1, 1, clock.now_ms())
        rows, _ = book.collect()
        assert sent[0][2] in {row[2] for row in rows}
        assert sum(row[3] for row in rows) == 9


class TestOutbox:
    def make(self) -> Outbox:
        clock = MonotonicClock()
        return Outbox("g", clock, UsageBook(clock))

    def test_a_batch_stays_the_same_until_it_is_written(self) -> None:
        box = self.make()
        assert box.batch() is None
        box.add([record(1), record(2)])
        first = box.batch()
        box.add([record(3)])
        assert box.batch() is first
        assert first is not None
        box.written()
        second = box.batch()
        assert second is not None
        assert (first.sequence, second.sequence) == (1, 2)
        assert [len(first.windows), len(second.windows)] == [2, 1]

    def test_a_long_outage_sums_neighbours_of_an_arm_and_keeps_every_total(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(outbox_module, "MAX_WINDOWS", 50)
        rng = random.Random(3)
        box = self.make()
        served = 0
        for second in range(400):
            for arm in Arm:
                count = rng.randrange(1, 9)
                served += count
                box.add([record(second, count, arm)])
        assert len(box) <= 52
        rows = []
        while (batch := box.batch()) is not None:
            rows += batch.windows
            box.written()
        assert sum(row.served for row in rows) == served
        assert sum(sum(row.execution.values()) for row in rows) == served
        assert sum(row.prompt_tokens for row in rows) == 3 * served
        assert sum(row.refused["overloaded"] for row in rows) == 800
        keys = [(row.arm, row.window_start) for row in rows]
        assert len(set(keys)) == len(keys)


def rows(**changes: object) -> Rows:
    values: dict[str, object] = {
        "models": [ModelRow("m", "peak_ewma", 1000.0, 1.0)],
        "versions": [VersionRow("m", "v1"), VersionRow("m", "v2")],
        "splits": [SplitRow("m", "v1", "v2", 25.0, "salt", False)],
        "replicas": [replica("r1")],
        "tenants": [TenantRow("acme", 2, 1.0, 600, 50, None, None, 4, True)],
        "keys": [KeyRow("ab" * 32, "acme", None, True), KeyRow("cd" * 32, "nobody", None, False)],
        **changes,
    }
    return Rows(revision=5, read_at=100.0, **values)  # type: ignore[arg-type]


def replica(replica_id: str, **changes: object) -> ReplicaRow:
    values: dict[str, object] = {
        "model": "m",
        "version": "v1",
        "address": "http://127.0.0.1:1",
        "protocol": "batch",
        "weight": 1.0,
        "accelerator": "cpu",
        "work_unit": "tokens",
        "max_batch_size": 8,
        "max_batch_tokens": 1000,
        "max_concurrency": 1,
        "draining": False,
        "loaded_models": ("m",),
        "gpu_memory_ratio": None,
        "started_at": 40.0,
        **changes,
    }
    return ReplicaRow(replica_id=replica_id, **values)  # type: ignore[arg-type]


class TestSnapshot:
    def test_rows_become_what_the_engine_understands(self) -> None:
        snapshot = build(rows())
        split = snapshot.fleet.models["m"].split
        assert split is not None
        assert (split.baseline, split.canary, split.canary_ratio) == ("v1", "v2", 0.25)
        assert snapshot.fleet.replicas["r1"].age_s == 60.0
        tenant = snapshot.fleet.tenants["acme"]
        assert (tenant.requests_per_s, tenant.requests_burst, tenant.tokens_per_s) == (10, 50, None)
        (entry,) = snapshot.keys.values()  # the other key belongs to nobody
        assert (entry.tenant, entry.priority, entry.may_choose_version) == (
            "acme",
            Priority.HIGH,
            True,
        )

    def test_one_bad_row_is_left_out_by_name(self) -> None:
        snapshot = build(
            rows(
                replicas=[replica("good"), replica("bad", weight=0.0), replica("odd", protocol="x")]
            )
        )
        assert set(snapshot.fleet.replicas) == {"good"}
        assert [line.split(":")[0] for line in snapshot.rejected] == ["replica bad", "replica odd"]

    def test_unchanged_rows_keep_their_specs_and_changed_ones_do_not(self) -> None:
        first = build(rows())
        second = build(rows(), first)
        assert second.fleet.tenants["acme"] is first.fleet.tenants["acme"]
        assert second.fleet.replicas["r1"] is first.fleet.replicas["r1"]
        assert second.keys is first.keys
        changed = TenantRow("acme", 0, 1.0, 600, 50, None, None, 4, True)
        third = build(rows(tenants=[changed], replicas=[replica("r1", draining=True)]), second)
        assert third.fleet.replicas["r1"].draining
        assert {entry.priority for entry in third.keys.values()} == {Priority.LOW}

    def test_a_kept_configuration_is_stale_and_complete(self, tmp_path: object) -> None:
        path = tmp_path / "deep" / "snapshot.msgpack"  # type: ignore[operator]
        assert snapshot_file.restore(path) is None
        snapshot_file.save(path, rows())
        restored = snapshot_file.restore(path)
        assert restored is not None
        assert restored.stale
        assert restored.fleet == build(rows()).fleet
        assert path.stat().st_mode & 0o077 == 0
        path.write_bytes(b"\x00 not a snapshot")
        assert snapshot_file.restore(path) is None

    def test_the_file_is_written_in_parts_that_are_one_message(self) -> None:
        many = rows(
            tenants=[
                TenantRow(f"t{n}", 1, 1.0, None, None, 60.5, None, None, True) for n in range(1000)
            ],
            keys=[KeyRow(f"{n:064x}", f"t{n}", None, False) for n in range(1000)],
        )
        for these in (many, rows(), Rows(revision=3, read_at=4.5)):
            parts = list(snapshot_file.encoded(these))
            assert msgspec.msgpack.decode(b"".join(parts), type=Rows) == these
        parts = [len(part) for part in snapshot_file.encoded(many)]
        assert max(parts) < sum(parts) / 4  # none of them holds up the loop for long

    @pytest.mark.parametrize("size", [0, 1, SLICE - 1, SLICE, SLICE + 1, 3 * SLICE + 7])
    def test_rows_are_compared_in_slices_as_they_would_be_whole(self, size: int) -> None:
        left = list(range(size))
        assert equal(left, list(left))
        assert not equal(left, [*left, 1])
        for place in {0, size // 2, size - 1} if size else ():
            assert not equal(left, [*left[:place], -1, *left[place + 1 :]])

    def test_nothing_is_in_force_before_the_first_one(self) -> None:
        assert EMPTY.stale
        assert EMPTY.revision == -1


def test_a_request_id_says_which_process_remembers_it() -> None:
    identity = Identity(8080, 12, host="a host/with odd*characters and a very long name indeed")
    assert len(identity.gateway_id) <= 64
    ids = {identity.next_request_id() for _ in range(100)}
    assert len(ids) == 100
    assert {process_of(request_id) for request_id in ids} == {12}
    for foreign in ("", "x", "abc", "12x-1", "12xzzzzzzzz-1", "../../etc", "9" * 400):
        assert process_of(foreign) is None


def test_windows_lie_on_whole_seconds_and_a_wall_clock_that_steps_back_moves_none() -> None:
    clock = MonotonicClock()
    at_ms = (clock.now_ms() // 1000.0) * 1000.0
    start = clock.wall(at_ms)
    assert abs(start.timestamp() - round(start.timestamp())) < 0.002
    assert clock.wall(at_ms + 1000.0) - start == timedelta(seconds=1)
    assert clock.monotonic_s(clock.now_ms()) > 0
