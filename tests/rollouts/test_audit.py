"""History is append-only, chained, and every verdict in it can be judged again."""

import pytest
from django.db import DatabaseError, connection, transaction

from fleet import services as fleet_services
from rollouts import services
from rollouts.audit import origin, record, verify
from rollouts.models import AuditEvent, Decision, Rollout
from rollouts.replay import replay
from tests.rollouts.scene import fleet, history, run, start

pytestmark = pytest.mark.django_db


@pytest.fixture
def finished() -> Rollout:
    fleet()
    history()
    rollout = start()
    run(rollout, slowdown=0.35)
    return rollout


def forge(sql: str) -> None:
    """Change a row as somebody who owns the database could: with the triggers off."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(sql)
        cursor.execute("SET LOCAL session_replication_role = origin")


def test_every_change_of_the_fleet_becomes_a_link(finished: Rollout) -> None:
    actions = set(AuditEvent.objects.values_list("action", flat=True))
    assert {"replica.registered", "version.created", "split.changed", "rollout.started"} <= actions
    seqs = list(AuditEvent.objects.order_by("seq").values_list("seq", flat=True))
    assert seqs == list(range(1, len(seqs) + 1))
    assert verify().intact


def test_a_replica_at_a_new_address_is_a_link_with_both() -> None:
    for address in ("http://127.0.0.1:9101", "http://10.0.0.7:9101", "http://10.0.0.7:9101"):
        registration = fleet_services.Registration(
            replica_id="r1", model="m", version="v1", address=address
        )
        fleet_services.register_replica(registration, actor="fleet (token hf_x)")
    (moved,) = AuditEvent.objects.filter(action="replica.moved")
    assert (moved.subject, moved.actor) == ("r1", "fleet (token hf_x)")
    assert moved.before == {"address": "http://127.0.0.1:9101"}
    assert moved.after == {"address": "http://10.0.0.7:9101"}


def test_a_change_that_rolls_back_leaves_no_link() -> None:
    fleet()
    before = AuditEvent.objects.count()
    with transaction.atomic():
        fleet_services.create_tenant("acme", actor="ada")
        transaction.set_rollback(True)
    assert AuditEvent.objects.count() == before
    assert verify().intact


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE rollouts_auditevent SET reason = 'nothing happened'",
        "DELETE FROM rollouts_auditevent",
        "UPDATE rollouts_decision SET text = 'fine'",
        "DELETE FROM rollouts_decision",
        "DELETE FROM rollouts_rollout",
        "UPDATE rollouts_rollout SET policy = '{}'",
        "UPDATE rollouts_rollout SET canary = 'v9'",
    ],
)
def test_the_database_refuses_to_rewrite_history(finished: Rollout, sql: str) -> None:
    with (
        pytest.raises(DatabaseError, match="pgtrigger"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(sql)


@pytest.mark.parametrize("table", ["rollouts_auditevent", "rollouts_decision"])
def test_history_cannot_be_truncated_either(table: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL halcyon.may_truncate = off")
        with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
            cursor.execute(f"TRUNCATE {table}")


def test_an_altered_event_is_found_and_named(finished: Rollout) -> None:
    forge("UPDATE rollouts_auditevent SET actor = 'nobody' WHERE seq = 3")
    assert verify().fault == (f"audit event 3 ({AuditEvent.objects.get(seq=3).action}) was altered")


def test_a_removed_event_is_found_and_named(finished: Rollout) -> None:
    forge("DELETE FROM rollouts_auditevent WHERE seq = 4")
    assert verify().fault == "audit event 4 is missing"


def test_an_altered_decision_is_found_and_named(finished: Rollout) -> None:
    forge("""UPDATE rollouts_decision SET counts = counts || '{"slow_canary": 0}' WHERE seq = 2""")
    assert verify().fault == f"decision 2 of rollout {finished.pk} was altered"


def test_a_last_decision_that_was_removed_is_missed(finished: Rollout) -> None:
    last = finished.decisions.count()
    forge(f"DELETE FROM rollouts_decision WHERE seq = {last}")
    assert verify().fault == f"decision {last} of rollout {finished.pk} is missing"


def test_every_verdict_is_judged_again_bit_for_bit(finished: Rollout) -> None:
    again = list(replay(finished))
    assert len(again) == finished.decisions.count() > 3
    assert all(one.same for one in again)


def test_a_verdict_that_does_not_follow_from_its_counts_is_found(finished: Rollout) -> None:
    forge("""
        UPDATE rollouts_decision
        SET verdict = jsonb_set(verdict, '{numbers,latencyLogE}', '0.5') WHERE seq = 3
    """)
    different = [one.decision.seq for one in replay(finished) if not one.same]
    assert different == [3]


def test_a_promoted_rollout_replays_too_and_so_does_one_that_was_resumed() -> None:
    fleet()
    history()
    rollout = start()
    run(rollout, windows=2)
    services.pause("m", actor="ada", reason="lunch")
    services.resume("m", actor="ada", reason="back", now=rollout.window_start)
    assert run(rollout)[-1] == "promote"
    assert all(one.same for one in replay(rollout))
    assert Decision.objects.filter(rollout=rollout, resumed=True).count() == 1
    assert verify().intact


def test_the_audit_says_from_where() -> None:
    with origin("10.0.0.7"), transaction.atomic():
        event = record("test.done", kind="test", subject="x", actor="ada", after={"a": -0.0})
    event.refresh_from_db()
    assert event.origin == "10.0.0.7"
    assert verify().intact


@pytest.mark.django_db(transaction=True)
def test_an_event_outside_a_transaction_is_refused() -> None:
    with pytest.raises(RuntimeError, match="outside a transaction"):
        record("test.done", kind="test", subject="x", actor="ada")


def test_values_that_a_column_cannot_hold_still_verify() -> None:
    with transaction.atomic():
        record(
            "test.done",
            kind="test",
            subject="x",
            actor="ada",
            after={"nan": float("nan"), "big": 1e20, "tiny": 1e-9, "nul": "a\0b", "n": 0.1 + 0.2},
        )
    assert verify().intact
