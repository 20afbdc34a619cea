"""The commands: tables for people, JSON for machines, one line for a mistake."""

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from fleet.models import ApiKey, Replica, Tenant
from fleet.services import verify_token

pytestmark = pytest.mark.django_db


def run(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


def as_json(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json"))


def test_an_empty_list_says_how_to_fill_it() -> None:
    assert "manage.py tenant create" in run("tenant", "list")
    assert "manage.py key issue" in run("key", "list")
    assert "manage.py replica" in run("replicas", "list")
    assert as_json("tenant", "list") == []


def test_a_tenant_from_its_creation_to_its_end() -> None:
    made = as_json("tenant", "create", "acme", "--requests-per-minute", "60", "--priority", "high")
    assert (made["requests_per_minute"], made["tokens_per_minute"]) == (60, None)
    assert made["priority"] == "high"
    changed = as_json("tenant", "set", "acme", "--requests-per-minute", "none", "--weight", "2")
    assert (changed["requests_per_minute"], changed["weight"]) == (None, 2.0)
    assert Tenant.objects.get().priority == 2
    assert "acme" in run("tenant", "list")
    run("tenant", "remove", "acme")
    assert not Tenant.objects.exists()


def test_a_key_is_printed_once_and_revoked_by_its_prefix() -> None:
    run("tenant", "create", "acme")
    printed = run("key", "issue", "acme", "main", "--days", "30").splitlines()[0]
    assert printed.startswith("hk_")
    assert printed not in run("key", "list")
    prefix = ApiKey.objects.get().prefix
    run("key", "revoke", prefix)
    assert as_json("key", "list", "acme")[0]["status"] == "revoked"
    assert verify_token(printed) is None


def test_an_external_server_is_written_down_drained_and_removed() -> None:
    made = as_json(
        *("replicas", "register", "vllm-1", "--model", "llama", "--model-version", "v1"),
        *("--address", "http://10.0.0.5:8000"),
    )
    assert made["protocol"] == "openai"
    assert as_json("replicas", "drain", "vllm-1")["draining"] is True
    assert as_json("replicas", "undrain", "vllm-1")["draining"] is False
    run("replicas", "remove", "vllm-1")
    assert not Replica.objects.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tenant", "show", "ghost"], "no such tenant"),
        (["tenant", "create", "Not A Slug"], "lower-case"),
        (["tenant", "create", "acme", "--requests-burst", "5"], "needs requests per minute"),
        (["key", "issue", "ghost", "main"], "no such tenant"),
        (["key", "revoke", "hk_nothing"], "no such prefix"),
        (["replicas", "drain", "ghost"], "no such replica"),
        (["replicas", "apply", "/nowhere/fleet.yaml"], "cannot be read"),
        (["loadtest", "--clients", "0"], "--clients=0"),
        (["loadtest", "--rate", "0"], "rate=0"),
        (["loadtest", "--duration", "-1"], "--duration=-1"),
        (["loadtest", "--tokens", "5"], "--tokens=5"),
        (["loadtest", "--url", "localhost:8080"], "must be http"),
        (
            [
                "replicas",
                "register",
                "r",
                "--model",
                "m",
                "--model-version",
                "v",
                "--address",
                "http://169.254.169.254",
            ],
            "link-local",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_two(arguments: list[str], said: str) -> None:
    with pytest.raises(CommandError, match=said) as refused:
        run(*arguments)
    assert refused.value.returncode == 2
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("option", [("--priority", "huge"), ("--enabled", "maybe")])
def test_a_word_that_is_none_of_the_choices_ended_in_a_traceback(option: tuple[str, str]) -> None:
    run("tenant", "create", "acme")
    with pytest.raises(CommandError, match=f"argument {option[0]}: invalid choice") as refused:
        run("tenant", "set", "acme", *option)
    assert option[1] in str(refused.value)
    run("tenant", "set", "acme", "--enabled", "no")
    assert not Tenant.objects.get().enabled
