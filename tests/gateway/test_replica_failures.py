"""What clients see when replicas die, break, refuse, hang or close their connections."""

import asyncio
from typing import Any

from tests.gateway.conftest import Stack
from tests.gateway.gateway_process import GatewayProcess, until
from tests.gateway.scripted_replica import (
    Behaviour,
    ScriptedReplica,
    answers,
    answers_after,
    busy,
    fails,
    fails_whole_if,
    garbles,
    hangs,
    rejects_items,
)


def statuses(answered: list[Any]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for answer in answered:
        counts[answer.status] = counts.get(answer.status, 0) + 1
    return counts


async def breaker(gateway: GatewayProcess, replica_id: str) -> Any:
    for view in (await gateway.state())["replicas"]:
        if view["replicaId"] == replica_id:
            return view["breaker"]
    raise AssertionError(replica_id)


async def test_a_killed_replica_costs_no_client_an_error(stack: Stack) -> None:
    stack.rows.model()
    victim = await stack.replica(answers(0.02))
    for _ in range(2):
        await stack.replica(answers(0.02))
    gateway = await stack.gateway(stack.rows.tenant())
    running = asyncio.create_task(gateway.infer_many(1_000, 16, deadlineMs=10_000))
    await until(lambda: victim.seen.items >= 1)  # however seldom it is chosen: one batch is there
    await victim.stop()
    assert statuses(await running) == {200: 1_000}

    async def noticed() -> bool:
        views = {view["replicaId"]: view for view in (await gateway.state())["replicas"]}
        return bool(views["r1"]["status"] == "down")

    await until(noticed, 10.0, "the replica shown as down")


async def test_a_replica_that_fails_at_once_harms_nobody_and_comes_back_when_healed(
    stack: Stack,
) -> None:
    stack.rows.model()
    broken = await stack.replica(fails(500, delay_s=0.002))
    await stack.replica(answers(0.01))
    gateway = await stack.gateway(stack.rows.tenant())
    assert statuses(await gateway.infer_many(600, 8, deadlineMs=10_000)) == {200: 600}
    broken.behave = answers(0.01)
    healed_at = broken.seen.items

    async def carries_traffic() -> bool:
        await gateway.infer_many(16, 8, deadlineMs=10_000)
        return broken.seen.items > healed_at + 20

    await until(carries_traffic, 20.0, "traffic at the healed replica")


async def test_busy_is_not_a_fault_and_the_next_request_succeeds(stack: Stack) -> None:
    stack.rows.model()
    replicas = [await stack.replica(busy(0.05)) for _ in range(2)]
    gateway = await stack.gateway(stack.rows.tenant())
    refused = await gateway.infer_many(40, 8, deadlineMs=300)
    assert all(answer.status in (503, 504) for answer in refused)
    knocked = sum(replica.seen.items for replica in replicas)
    assert knocked <= 44, "more than 1.1 attempts a request"
    for replica in replicas:
        replica.behave = answers()
    assert (await gateway.infer(deadlineMs=5_000)).status == 200
    for view in (await gateway.state())["replicas"]:
        assert view["breaker"]["trips"] == 0
        assert view["backpressure"] >= 1


async def test_what_the_replica_says_of_a_request_reaches_its_client(stack: Stack) -> None:
    stack.rows.model()
    replica = await stack.replica(fails(400, message="the prompt has no language"))
    gateway = await stack.gateway(stack.rows.tenant())
    bad = await gateway.infer_many(60, 8, deadlineMs=10_000)
    assert statuses(bad) == {400: 60}
    assert "the prompt has no language" in bad[0].json["error"]["message"]
    replica.behave = answers()
    assert statuses(await gateway.infer_many(60, 8, deadlineMs=10_000)) == {200: 60}
    assert (await breaker(gateway, "r1"))["trips"] == 0


async def test_a_replica_that_rejects_our_credentials_is_not_the_clients_fault(
    stack: Stack,
) -> None:
    stack.rows.model()
    await stack.replica(fails(401))
    gateway = await stack.gateway(stack.rows.tenant())
    answer = await gateway.infer()
    assert (answer.status, answer.code) == (502, "upstream_failure")


async def test_the_slow_replica_is_left_out_where_the_deadline_asks_for_it(stack: Stack) -> None:
    stack.rows.model()
    fast = await stack.replica(answers(0.02))
    slow = await stack.replica(answers(0.6))
    gateway = await stack.gateway(stack.rows.tenant())
    await gateway.infer_many(40, 8, deadlineMs=10_000)  # both get known
    before = slow.seen.items
    answered = await gateway.infer_many(300, 16, deadlineMs=400)
    assert statuses(answered).get(200, 0) >= 285, statuses(answered)
    assert fast.seen.items > 10 * (slow.seen.items - before)


async def test_a_hanging_replica_loses_nobody_beyond_their_own_deadline(stack: Stack) -> None:
    stack.rows.model()
    stuck = await stack.replica(hangs(), max_batch_size=4)
    await stack.replica(answers(0.01), max_batch_size=4)
    gateway = await stack.gateway(stack.rows.tenant())
    answered = await gateway.infer_many(40, 4, deadlineMs=1_500)
    assert all(answer.status in (200, 504) for answer in answered), statuses(answered)
    assert max(answer.took_s for answer in answered) < 4.0
    before = stuck.seen.items
    again = await gateway.infer_many(100, 8, deadlineMs=5_000)
    assert statuses(again).get(200, 0) >= 96, statuses(again)
    assert stuck.seen.items - before <= 8

    async def excluded() -> bool:
        await gateway.infer_many(4, 4, deadlineMs=400)
        (view,) = [v for v in (await gateway.state())["replicas"] if v["replicaId"] == "r1"]
        return bool(view["breaker"]["state"] != "closed" and view["why"])

    await until(excluded, 20.0, "the hanging replica left out, and why")
    stuck.behave = answers(0.01)
    healed_at = stuck.seen.items

    async def carries_traffic() -> bool:
        await gateway.infer_many(16, 8, deadlineMs=5_000)
        return stuck.seen.items > healed_at + 8

    await until(carries_traffic, 60.0, "traffic at the replica that no longer hangs")


async def test_a_replica_never_sees_more_than_its_capacity(stack: Stack) -> None:
    stack.rows.model()
    replica = await stack.replica(answers(0.01), max_batch_size=1, max_concurrency=8)
    gateway = await stack.gateway(stack.rows.tenant())
    answered = await gateway.infer_many(500, 500, deadlineMs=30_000)
    assert all(answer.status in (200, 503) for answer in answered), statuses(answered)
    assert replica.seen.peak <= 8
    assert replica.seen.peak >= 6


async def test_a_new_replica_gets_its_share_without_being_flooded(stack: Stack) -> None:
    stack.rows.model()
    for _ in range(3):
        await stack.replica(answers(0.02), max_batch_size=2)
    gateway = await stack.gateway(stack.rows.tenant())
    await gateway.infer_many(200, 16, deadlineMs=10_000)
    joined = await stack.replica(answers(0.02), max_batch_size=2)

    async def carries() -> bool:
        await gateway.infer_many(32, 16, deadlineMs=10_000)
        return joined.seen.items > 0

    await until(carries, 10.0, "the first batch at the new replica")
    counted = [replica.seen.items for replica in stack.replicas]

    async def has_its_share() -> bool:
        nonlocal counted
        before, counted_now = counted, []
        await gateway.infer_many(160, 16, deadlineMs=10_000)
        counted_now = [replica.seen.items for replica in stack.replicas]
        counted = counted_now
        grown = [now - then for now, then in zip(counted_now, before, strict=True)]
        return grown[-1] >= 0.5 * sum(grown) / len(grown)

    await until(has_its_share, 20.0, "half of its fair share")


async def test_when_everything_fails_attempts_stay_bounded(stack: Stack) -> None:
    stack.rows.model()
    replicas = [await stack.replica(fails(500), max_batch_size=1) for _ in range(2)]
    gateway = await stack.gateway(stack.rows.tenant())
    answered = await gateway.infer_many(1_000, 64, deadlineMs=500)
    assert all(answer.status in (502, 503, 504) for answer in answered), statuses(answered)
    attempts: dict[str, int] = {}
    for replica in replicas:
        for batch in replica.seen.batches:
            for request_id in batch:
                attempts[request_id] = attempts.get(request_id, 0) + 1
    assert max(attempts.values()) <= 2
    assert sum(attempts.values()) <= 1_100


async def hold(gateway: GatewayProcess, replicas: list[ScriptedReplica]) -> asyncio.Event:
    """Teach the gateway that a batch costs little more than one, then keep every replica busy
    until the returned event is set: what is sent meanwhile rides together."""
    for replica in replicas:
        replica.behave = answers(0.02)
    await gateway.infer_many(300, 32, deadlineMs=10_000)
    release = asyncio.Event()
    for replica in replicas:
        replica.behave = answers_after(release)
    return release


async def ride_together(
    gateway: GatewayProcess,
    replicas: list[ScriptedReplica],
    inputs: list[str],
    behave: Behaviour,
) -> dict[str, Any]:
    """Send `inputs` while every replica is busy; then all behave as told. Answers by input."""
    release = await hold(gateway, replicas)
    holding = []
    for number in range(1, len(replicas) + 1):
        holding.append(asyncio.create_task(gateway.infer(deadlineMs=20_000)))
        await until(lambda n=number: sum(replica.seen.running for replica in replicas) == n)
    sent = [asyncio.create_task(gateway.infer(input=each, deadlineMs=20_000)) for each in inputs]

    async def waiting() -> bool:
        return bool((await gateway.state())["conservation"]["queued"] == len(inputs))

    await until(waiting, 10.0, "all of them queued")
    for replica in replicas:
        replica.behave = behave
    release.set()
    answered = await asyncio.gather(*sent)
    assert [answer.status for answer in await asyncio.gather(*holding)] == [200] * len(replicas)
    return dict(zip(inputs, answered, strict=True))


INPUTS = ["a", "b", "bad", "c", "d", "e", "f", "g"]


def batches_with(replicas: list[ScriptedReplica], request_id: str) -> list[list[str]]:
    return [b for replica in replicas for b in replica.seen.batches if request_id in b]


async def test_one_rejected_item_leaves_the_others_of_its_batch_served(stack: Stack) -> None:
    stack.rows.model()
    replica = await stack.replica()
    gateway = await stack.gateway(stack.rows.tenant())
    rejecting = rejects_items(lambda item: item["input"] == "bad")
    answered = await ride_together(gateway, [replica], INPUTS, rejecting)
    bad = answered.pop("bad")
    assert (bad.status, bad.code) == (400, "invalid_request")
    assert "cannot read this input" in bad.json["error"]["message"]
    assert {answer.status for answer in answered.values()} == {200}
    (batch,) = batches_with([replica], bad.json["error"]["requestId"])
    assert len(batch) > 1


async def test_a_batch_that_fails_whole_is_split_once_and_its_good_half_served(
    stack: Stack,
) -> None:
    stack.rows.model()
    replicas = [await stack.replica() for _ in range(2)]
    gateway = await stack.gateway(stack.rows.tenant())
    poisoned = fails_whole_if(lambda item: item["input"] == "bad")
    answered = await ride_together(gateway, replicas, INPUTS, poisoned)
    bad = answered["bad"]
    assert bad.code == "upstream_failure"
    tried = batches_with(replicas, bad.json["error"]["requestId"])
    assert len(tried) == 2
    second, first = sorted(tried, key=len)
    assert len(second) <= (len(first) + 1) // 2
    lost = {name for name, answer in answered.items() if answer.status != 200}
    assert len(lost) <= len(second)


async def test_an_unreadable_answer_is_the_replicas_fault(stack: Stack) -> None:
    stack.rows.model()
    await stack.replica(garbles())
    gateway = await stack.gateway(stack.rows.tenant())
    answer = await gateway.infer()
    assert (answer.status, answer.code) == (502, "upstream_failure")
    assert answer.headers["retry-after"]
