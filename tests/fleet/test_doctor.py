"""The doctor names cause, consequence and remedy, and never falls ill itself."""

import json
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from fleet import services
from fleet.doctor import Finding, examine

ROOT = Path(__file__).resolve().parents[2]
NOBODY = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def nobody_answers(settings: Any) -> None:
    settings.HALCYON_GATEWAY_URL = settings.HALCYON_WEB_URL = NOBODY


def found(name: str) -> Finding:
    return next(finding for finding in examine() if finding.name == name)


@pytest.mark.django_db
def test_every_finding_that_is_not_healthy_says_what_follows_and_what_to_do(
    valkey_url: str,
) -> None:
    findings = examine()
    assert {finding.name for finding in findings} >= {
        "database",
        "migrations",
        "triggers",
        "broker",
        "beat",
        "gateway",
        "web",
        "replicas",
        "traffic",
        "keys",
    }
    for finding in findings:
        if finding.word != "healthy":
            assert finding.cause
            assert finding.consequence
            assert finding.remedy
    assert found("database").word == "healthy"
    assert found("broker").word == "healthy"
    assert found("triggers").word == "healthy"
    assert found("gateway").word == "down"


@pytest.mark.django_db
def test_a_version_with_traffic_and_no_replica_is_named() -> None:
    model = services.create_model("llama", actor="test")
    assert found("traffic of llama").cause == "no version of it gets traffic"
    services.create_version(model, "v1", actor="test")
    services.set_split(model, baseline="v1", actor="test")
    assert "v1 gets traffic" in found("traffic of llama").cause
    services.register_replica(
        services.Registration(replica_id="r1", model="llama", version="v1", address=NOBODY),
        actor="test",
    )
    assert found("traffic").word == "healthy"
    assert found("replicas").word == "down"
    services.drain_replica("r1", actor="test")
    assert "v1 gets traffic" in found("traffic of llama").cause
    assert found("draining").word == "degraded"


@pytest.mark.django_db
def test_a_silent_beat_and_a_missing_key_are_found_and_then_well() -> None:
    assert found("beat").cause == "was never heard of"
    assert found("keys").word == "down"
    services.note_alive("beat")
    tenant = services.create_tenant("acme", actor="test")
    key = services.issue_key(tenant, "main", actor="test").key
    assert found("beat").word == found("keys").word == "healthy"
    services.revoke_key(key, actor="test")
    assert found("keys").word == "down"


@pytest.mark.django_db
def test_a_disabled_trigger_is_noticed() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE fleet_tenant DISABLE TRIGGER ALL")
    assert "fleet_tenant" in found("triggers").cause


@pytest.mark.django_db
def test_unsafe_settings_are_named(settings: Any) -> None:
    assert found("settings").word == "healthy"
    settings.ALLOWED_HOSTS = ["*"]
    assert "HALCYON_ALLOWED_HOSTS" in found("settings").cause


@pytest.mark.django_db
def test_the_command_prints_json_and_fails_where_something_is_down(valkey_url: str) -> None:
    out = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("doctor", json=True, stdout=out)
    assert ended.value.code == 1
    document = json.loads(out.getvalue())
    assert document["ok"] is False
    assert {"name", "word", "cause", "consequence", "remedy"} == set(document["findings"][0])


def test_without_any_server_it_still_gives_advice(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "doctor"],
        env={"PATH": "/usr/bin:/bin", "HALCYON_VAR": str(tmp_path / "nothing")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "database" in done.stdout
    assert "manage.py up" in done.stdout
