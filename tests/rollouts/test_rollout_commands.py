"""`manage.py rollout` and `manage.py audit`: what they print and how they exit."""

import json
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from rollouts.api.serializers.rollouts import active_documents
from rollouts.models import Rollout
from tests.conftest import ScratchDatabase
from tests.rollouts.scene import fleet, history, run, split_of, start

pytestmark = pytest.mark.django_db
ROOT = Path(__file__).resolve().parents[2]


def command(*words: str) -> str:
    out = StringIO()
    call_command(*words, stdout=out)
    return out.getvalue()


def as_json(*words: str) -> Any:
    return json.loads(command(*words, "--json"))


def test_a_rollout_is_started_looked_at_and_aborted() -> None:
    fleet()
    said = command("rollout", "start", "m", "v2", "--steps", "5,50,100", "--reason", "why not")
    assert "progressing" in said
    assert as_json("rollout", "status", "m")["steps"] == [5.0, 50.0, 100.0]
    command("rollout", "pause", "m", "--reason", "lunch")
    command("rollout", "resume", "m", "--reason", "back")
    assert "aborted" in command("rollout", "abort", "m", "--reason", "enough")
    assert split_of() == ("v1", None, 0.0)
    with pytest.raises(CommandError, match="is aborted"):
        command("rollout", "promote", "m", "--reason", "after all")


def test_what_the_command_line_shows_as_json_is_what_the_api_answers() -> None:
    fleet()
    started = as_json("rollout", "start", "m", "v2", "--reason", "why not")
    assert started == as_json("rollout", "status", "m") == as_json("rollout", "status")[0]
    assert {"phase", "step", "percent", "streaks", "evidence", "nextEvaluationAt"} <= set(started)
    assert [started] == json.loads(json.dumps(active_documents(), default=str))


def test_a_reader_that_had_enough_gets_no_traceback(scratch_database: ScratchDatabase) -> None:
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "manage.py"), "audit", "export", "--format", "csv"],
        env=scratch_database.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    _, complaints = process.communicate(timeout=120)
    assert complaints == b""


def test_a_dead_worker_is_said_by_the_command_line() -> None:
    fleet()
    start()  # its first window was due long ago
    assert "does a Celery worker run?" in command("rollout", "status", "m")


def test_nothing_under_way_says_how_to_start() -> None:
    assert "rollout start MODEL VERSION" in command("rollout", "status")


def test_a_wrong_policy_ends_with_code_two_and_names_the_field(tmp_path: Path) -> None:
    fleet()
    for policy in ('{"steps": [9, 5]}', "{", str(tmp_path / "missing.json"), '{"alpha": 9}'):
        with pytest.raises(CommandError) as error:
            command("rollout", "start", "m", "v2", "--policy", policy, "--reason", "x")
        assert error.value.returncode == 2
    file = tmp_path / "policy.json"
    file.write_text('{"steps": [10, 100]}')
    command("rollout", "start", "m", "v2", "--policy", str(file), "--reason", "x")
    assert Rollout.objects.get().percent == 10.0


def test_explain_says_what_a_policy_would_do_and_does_nothing() -> None:
    fleet()
    said = command("rollout", "start", "m", "v2", "--explain")
    assert "promoted only when slower by 20%" in said
    assert Rollout.objects.count() == 0


def test_watch_prints_each_decision_until_the_end() -> None:
    fleet()
    history()
    rollout = start()
    run(rollout, slowdown=0.6)
    said = command("rollout", "watch", "m")
    assert "rollback:latency" in said
    assert said.strip().endswith("m v2: rolled_back")


def test_the_audit_is_listed_verified_replayed_and_exported(tmp_path: Path) -> None:
    fleet()
    history()
    rollout = start()
    run(rollout, slowdown=0.6)
    assert "rollout.rolled_back" in command("audit", "list", "--kind", "rollout")
    assert as_json("audit", "verify")["intact"] is True
    assert "bit for bit" in command("audit", "replay", str(rollout.pk))
    target = tmp_path / "audit.jsonl"
    command("audit", "export", "--output", str(target))
    events = [json.loads(line) for line in target.read_text().splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert "seq,at,actor" in command("audit", "export", "--format", "csv")


def test_a_tampered_row_ends_verify_and_replay_with_an_error_that_names_it() -> None:
    fleet()
    history()
    rollout = start()
    run(rollout, slowdown=0.6)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(
            """UPDATE rollouts_decision SET counts = counts || '{"slow_canary": 0}'
               WHERE seq = 2"""
        )
        cursor.execute("SET LOCAL session_replication_role = origin")
    with pytest.raises(CommandError, match="decision 2 of rollout"):
        command("audit", "verify")
    with pytest.raises(CommandError, match=f"rollout {rollout.pk}, window 2"):
        command("audit", "replay")


def test_an_audit_question_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(CommandError, match="since"):
        command("audit", "list", "--since", "yesterday")
    with pytest.raises(CommandError, match="no rollout of that number"):
        command("audit", "replay", "999")
