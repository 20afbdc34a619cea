"""Two evaluators, and one that is killed between deciding and applying: one transition."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.conftest import ScratchDatabase
from tests.rollouts.evaluator_process import Evaluator

_PREPARE = """
import django
django.setup()
from tests.rollouts.scene import fleet, history, start, traffic
fleet()
history()
rollout = start(policy={"steps": [5, 50, 100], "intervalS": 4, "healthyChecksToAdvance": 1})
traffic(rollout.window_start, 4, canary="v2", percent=5.0)
print(rollout.due_at.isoformat())
"""


@pytest.fixture
def due(scratch_database: ScratchDatabase) -> str:
    """A rollout whose first window is due and will advance; the moment it is due."""
    done = subprocess.run(
        [sys.executable, "-c", _PREPARE],
        env=scratch_database.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@contextlib.contextmanager
def evaluator(database: ScratchDatabase, due: str, *, hang: bool = False) -> Iterator[Evaluator]:
    started = Evaluator(database.environment, due, hang=hang)
    try:
        yield started
    finally:
        started.process.kill()
        started.close()


def ask(database: ScratchDatabase, question: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(database.url) as server:
        return server.execute(question).fetchall()  # type: ignore[arg-type]


def decisions(database: ScratchDatabase) -> list[tuple[Any, ...]]:
    return ask(database, "SELECT seq, act, percent FROM rollouts_decision ORDER BY seq")


def share(database: ScratchDatabase) -> float:
    return float(ask(database, "SELECT canary_percent FROM fleet_trafficsplit")[0][0])


def test_a_kill_between_deciding_and_applying_leaves_one_transition(
    scratch_database: ScratchDatabase, due: str
) -> None:
    with evaluator(scratch_database, due, hang=True) as doomed:
        doomed.go()
        assert doomed.line() == "decided advance"
        assert decisions(scratch_database) == []
        doomed.kill()
    assert share(scratch_database) == 5.0
    with evaluator(scratch_database, due) as heir:
        heir.go()
        assert heir.line() == "judged 1"
    assert decisions(scratch_database) == [(1, "advance", 50.0)]
    assert share(scratch_database) == 50.0


def test_an_evaluator_does_not_wait_for_one_that_hangs(
    scratch_database: ScratchDatabase, due: str
) -> None:
    with evaluator(scratch_database, due, hang=True) as stuck:
        stuck.go()
        assert stuck.line() == "decided advance"
        with evaluator(scratch_database, due) as other:
            other.go()
            assert other.line() == "judged 0"
        assert share(scratch_database) == 5.0


def test_two_evaluators_at_the_same_moment_decide_once(
    scratch_database: ScratchDatabase, due: str
) -> None:
    with (
        evaluator(scratch_database, due) as one,
        evaluator(scratch_database, due) as other,
    ):
        one.go()
        other.go()
        assert sorted([one.line(), other.line()]) == ["judged 0", "judged 1"]
    assert decisions(scratch_database) == [(1, "advance", 50.0)]
    moved = ask(
        scratch_database,
        "SELECT count(*) FROM rollouts_auditevent WHERE action = 'rollout.advanced'",
    )
    assert moved == [(1,)]
