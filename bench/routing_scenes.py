"""The scenes of the routing benchmark: what goes wrong, and what is measured of it.

Each returns one row: the scene, its figures, and the goals they are held against. All fleets
run at 60 % of their capacity unless the scene says otherwise; latencies are of the client.
"""

import random
from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate

from bench.report import Goal
from bench.routing_fleet import RoutedFleet
from engine.routing.affinity import AffinityConfig
from engine.routing.hedge import HedgePolicy
from engine.routing.router import RouterConfig
from engine.stats.histogram import LogHistogram
from engine.types import Strategy

Row = dict[str, object]
Scene = tuple[str, Callable[[int], tuple[list[Row], list[Goal]]]]

_PLACES = 4
_MEAN_MS = 50.0
_LOAD = 0.6


def _fleet(seed: int, n: int, *, places: int = _PLACES, **options: object) -> RoutedFleet:
    fleet = RoutedFleet(seed, **options)  # type: ignore[arg-type]
    for number in range(n):
        fleet.add(f"r{number}", places=places).mean_ms = _MEAN_MS
    return fleet


def _rate(n: int, places: int = _PLACES, load: float = _LOAD) -> float:
    return load * n * places * 1000.0 / _MEAN_MS


def _share(fleet: RoutedFleet, name: str, from_ms: float, to_ms: float) -> float:
    """The replica's share of the attempts within [from, to)."""
    attempts = fleet.log.attempts
    low = bisect_left(attempts, (from_ms, ""))
    high = bisect_left(attempts, (to_ms, ""))
    if high == low:
        return 0.0
    return sum(1 for _, who in attempts[low:high] if who == name) / (high - low)


def _latency(fleet: RoutedFleet, q: float, from_ms: float = 0.0, to_ms: float = 1e18) -> float:
    times = LogHistogram()
    for arrived_ms, latency_ms in fleet.log.answers:
        if from_ms <= arrived_ms < to_ms:
            times.record(latency_ms)
    return times.quantile(q) or 0.0


def _worst_extra(fleet: RoutedFleet, width_ms: float = 10_000.0) -> float:
    """The largest share of further attempts in any whole window that saw 100 requests."""
    extra = fleet.log.extra
    arrivals = fleet.log.arrivals
    worst = 0.0
    whole = bisect_left(extra, arrivals[-1] - width_ms)
    for at_ms in extra[:whole]:
        spent = bisect_left(extra, at_ms + width_ms) - bisect_left(extra, at_ms)
        came = bisect_left(arrivals, at_ms + width_ms) - bisect_left(arrivals, at_ms)
        if came >= 100:
            worst = max(worst, spent / came)
    return worst


def black_hole(seed: int) -> tuple[list[Row], list[Goal]]:
    """One replica starts to fail everything in 2 ms: how much of the traffic does it eat?"""
    rows: list[Row] = []
    goals: list[Goal] = []
    for n, places, bound in ((3, 4, 0.02), (10, 4, 0.005), (3, 1, None), (10, 1, None)):
        fleet = _fleet(seed, n, places=places)
        fleet.offer(_rate(n, places), 30_000.0)
        fleet.loop.run(20_000.0)
        fleet.servers["r0"].fault_ratio = 1.0
        fleet.log.errors = 0
        fleet.loop.run(30_000.0)
        first = _share(fleet, "r0", 20_000.0, 30_000.0)
        rows.append(
            {
                "scene": f"black hole, N={n}, {_rate(n, places):.0f}/s",
                "figure": "share of the traffic eaten in the first 10 s",
                "value": first,
                "errors": fleet.log.errors,
                "p95_ms": _latency(fleet, 0.95, 20_000.0),
            }
        )
        if bound is not None:
            goals.append(
                Goal(name=f"black hole N={n}: share in 10 s", measured=first, at_most=bound)
            )
    return rows, goals


def straggler(seed: int) -> tuple[list[Row], list[Goal]]:
    """One of ten replicas becomes five times slower."""
    fleet = _fleet(seed, 10)
    fleet.offer(_rate(10, load=0.5), 60_000.0)
    fleet.loop.run(20_000.0)
    fleet.servers["r0"].mean_ms = 5 * _MEAN_MS
    fleet.loop.run(60_000.0)
    share = _share(fleet, "r0", 30_000.0, 60_000.0)
    before = _latency(fleet, 0.95, 5_000.0, 20_000.0)
    after = _latency(fleet, 0.95, 30_000.0, 60_000.0)
    row: Row = {
        "scene": "straggler, 5x slower",
        "figure": "its share of the traffic (fair: 0.1)",
        "value": share,
        "errors": fleet.log.errors,
        "p95_ms": after,
    }
    return [row], [
        Goal(name="straggler: p95 over the p95 before", measured=after / before, at_most=1.5),
        Goal(name="straggler: still tried", measured=share, at_least=1e-4),
    ]


def healed(seed: int) -> tuple[list[Row], list[Goal]]:
    """A black hole heals: when does it carry half of its fair share again?

    The answer depends on where in its backoff the outage ends, so there are several outages.
    """
    slowest = 0.0
    rows: list[Row] = []
    for outage_s in (5, 10, 13, 17, 33, 60):
        fleet = _fleet(seed, 10)
        heals_ms = 10_000.0 + outage_s * 1000.0
        fleet.offer(_rate(10), heals_ms + 15_000.0)
        fleet.loop.run(10_000.0)
        fleet.servers["r0"].fault_ratio = 1.0
        fleet.loop.run(heals_ms)
        fleet.servers["r0"].fault_ratio = 0.0
        fleet.loop.run(heals_ms + 15_000.0)
        seconds = next(
            (
                step / 4.0
                for step in range(4, 60)
                if _share(fleet, "r0", heals_ms + step * 250.0 - 1000.0, heals_ms + step * 250.0)
                >= 0.05
            ),
            15.0,
        )
        slowest = max(slowest, seconds)
        rows.append(
            {
                "scene": f"healed after {outage_s} s",
                "figure": "seconds until half of its fair share",
                "value": seconds,
                "errors": fleet.log.errors,
                "p95_ms": _latency(fleet, 0.95, heals_ms),
            }
        )
    return rows, [Goal(name="healed: slowest, in seconds", measured=slowest, at_most=5.0)]


def random_errors(seed: int) -> tuple[list[Row], list[Goal]]:
    """Every replica fails a little, for an hour: no breaker may trip."""
    rows: list[Row] = []
    goals: list[Goal] = []
    for ratio in (0.01, 0.05):
        fleet = _fleet(seed, 10)
        for server in fleet.servers.values():
            server.fault_ratio = ratio
        fleet.offer(100.0, 3_600_000.0)
        fleet.loop.run(3_600_000.0)
        trips = float(sum(s.state.breaker.trips for s in fleet.servers.values()))
        rows.append(
            {
                "scene": f"{ratio:.0%} random errors for an hour",
                "figure": "breaker trips",
                "value": trips,
                "errors": fleet.log.errors,
                "p95_ms": _latency(fleet, 0.95),
            }
        )
        goals.append(Goal(name=f"{ratio:.0%} random errors: trips", measured=trips, at_most=0.0))
    return rows, goals


def newcomer(seed: int) -> tuple[list[Row], list[Goal]]:
    """A replica joins nine others that are fast and warm."""
    fleet = _fleet(seed, 9)
    fleet.offer(_rate(9), 40_000.0)
    fleet.loop.run(20_000.0)
    fleet.add("new", places=_PLACES, age_s=0.0).mean_ms = _MEAN_MS
    fleet.loop.run(40_000.0)
    first = 10.0 * _share(fleet, "new", 20_000.0, 21_000.0)
    fifth = 10.0 * _share(fleet, "new", 24_000.0, 25_000.0)
    rows: list[Row] = [
        {
            "scene": "new replica",
            "figure": f"share of its fair share in second {second}",
            "value": value,
            "errors": fleet.log.errors,
            "p95_ms": _latency(fleet, 0.95, 20_000.0),
        }
        for second, value in ((1, first), (5, fifth))
    ]
    return rows, [
        Goal(name="new replica: first second", measured=first, at_most=1.5),
        Goal(name="new replica: fifth second", measured=fifth, at_least=0.5),
    ]


def slowdown(seed: int) -> tuple[list[Row], list[Goal]]:
    """All replicas slow down together: hedging must not make it worse."""
    rows: list[Row] = []
    goals: list[Goal] = []
    for factor in (2.0, 2.6, 3.6):
        p95: dict[str, float] = {}
        worst = 0.0
        for name, hedging in (("unhedged", None), ("hedged", HedgePolicy())):
            fleet = _fleet(seed, 10, hedging=hedging)
            fleet.offer(_rate(10, load=0.3), 70_000.0)
            fleet.loop.run(30_000.0)
            for server in fleet.servers.values():
                server.mean_ms = factor * _MEAN_MS
            fleet.loop.run(60_000.0)
            for server in fleet.servers.values():
                server.mean_ms = _MEAN_MS
            fleet.loop.run(70_000.0)
            p95[name] = _latency(fleet, 0.95, 30_000.0, 60_000.0)
            extra = _worst_extra(fleet)
            worst = max(worst, extra)
            rows.append(
                {
                    "scene": f"all {factor:g}x slower for 30 s, {name}",
                    "figure": "most extra load in any 10 s",
                    "value": extra,
                    "errors": fleet.log.errors,
                    "p95_ms": p95[name],
                }
            )
        ratio = p95["hedged"] / p95["unhedged"]
        about = f"all {factor:g}x slower"
        goals.append(Goal(name=f"{about}: hedged p95 / unhedged", measured=ratio, at_most=1.05))
        goals.append(Goal(name=f"{about}: extra load in 10 s", measured=worst, at_most=0.055))
    return rows, goals


def stragglers(seed: int) -> tuple[list[Row], list[Goal]]:
    """3 % of all answers take ten times as long, anywhere: what hedging is for."""
    rows: list[Row] = []
    p99: dict[str, float] = {}
    worst = 0.0
    for name, hedging in (("unhedged", None), ("hedged", HedgePolicy())):
        fleet = _fleet(seed, 10, hedging=hedging)
        for server in fleet.servers.values():
            server.straggle_ratio = 0.03
        fleet.offer(_rate(10, load=0.4), 90_000.0)
        fleet.loop.run(90_000.0)
        p99[name] = _latency(fleet, 0.99, 30_000.0)
        worst = max(worst, _worst_extra(fleet))
        rows.append(
            {
                "scene": f"3 % of answers 10x slower, {name}",
                "figure": "p99 in ms",
                "value": p99[name],
                "errors": fleet.log.errors,
                "p95_ms": _latency(fleet, 0.95, 30_000.0),
            }
        )
    return rows, [
        Goal(
            name="independent stragglers: hedged p99 / unhedged",
            measured=p99["hedged"] / p99["unhedged"],
            at_most=0.7,
        ),
        Goal(name="independent stragglers: extra load in 10 s", measured=worst, at_most=0.055),
    ]


def zipf(seed: int) -> tuple[list[Row], list[Goal]]:
    """A thousand sessions, Zipf 1.1, over ten nodes."""
    rows: list[Row] = []
    found: dict[str, tuple[float, float]] = {}
    unbounded = RouterConfig(affinity=AffinityConfig(load_factor=10.0))
    for name, strategy, config in (
        ("affinity", Strategy.AFFINITY, RouterConfig()),
        ("affinity without a bound", Strategy.AFFINITY, unbounded),
        ("peak_ewma", Strategy.PEAK_EWMA, RouterConfig()),
    ):
        fleet = _fleet(seed, 10, places=16, strategy=strategy, config=config)
        draw = random.Random(seed + 2)
        weights = list(accumulate(rank**-1.1 for rank in range(1, 1001)))

        def key(draw: random.Random = draw, weights: list[float] = weights) -> str:
            return f"session-{bisect_left(weights, draw.random() * weights[-1])}"

        load = dict.fromkeys(fleet.servers, 0)
        peaks: list[float] = []

        def watch(
            now_ms: float,
            fleet: RoutedFleet = fleet,
            load: dict[str, int] = load,
            peaks: list[float] = peaks,
        ) -> None:
            if now_ms < 5_000.0:
                return
            most = total = 0
            for name, server in fleet.servers.items():
                in_flight = server.state.in_flight
                load[name] += in_flight
                total += in_flight
                most = max(most, in_flight)
            peaks.append(most * len(load) / max(total, 1))

        fleet.on_arrival(watch)
        fleet.offer(_rate(10, places=16), 60_000.0, key)
        fleet.loop.run(60_000.0)
        ratio = max(load.values()) * len(load) / sum(load.values())
        rules = fleet.log.rules
        home = rules.get("home", 0) / sum(rules.values())
        found[name] = ratio, home
        rows.append(
            {
                "scene": f"Zipf 1.1 over 10 nodes, {name}",
                "figure": "share served at home",
                "value": home,
                "errors": fleet.log.errors,
                "p95_ms": _latency(fleet, 0.95, 5_000.0),
                "max_over_avg": ratio,
                "peak_over_avg": sorted(peaks)[len(peaks) // 2],
            }
        )
    ratio, home = found["affinity"]
    return rows, [
        Goal(name="Zipf affinity: max/avg in flight", measured=ratio, at_most=1.30),
        Goal(name="Zipf affinity: share at home", measured=home, at_least=0.60),
    ]


SCENES: list[Scene] = [
    ("black hole", black_hole),
    ("straggler", straggler),
    ("healed", healed),
    ("new replica", newcomer),
    ("correlated slowdown", slowdown),
    ("independent stragglers", stragglers),
    ("Zipf affinity", zipf),
    ("random errors", random_errors),
]
