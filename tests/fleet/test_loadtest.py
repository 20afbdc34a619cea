"""The load test tells the truth: seeded, open or closed, with a clock that is not coordinated."""

import asyncio
import json
import random
from collections.abc import Iterator
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from django.core.management import CommandError, call_command

from engine.errors import InvalidInput
from fleet.loadtest.loops import closed_loop, open_loop
from fleet.loadtest.pattern import Pattern
from fleet.loadtest.sender import Sender
from fleet.loadtest.tally import Tally
from fleet.loadtest.workload import BENCHMARK_DEADLINES, Deadlines, Workload


class Gateway:
    """A door that answers as it is told, and counts how many are inside."""

    def __init__(self) -> None:
        self.pause_s = 0.002
        self.status = 200
        self.inside = self.most_inside = self.seen = 0

    async def infer(self, request: web.Request) -> web.Response:
        self.seen += 1
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        await asyncio.sleep(self.pause_s)
        self.inside -= 1
        if self.status != 200:
            body = {"error": {"code": "overloaded", "message": "no"}}
            return web.json_response(body, status=self.status)
        return web.json_response({"version": "v1", "replicaId": "r1", "batch": {"size": 4}})


@pytest.fixture
async def gateway() -> Any:
    served = Gateway()
    app = web.Application()
    app.router.add_post("/v1/infer", served.infer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    yield served, f"http://127.0.0.1:{port}"
    await runner.cleanup()


def workload(**other: Any) -> Workload:
    return Workload("llama", Deadlines.parse("2000"), **other)


async def test_a_closed_loop_keeps_exactly_its_clients_inside(gateway: Any) -> None:
    served, url = gateway
    tally = Tally()
    async with Sender(url, "key") as sender:
        await closed_loop(sender, workload(), tally.record, clients=7, duration_s=0.5)
    assert served.most_inside == 7
    assert tally.offered == served.seen == tally.succeeded
    assert tally.success_ratio == 1.0


async def test_an_open_loop_waits_for_nobody_and_counts_from_when_it_should_have_sent(
    gateway: Any,
) -> None:
    served, url = gateway
    served.pause_s = 0.3
    tally = Tally(keep=True)
    pattern = Pattern("steady", 100.0, 1.0)
    async with Sender(url, "key") as sender:
        await open_loop(sender, workload(), tally.record, pattern, seed=3)
    due = list(pattern.arrivals(random.Random(3)))
    assert tally.offered == len(due)
    assert served.most_inside > 10
    assert sorted(e.started_s for e in tally.endings or []) == pytest.approx(due)
    assert min(e.latency_ms for e in tally.endings or []) >= 300


async def test_refusals_and_silence_are_counted_by_their_code(gateway: Any) -> None:
    served, url = gateway
    served.status = 503
    tally = Tally()
    async with Sender(url, "key") as sender:
        await closed_loop(sender, workload(), tally.record, clients=2, duration_s=0.1)
    assert set(tally.codes) == {"overloaded"}
    async with Sender("http://127.0.0.1:9", "key") as sender:
        await closed_loop(sender, workload(), tally.record, clients=1, duration_s=0.05)
    assert tally.codes["no_answer"] >= 1
    assert tally.success_ratio == 0.0


def test_one_seed_gives_the_same_requests() -> None:
    bodies = [shot.body for shot in workload(seed=5).many(50)]
    assert bodies == [shot.body for shot in workload(seed=5).many(50)]
    assert bodies != [shot.body for shot in workload(seed=6).many(50)]


def test_sizes_and_deadlines_are_the_benchmarks() -> None:
    made = Workload("llama", Deadlines.parse(BENCHMARK_DEADLINES), seed=1).many(20_000)
    assert sum(shot.tokens for shot in made) / len(made) == pytest.approx(182, rel=0.03)
    assert min(shot.tokens for shot in made) == 16
    urgent = sum(shot.deadline_ms == 120 for shot in made) / len(made)
    assert urgent == pytest.approx(0.3, abs=0.02)
    for shot in made[:100]:
        assert len(json.loads(shot.body)["input"]) == 4 * shot.tokens


def test_a_long_tail_keeps_the_mean_and_widens_the_rest() -> None:
    usual, wide = workload(seed=1).many(20_000), workload(seed=1, longtail=True).many(20_000)

    def mean(shots: Any) -> float:
        return sum(shot.tokens for shot in shots) / len(shots)

    assert mean(wide) == pytest.approx(mean(usual), rel=0.12)
    largest = lambda shots: sorted(shot.tokens for shot in shots)[-200]  # noqa: E731
    assert largest(wide) > 1.5 * largest(usual)


def test_sentences_are_words_as_many_as_their_size() -> None:
    for shot in workload(sentences=True, seed=2).many(50):
        assert len(json.loads(shot.body)["input"].split()) == shot.tokens


def test_a_burst_is_seven_and_a_half_times_the_rate_in_its_middle() -> None:
    at = list(Pattern("burst", 20.0, 300.0).arrivals(random.Random(1)))
    thirds = [sum(100 * n <= t < 100 * (n + 1) for t in at) / 100 for n in range(3)]
    assert thirds == pytest.approx([20, 150, 20], rel=0.1)
    assert all(later > earlier for earlier, later in pairwise(at))


@pytest.mark.parametrize("text", ["", "fast", "-5", "120:0", "120:x"])
def test_a_deadline_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        Deadlines.parse(text)


@pytest.fixture
def served_elsewhere(tmp_path: Path) -> Iterator[str]:
    """A gateway in a thread: the command has an event loop of its own."""
    import threading

    started, stopped = threading.Event(), asyncio.Event()
    address: dict[str, Any] = {}

    async def serve() -> None:
        app = web.Application()
        app.router.add_post("/v1/infer", Gateway().infer)
        runner = web.AppRunner(app, handle_signals=False)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        address["url"] = f"http://127.0.0.1:{runner.addresses[0][1]}"
        address["loop"] = asyncio.get_running_loop()
        started.set()
        await stopped.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(10)
    yield address["url"]
    address["loop"].call_soon_threadsafe(stopped.set)
    thread.join()


def test_the_command_writes_what_it_saw(served_elsewhere: str, tmp_path: Path) -> None:
    out = StringIO()
    csv, page = tmp_path / "all.csv", tmp_path / "page.html"
    call_command(
        "loadtest",
        *("--url", served_elsewhere, "--key", "k", "--clients", "3", "--duration", "0.5"),
        *("--csv", str(csv), "--plot", str(page), "--min-success", "1", "--json"),
        stdout=out,
    )
    summary = json.loads(out.getvalue())
    assert summary["successRatio"] == 1.0
    assert summary["replicas"] == {"r1": summary["offered"]}
    assert len(csv.read_text().splitlines()) == summary["offered"] + 1
    assert "cdn." not in page.read_text()[-20_000:]
    assert page.stat().st_size > 1_000_000


def test_too_little_success_and_nobody_there_are_failures(tmp_path: Path) -> None:
    nobody = ("--url", "http://127.0.0.1:9", "--key", "k", "--clients", "1", "--duration", "600")
    with pytest.raises(CommandError, match="is a gateway running there"):
        call_command("loadtest", *nobody, stdout=StringIO())  # at once, not after ten minutes
    with pytest.raises(CommandError, match="--csv"):
        call_command("loadtest", *nobody, "--csv", "/nowhere/x.csv", stdout=StringIO())


async def test_requests_cut_off_by_the_end_are_not_counted_as_failed(gateway: Any) -> None:
    served, url = gateway
    served.pause_s = 30.0
    tally = Tally()
    pattern = Pattern("steady", 200.0, float("inf"))
    async with Sender(url, "key") as sender:
        loop = asyncio.create_task(open_loop(sender, workload(), tally.record, pattern, seed=3))
        async with asyncio.timeout(20.0):
            while served.inside < 5:
                await asyncio.sleep(0.01)
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)
    assert tally.offered == 0
