"""The evidence that streams leave: how fast they begin and how fast they go on, not how long."""

import random
from collections.abc import Callable

import pytest

from engine.actions import Dispatch, ItemResult
from engine.outcomes import Outcome
from engine.rollout.evidence import WindowRecord
from engine.stats.histogram import LogHistogram
from engine.types import Arm, Protocol, SplitSpec
from tests.engine.harness import Table, replica, snapshot

SEED = 7
FIRST_MS, PER_PROMPT_MS, PER_TOKEN_MS = 40.0, 0.2, 10.0

Shape = Callable[[int, random.Random], tuple[float, float, int]]


def as_baseline(prompt: int, rng: random.Random) -> tuple[float, float, int]:
    """Time to the first token, time per token, tokens."""
    noise = rng.lognormvariate(0.0, 0.1)
    return FIRST_MS + PER_PROMPT_MS * prompt, PER_TOKEN_MS * noise, rng.randint(20, 400)


def slower_tokens_shorter_answers(prompt: int, rng: random.Random) -> tuple[float, float, int]:
    first_ms, token_ms, tokens = as_baseline(prompt, rng)
    return first_ms, 1.5 * token_ms, tokens // 2


def late_to_begin(prompt: int, rng: random.Random) -> tuple[float, float, int]:
    first_ms, token_ms, tokens = as_baseline(prompt, rng)
    return 3.0 * first_ms, token_ms, tokens


def longer_answers(prompt: int, rng: random.Random) -> tuple[float, float, int]:
    first_ms, token_ms, tokens = as_baseline(prompt, rng)
    return first_ms, token_ms, 3 * tokens


def play(canary: Shape, streams: int = 240) -> dict[Arm, LogHistogram]:
    """One stream after the other, half of them to the canary. The executions of each arm."""
    rng = random.Random(SEED)
    specs = [
        replica("a", protocol=Protocol.OPENAI, max_batch_size=1),
        replica("b", protocol=Protocol.OPENAI, max_batch_size=1, version="v2"),
    ]
    split = SplitSpec(model="m", baseline="v1", canary="v2", canary_ratio=0.5, salt="s")
    table = Table(shot=snapshot(specs, split=split))
    records: list[WindowRecord] = []
    for number in range(streams):
        prompt = rng.choice([50, 200, 800])
        name = table.submit(
            tokens=prompt, max_output_tokens=2000, deadline_ms=60_000.0, session_key=f"s{number}"
        )
        assert isinstance(name, str), name
        table.poll()
        [dispatch] = table.running.values()
        stream(table, dispatch, prompt, canary if dispatch.arm is Arm.CANARY else as_baseline, rng)
        assert table.outcome(name) == "served"
        records += table.scheduler.windows()
    found = {arm: LogHistogram() for arm in Arm}
    for record in records[len(records) // 4 :]:  # the yardstick is learned by then
        found[record.arm].merge(LogHistogram.from_sparse(record.execution))
    return found


def stream(table: Table, dispatch: Dispatch, prompt: int, shape: Shape, rng: random.Random) -> None:
    first_ms, token_ms, tokens = shape(prompt, rng)
    table.clock.advance(first_ms)
    table.scheduler.first_byte(dispatch.lease_id)
    table.clock.advance(token_ms * (tokens - 1))
    item = ItemResult(Outcome.SUCCESS, None, prompt, tokens)
    table.finish(dispatch, items=[item], first_byte_ms=first_ms)


@pytest.mark.parametrize(
    ("canary", "least"),
    [(slower_tokens_shorter_answers, 1.35), (late_to_begin, 2.5)],
)
def test_a_slower_stream_hid_behind_the_length_of_its_answer(canary: Shape, least: float) -> None:
    arms = play(canary)
    for quantile in (0.5, 0.95):
        slow, usual = (arms[arm].quantile(quantile) for arm in (Arm.CANARY, Arm.BASELINE))
        assert slow is not None
        assert usual is not None
        assert slow / usual > least, quantile


@pytest.mark.parametrize("canary", [as_baseline, longer_answers])
def test_a_version_that_says_more_is_not_taken_for_a_slower_one(canary: Shape) -> None:
    arms = play(canary)
    for quantile in (0.5, 0.95):
        more, usual = (arms[arm].quantile(quantile) for arm in (Arm.CANARY, Arm.BASELINE))
        assert more is not None
        assert usual is not None
        assert 0.85 < more / usual < 1.15, quantile


def test_a_stream_counts_once_whatever_was_measured_of_it() -> None:
    arms = play(as_baseline, streams=80)
    assert 40 <= arms[Arm.BASELINE].count + arms[Arm.CANARY].count <= 80
