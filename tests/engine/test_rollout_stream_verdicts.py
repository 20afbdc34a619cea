"""From streams to a verdict: what they leave in the windows is enough to judge a canary by."""

import random

import pytest

from engine.rollout.calibration import calibrate
from engine.rollout.controller import judge
from engine.rollout.counts import ArmSum, count_window
from engine.rollout.evidence import WindowRecord
from engine.rollout.policy import RolloutPolicy
from engine.rollout.state import JudgeState
from engine.stats.histogram import LogHistogram
from engine.types import Arm, Protocol, SplitSpec
from tests.engine.harness import Table, replica, snapshot
from tests.engine.test_rollout_streams import (
    Shape,
    as_baseline,
    late_to_begin,
    longer_answers,
    slower_tokens_shorter_answers,
    stream,
)

POLICY = RolloutPolicy(steps=(0.5, 1.0))
STREAMS = 60  # a window
CALIBRATING, JUDGED = 8, 16


def windows(canary: Shape) -> list[dict[Arm, ArmSum]]:
    """Windows of so many streams, half of them the canary's."""
    rng = random.Random(11)
    specs = [
        replica("a", protocol=Protocol.OPENAI, max_batch_size=1),
        replica("b", protocol=Protocol.OPENAI, max_batch_size=1, version="v2"),
    ]
    split = SplitSpec(model="m", baseline="v1", canary="v2", canary_ratio=0.5, salt="s")
    table = Table(shot=snapshot(specs, split=split))
    found = []
    for window in range(CALIBRATING + JUDGED):
        for number in range(STREAMS):
            prompt = rng.choice([50, 200, 800])
            session = f"s{window}-{number}"
            table.submit(
                tokens=prompt, max_output_tokens=2000, deadline_ms=60_000.0, session_key=session
            )
            table.poll()
            [dispatch] = table.running.values()
            shape = canary if dispatch.arm is Arm.CANARY else as_baseline
            stream(table, dispatch, prompt, shape, rng)
        table.clock.advance(1000.0)
        found.append(summed(table.scheduler.windows()))
    return found


def summed(records: list[WindowRecord]) -> dict[Arm, ArmSum]:
    arms = {Arm.BASELINE: ArmSum(), Arm.CANARY: ArmSum()}
    for record in records:
        arms[record.arm].served += record.served
        arms[record.arm].execution.merge(LogHistogram.from_sparse(record.execution))
        arms[record.arm].latency.merge(LogHistogram.from_sparse(record.latency))
    return arms


def verdict(canary: Shape) -> str:
    """How the rollout of a version that streams like this ends."""
    played = windows(canary)
    before = [arms[Arm.BASELINE].execution for arms in played[2:CALIBRATING]]
    calibration = calibrate(before)
    assert calibration is not None
    state = JudgeState(calibration=calibration)
    name = ""
    for seq, arms in enumerate(played[CALIBRATING:]):
        counts = count_window(
            seq, arms[Arm.BASELINE], arms[Arm.CANARY], None, calibration.threshold, POLICY
        )
        state, said = judge(state, counts, POLICY)
        name = said.name
        if state.phase.is_final or said.act == "advance":
            break
    return name


@pytest.mark.parametrize("canary", [slower_tokens_shorter_answers, late_to_begin])
def test_a_slower_stream_is_rolled_back_however_short_its_answers(canary: Shape) -> None:
    assert verdict(canary) == "rollback:latency"


@pytest.mark.parametrize("canary", [as_baseline, longer_answers])
def test_a_stream_that_only_says_more_is_never_rolled_back(canary: Shape) -> None:
    assert not verdict(canary).startswith("rollback")
