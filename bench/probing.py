"""The seven probes, as coroutines that drive one proxy and read its upstreams' own counts."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import aiohttp

_DEADLINE_MS = 2000
Findings = dict[str, object]


@dataclass(slots=True, frozen=True)
class Target:
    """A proxy under test and the two upstreams behind it, by URL."""

    url: str
    a: str
    b: str
    key: str = "none"


@dataclass(slots=True, frozen=True)
class ProbeGoal:
    key: str
    title: str
    at_least: float | None = None
    at_most: float | None = None


@dataclass(slots=True, frozen=True)
class Probe:
    name: str
    title: str
    drive: Callable[["Client"], Awaitable[Findings]]
    goals: tuple[ProbeGoal, ...]


def run_probe(probe: Probe, target: Target) -> Findings:
    """Run one probe; `verdict` in the findings is the line a person reads."""

    async def main() -> Findings:
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=10.0)
        ) as session:
            client = Client(session, target)
            for upstream in (target.a, target.b):
                await client.script(upstream)
            return await probe.drive(client)

    return asyncio.run(main())


class Client:
    """Sends chat completions through the proxy and scripts the upstreams behind it."""

    def __init__(self, session: aiohttp.ClientSession, target: Target) -> None:
        self.session = session
        self.target = target
        self.latencies_ms: list[float] = []
        self.deadline_ms = _DEADLINE_MS

    async def script(self, upstream: str, **script: object) -> None:
        async with self.session.post(f"{upstream}/_script", json=script) as answer:
            assert answer.status == 200, await answer.text()

    async def stats(self, upstream: str) -> dict[str, int]:
        async with self.session.get(f"{upstream}/_stats") as answer:
            return dict(await answer.json())

    async def ask(self, timeout_s: float = 10.0) -> int:
        """One request; its status, or 0 where no answer came."""
        started = time.perf_counter()
        try:
            async with self.session.post(
                f"{self.target.url}/v1/chat/completions",
                json={
                    "model": "tiny",
                    "messages": [{"role": "user", "content": "hello"}],
                    "max_tokens": 4,
                },
                headers={
                    "authorization": f"Bearer {self.target.key}",
                    "x-halcyon-deadline-ms": str(self.deadline_ms),
                },
                timeout=aiohttp.ClientTimeout(total=timeout_s),
            ) as answer:
                await answer.read()
                self.latencies_ms.append((time.perf_counter() - started) * 1000.0)
                return answer.status
        except (aiohttp.ClientError, TimeoutError):
            return 0

    async def load(self, requests: int, clients: int, timeout_s: float = 10.0) -> Counter[int]:
        """`requests` from `clients` closed loops; the statuses."""
        left = iter(range(requests))
        statuses: Counter[int] = Counter()

        async def one() -> None:
            for _ in left:
                statuses[await self.ask(timeout_s)] += 1

        await asyncio.gather(*(one() for _ in range(clients)))
        return statuses

    def p95_ms(self) -> float:
        ordered = sorted(self.latencies_ms)
        return ordered[int(0.95 * (len(ordered) - 1))] if ordered else float("nan")


def _bad(statuses: Counter[int]) -> int:
    return sum(n for status, n in statuses.items() if status != 200)


async def _fails_fast(client: Client) -> Findings:
    await client.script(client.target.a, mode="fail", status=500, delay_ms=2)
    await client.script(client.target.b, delay_ms=20)
    statuses = await client.load(600, 8)
    return {"errors": _bad(statuses), "verdict": f"{_bad(statuses)} of 600 failed"}


async def _recovers(client: Client) -> Findings:
    await client.script(client.target.a, mode="fail", status=500, delay_ms=2)
    await client.script(client.target.b, delay_ms=20)
    await client.load(100, 8)
    await client.script(client.target.a, delay_ms=20)
    before = await client.stats(client.target.a)
    until = time.monotonic() + 8.0
    total = 0
    while time.monotonic() < until:
        total += sum((await client.load(40, 8)).values())
    middle = await client.stats(client.target.a)
    await client.load(200, 8)
    after = await client.stats(client.target.a)
    share = (after["completed"] - middle["completed"]) / 200
    return {
        "share": share,
        "shareWhileHealing": (middle["completed"] - before["completed"]) / max(total, 1),
        "verdict": f"{share:.0%} of its traffic 8 s later",
    }


async def _rejects(client: Client) -> Findings:
    for upstream in (client.target.a, client.target.b):
        await client.script(upstream, mode="reject")
    rejected = await client.load(60, 4)
    for upstream in (client.target.a, client.target.b):
        await client.script(upstream)
    good = await client.load(60, 4)
    return {
        "rejected": rejected[400],
        "good": good[200],
        "verdict": f"{rejected[400]} of 60 got the 400, then {good[200]} of 60 served",
    }


async def _busy(client: Client) -> Findings:
    upstreams = (client.target.a, client.target.b)
    attempts = 0
    for upstream in upstreams:
        attempts -= (await client.stats(upstream))["requests"]
        await client.script(upstream, mode="busy")
    statuses = await client.load(40, 4)
    for upstream in upstreams:
        attempts += (await client.stats(upstream))["requests"]
        await client.script(upstream)
    first = await client.ask()
    return {
        "attemptsPerRequest": attempts / 40,
        "nextStatus": first,
        "served": statuses[200],
        "verdict": f"{attempts / 40:.2f} attempts a request, the next one got {first}",
    }


async def _hangs(client: Client) -> Findings:
    await client.script(client.target.a, mode="hang")
    await client.script(client.target.b, delay_ms=20)
    statuses = await client.load(40, 4, timeout_s=3.0)
    beyond = sum(1 for ms in client.latencies_ms if ms > _DEADLINE_MS + 100)
    lost = statuses[0] + beyond
    return {
        "lostBeyondDeadline": lost,
        "failed": _bad(statuses),
        "p95_ms": client.p95_ms(),
        "verdict": f"{lost} of 40 lost beyond 2 s, {_bad(statuses)} failed",
    }


async def _slow_one(client: Client) -> Findings:
    await client.script(client.target.a, delay_ms=20)
    await client.script(client.target.b, delay_ms=200)
    await client.load(100, 16)
    client.latencies_ms.clear()
    client.deadline_ms = 150  # the slow one cannot meet it, the fast one can
    before = await client.stats(client.target.b)
    statuses = await client.load(600, 16)
    after = await client.stats(client.target.b)
    p95_ms = client.p95_ms()
    return {
        "p95_ms": p95_ms,
        "errors": _bad(statuses),
        "toTheSlowOne": after["requests"] - before["requests"],
        "verdict": f"p95 {p95_ms:.0f} ms",
    }


async def _leave(client: Client) -> Findings:
    for upstream in (client.target.a, client.target.b):
        await client.script(upstream, delay_ms=3000)
    asks = [asyncio.ensure_future(client.ask()) for _ in range(8)]
    await asyncio.sleep(0.4)  # part of the probe: they leave 0.4 s into a 3 s job
    active = sum([(await client.stats(u))["active"] for u in (client.target.a, client.target.b)])
    left = time.perf_counter()
    for ask in asks:
        ask.cancel()
    closed_ms = None
    while time.perf_counter() - left < 2.0:
        now = sum([(await client.stats(u))["active"] for u in (client.target.a, client.target.b)])
        if now == 0:
            closed_ms = (time.perf_counter() - left) * 1000.0
            break
        await asyncio.sleep(0.01)
    shown = "never" if closed_ms is None else f"{closed_ms:.0f} ms"
    return {
        "active": active,
        "closed_ms": closed_ms,
        "verdict": f"{active} running, closed after {shown}",
    }


PROBES: tuple[Probe, ...] = (
    Probe(
        "fails_fast", "one fails in 2 ms", _fails_fast, (ProbeGoal("errors", "errors", at_most=0),)
    ),
    Probe("recovers", "one heals", _recovers, (ProbeGoal("share", "share", at_least=0.2),)),
    Probe(
        "rejects",
        "60 bad, 60 good",
        _rejects,
        (
            ProbeGoal("rejected", "400s passed on", at_least=60),
            ProbeGoal("good", "good ones served", at_least=60),
        ),
    ),
    Probe(
        "busy",
        "both busy, then free",
        _busy,
        (
            ProbeGoal("attemptsPerRequest", "attempts a request", at_most=1.1),
            ProbeGoal("nextStatus", "status of the next request", at_most=200, at_least=200),
        ),
    ),
    Probe(
        "hangs",
        "one hangs",
        _hangs,
        (ProbeGoal("lostBeyondDeadline", "lost beyond their deadline", at_most=0),),
    ),
    Probe(
        "slow_one",
        "20 ms beside 200 ms",
        _slow_one,
        (ProbeGoal("p95_ms", "p95, ms", at_most=60),),
    ),
    Probe(
        "leave",
        "8 clients leave",
        _leave,
        (
            ProbeGoal("active", "running when they left", at_least=8),
            ProbeGoal("closed_ms", "upstream closed after, ms", at_most=250),
        ),
    ),
)

__all__ = ["PROBES", "Client", "Probe", "Target", "run_probe"]
