"""`status` and `explain`: what the overview and a request's page show, without a browser."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.management import CommandError, call_command

from tests.conftest import ScratchDatabase
from tests.gateway.conftest import Stack
from tests.gateway.scripted_replica import fails

NOBODY = "http://127.0.0.1:9"


def run(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


async def test_a_gateways_state_and_a_requests_record_at_the_terminal(
    scratch_database: ScratchDatabase, tmp_path: Path
) -> None:
    stack = Stack(scratch_database.url, scratch_database.environment, tmp_path)
    async with stack.exits:
        stack.rows.model()
        key = stack.rows.tenant()
        await stack.replica()
        gateway = await stack.gateway(key)
        answer = await gateway.infer()
        assert answer.status == 200
        command = sync_to_async(run, thread_sensitive=False)

        said = await command("status", "--gateway", f"{gateway.url},{NOBODY}")
        assert "served" in said
        assert "r1" in said
        assert f"{NOBODY} does not answer" in said
        state = json.loads(await command("status", "--gateway", gateway.url, "--json"))
        assert state["conservation"]["served"] == 1

        request_id = answer.headers["x-request-id"]
        record: dict[str, Any] = json.loads(
            await command("explain", request_id, "--key", key, "--gateway", gateway.url)
        )
        assert record["requestId"] == request_id
        with pytest.raises(CommandError, match="no decision record"):
            await command("explain", "nothing", "--key", key, "--gateway", gateway.url)


async def test_status_broke_as_soon_as_the_feed_had_a_line(
    scratch_database: ScratchDatabase, tmp_path: Path
) -> None:
    stack = Stack(scratch_database.url, scratch_database.environment, tmp_path)
    async with stack.exits:
        stack.rows.model()
        key = stack.rows.tenant()
        await stack.replica(fails(500))
        gateways = [await stack.gateway(key, state_dir=tmp_path / name) for name in ("a", "b")]
        for gateway in gateways:
            await gateway.infer_many(20, 1, deadlineMs=200)
        command = sync_to_async(run, thread_sensitive=False)
        for urls in (gateways[0].url, ",".join(gateway.url for gateway in gateways)):
            state = json.loads(await command("status", "--gateway", urls, "--json"))
            speakers = {gateway["id"] for gateway in state["gateways"]}
            assert len(speakers) == urls.count(",") + 1
            assert {event["gateway"] for event in state["events"]} == speakers
            assert {event["kind"] for event in state["events"]} >= {"breaker"}
            assert "r1" in await command("status", "--gateway", urls)


def test_what_does_not_answer_is_named_with_what_to_do() -> None:
    with pytest.raises(CommandError, match=r"manage\.py up"):
        run("status", "--gateway", NOBODY)
    with pytest.raises(CommandError, match=r"manage\.py up"):
        run("explain", "id", "--key", "k", "--gateway", NOBODY)
    with pytest.raises(CommandError, match="--key"):
        run("explain", "id", "--gateway", NOBODY)
    with pytest.raises(CommandError, match="must name a gateway"):
        run("status", "--gateway", " ")


@pytest.mark.django_db
def test_models_are_listed_and_an_unknown_one_is_named() -> None:
    assert "no model is defined" in run("model", "list")
    with pytest.raises(CommandError, match="nobody"):
        run("model", "show", "nobody")
    with pytest.raises(CommandError, match="nobody"):
        run("replicas", "show", "nobody")
