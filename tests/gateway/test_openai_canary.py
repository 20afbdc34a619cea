"""A canary over servers that speak OpenAI: split by session, kept as evidence, faults counted."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from typing import Any

import openai
import pytest

from tests.gateway.gateway_process import until
from tests.gateway.openai_scene import Door, Scene, set_scene

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def second_version(scene: Scene) -> None:
    """Server b serves version v2, which gets no traffic yet."""
    rows, model = scene.rows, scene.model
    rows.execute(
        "INSERT INTO fleet_modelversion (model_id, name, notes, created_at)"
        " SELECT id, 'v2', '', now() FROM fleet_model WHERE name = %s",
        model,
    )
    rows.execute(
        "UPDATE fleet_replica SET version_id = v.id FROM fleet_modelversion v JOIN fleet_model m"
        " ON m.id = v.model_id WHERE m.name = %s AND v.name = 'v2' AND replica_id = %s",
        model,
        f"b{model[1:]}",
    )


async def split(scene: Scene, percent: float) -> None:
    """Server b serves version v2, which gets this share of the sessions."""
    await second_version(scene)
    rows, model = scene.rows, scene.model
    rows.execute(
        "UPDATE fleet_trafficsplit SET canary_id = v.id, canary_percent = %s, salt = 'salt'"
        " FROM fleet_modelversion v JOIN fleet_model m ON m.id = v.model_id"
        " WHERE m.name = %s AND v.name = 'v2' AND fleet_trafficsplit.model_id = m.id",
        percent,
        model,
    )

    async def in_force() -> bool:
        versions = {each["version"] for each in await scene.replicas()}
        return versions == {"v1", "v2"}

    await until(in_force, 5.0, "the canary's version")
    await scene.learned(2)


async def ask(scene: Scene, session: int, **more: Any) -> str:
    answer = await scene.chat(
        max_tokens=1, extra_headers={"x-halcyon-session": f"session-{session}"}, **more
    )
    return str(answer.choices[0].message.content)


def evidence(scene: Scene) -> dict[str, dict[str, Any]]:
    """The sums of the windows so far, by arm."""
    found = scene.rows.execute(
        "SELECT arm, sum(served)::int, sum(faults)::int, sum(completion_tokens)::int,"
        " count(*) FILTER (WHERE execution <> '{}') FROM fleet_windowstat"
        " WHERE model = %s GROUP BY arm",
        scene.model,
    )
    names = ("served", "faults", "tokens", "timed")
    return {row[0]: dict(zip(names, row[1:], strict=True)) for row in found}


async def test_sessions_stay_with_their_arm_and_both_arms_leave_evidence(door: Door) -> None:
    async with set_scene(door) as scene:
        await split(scene, 50.0)
        first = await asyncio.gather(*(ask(scene, n) for n in range(60)))
        again = await asyncio.gather(*(ask(scene, n) for n in range(60)))
        assert first == again
        canary = sum(text == "b" for text in first)
        assert 15 <= canary <= 45

        def written() -> Any:
            rows = evidence(scene)
            return rows if sum(arm["served"] for arm in rows.values()) == 120 else None

        rows = await until(written, 10.0, "windows of all 120 requests")
        assert rows["canary"]["served"] == rows["canary"]["tokens"] == 2 * canary
        assert rows["baseline"]["served"] == 120 - 2 * canary
        assert rows["canary"]["timed"] > 0
        assert rows["baseline"]["timed"] > 0


async def test_streams_are_evidence_too(door: Door) -> None:
    async with set_scene(door) as scene:
        await split(scene, 50.0)
        for number in range(20):
            stream = await scene.chat(
                stream=True, max_tokens=3, extra_headers={"x-halcyon-session": f"s{number}"}
            )
            async for _ in stream:
                pass

        def written() -> Any:
            rows = evidence(scene)
            return rows if sum(arm["served"] for arm in rows.values()) == 20 else None

        rows = await until(written, 10.0, "windows of all streams")
        assert sum(arm["tokens"] for arm in rows.values()) == 60
        assert all(arm["timed"] > 0 for arm in rows.values())


async def test_a_canary_that_fails_is_charged_its_faults_and_nobody_else(door: Door) -> None:
    async with set_scene(door) as scene:
        await split(scene, 50.0)
        first = await asyncio.gather(*(ask(scene, n) for n in range(40)))
        scene.upstreams[1].behave(mode="fail", status=500)

        async def again(session: int) -> str:
            try:
                return await ask(scene, session)
            except openai.InternalServerError:
                return "lost"

        texts = await asyncio.gather(*(again(n) for n in range(40)))
        assert texts == ["lost" if text == "b" else "a" for text in first]

        def written() -> Any:
            rows = evidence(scene)
            return rows if rows.get("canary", {}).get("faults", 0) > 0 else None

        rows = await until(written, 10.0, "the canary's faults")
        assert rows["baseline"]["faults"] == 0


_EVALUATOR = """
import sys, time
import django
django.setup()
from rollouts import services
from rollouts.evaluation import evaluate_due
policy = {"steps": [30, 100], "intervalS": 1, "minimumWindows": 3}
services.start(sys.argv[1], "v2", policy=policy, actor="test", reason="a new version")
print("started", flush=True)
while True:
    evaluate_due()
    time.sleep(0.2)
"""


@contextlib.asynccontextmanager
async def rollout(environment: dict[str, str], model: str) -> AsyncIterator[None]:
    """A rollout of the model's v2, and the evaluator that judges it, in a process."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _EVALUATOR, model),
        stdout=asyncio.subprocess.PIPE,
        env=environment,
    )
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"started\n"
        yield
        assert process.returncode is None
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def verdict(
    scene: Scene, environment: dict[str, str], send: Callable[[int], Awaitable[object]], rate: float
) -> str:
    """Roll the model's v2 out under `rate` requests a second; why it was rolled back.

    The whole loop: split by the gateway, evidence in its windows, the judge, the split.
    """
    numbers = count()

    async def one() -> None:
        with contextlib.suppress(openai.APIStatusError):
            await send(next(numbers))

    async def clients() -> None:
        """Who asks does not wait for those who asked before."""
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(one())
                await asyncio.sleep(1.0 / rate)

    def ended() -> Any:
        found = scene.rows.execute(
            "SELECT phase FROM rollouts_rollout WHERE model = %s", scene.model
        )
        return found[0][0] if found and found[0][0] != "progressing" else None

    await second_version(scene)
    async with rollout(environment, scene.model):
        load = asyncio.create_task(clients())
        try:
            assert await until(ended, 60.0, "a verdict") == "rolled_back"
        finally:
            load.cancel()
            await asyncio.gather(load, return_exceptions=True)

    async def stable() -> bool:
        answers = [ask(scene, next(numbers)) for _ in range(8)]
        return set(await asyncio.gather(*answers, return_exceptions=True)) == {"a"}

    await until(stable, 10.0, "the stable version alone")
    asked = scene.upstreams[1].stats["requests"]
    assert asked > 0
    texts = await asyncio.gather(*(ask(scene, next(numbers)) for _ in range(40)))
    assert set(texts) == {"a"}
    assert scene.upstreams[1].stats["requests"] == asked
    why = scene.rows.execute(
        "SELECT d.reason FROM rollouts_decision d JOIN rollouts_rollout r ON r.id = d.rollout_id"
        " WHERE r.model = %s ORDER BY d.seq DESC LIMIT 1",
        scene.model,
    )
    return str(why[0][0])


async def test_a_version_that_fails_loses_its_traffic_again(
    door: Door, module_database: Any
) -> None:
    async with set_scene(door, scripts=({}, {"mode": "fail"})) as scene:

        async def send(session: int) -> None:
            await ask(scene, session)

        assert await verdict(scene, module_database.environment, send, 50.0) == "failures"


async def test_a_version_whose_streams_are_three_times_as_slow_loses_its_traffic_again(
    door: Door, module_database: Any
) -> None:
    usual, slow = {"tokens": 10, "token_delay_ms": 10}, {"tokens": 10, "token_delay_ms": 30}
    async with set_scene(door, scripts=(usual, slow)) as scene:

        async def send(session: int) -> None:
            answer = await scene.post(
                stream=True, headers={"x-halcyon-session": f"session-{session}"}
            )
            assert answer.status == 200
            assert answer.body.endswith(b"data: [DONE]\n\n")

        assert await verdict(scene, module_database.environment, send, 50.0) == "latency"
