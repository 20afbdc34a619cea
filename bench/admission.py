"""`python -m bench admission`: what a limit on the requests in flight costs and saves."""

import argparse
from collections.abc import Callable

import plotly.graph_objects as go

from bench.limiters import POLICIES, scenes
from bench.limiters.fixed import FixedLimit
from bench.limiters.planned import planned
from bench.limiters.rig import Run
from bench.progress import Progress, Task
from bench.report import Column, Goal, Report, Table
from engine.admission.gate import LimitFactory
from engine.errors import InvalidInput

NAME = "admission"
HELP = "Adaptive limits against the best fixed one: capacity changes, overload, bimodal, device."

_RATES = "120,150,180,200,260,320,400"
_PLANNED_FIXED = (64, 160, 4096)

_CHANGES = (
    Column(key="policy", title="policy"),
    Column(key="halved_s", title="s to follow a halving", form=".2f"),
    Column(key="doubled_s", title="s to follow a doubling", form=".2f"),
    Column(key="full_use_s", title="s to the largest best limit", form=".2f"),
    Column(key="good_ratio", title="goodput / best fixed", form=".3f"),
)
_OVERLOAD = (
    Column(key="policy", title="policy"),
    Column(key="limit", title="limit at the end", form=".0f"),
    Column(key="drift", title="limit / best fixed", form=".2f"),
    Column(key="good_ratio", title="goodput / best fixed", form=".3f"),
)
_BIMODAL = (
    Column(key="policy", title="policy"),
    Column(key="refused_ratio", title="refused, deadline 2 s", form=".2%"),
    Column(key="late_ratio", title="late, deadline 2 s", form=".2%"),
    Column(key="tight_refused_ratio", title="refused, deadline = SLO", form=".2%"),
    Column(key="tight_late_ratio", title="late, deadline = SLO", form=".2%"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rates", default=_RATES, help=f"of the device (default {_RATES})")
    parser.add_argument(
        "--policies", default=",".join(POLICIES), help=f"default {','.join(POLICIES)}"
    )
    parser.add_argument("--quick", action="store_true", help="shorter runs, for a first look")


def run(args: argparse.Namespace, progress: Progress) -> Report:
    policies = _chosen(args.policies)
    rates = _rates(args.rates)
    shorter = 0.2 if args.quick else 1.0
    rows: list[dict[str, object]] = []
    goals: list[Goal] = []
    tables: list[Table] = []
    charts: list[go.Figure] = []
    steps = 3 * (len(policies) + 1) + 2 * len(rates) * (len(policies) + 1)
    with progress.task("admission", total=steps) as task:
        for scene in (_capacity, _overload, _bimodal):
            found, table, wanted, chart = scene(policies, args.seed, shorter, task)
            rows += found
            tables.append(table)
            goals += wanted
            charts += chart
        for name, title in (("device", "EDF batcher"), ("planned", "the engine's planner")):
            found, table, wanted, chart = _device(
                name, title, policies, rates, args.seed, shorter, task
            )
            rows += found
            tables.append(table)
            goals += wanted
            charts += chart
    return Report(
        name=NAME,
        title="Admission: adaptive limits",
        summary=(
            "Every policy inside the engine's own gate, on the same arrivals and devices, in "
            "virtual time. The best fixed limit is found by trying them, per scene and rate: "
            "what an operator would set who knew the future and reset it at every change."
        ),
        rows=rows,
        tables=tables,
        charts=charts,
        goals=goals,
        notes=[
            "simulated: workers and accelerators are queues, the network costs nothing",
            "below saturation every limit that is not felt ties; only false refusals differ",
            "behind the planner the best limit is none: it sheds by worth what a limit refuses "
            "at random; a policy can only tie there",
            "headroom knows the SLO, the gradients do not: that is most of the difference",
            "bimodal with deadline = SLO is the scene in which headroom is not the best: at 0.9 "
            "load with 800 ms of work under a 1,000 ms SLO, bursts that make 5 % late shrink it",
        ],
    )


Scene = tuple[list[dict[str, object]], Table, list[Goal], list[go.Figure]]


def _capacity(policies: dict[str, LimitFactory], seed: int, shorter: float, task: Task) -> Scene:
    task.say("capacity halves and doubles")
    end_s = scenes.CAPACITY_END_MS / 1000.0
    full, half = (
        scenes.best_fixed(
            lambda policy, slow=slow: scenes.capacity(policy, seed, scenes.steady(slow)), end_s
        )
        for slow in (1.0, 2.0)
    )
    task.advance()
    ideal = (2.0 * full.good_per_s + half.good_per_s) * end_s / 3.0
    rows: list[dict[str, object]] = []
    chart = go.Figure()
    for name, policy in policies.items():
        found = scenes.capacity(policy, seed)
        halved_ms = scenes.settled_after_ms(found, half, scenes.HALVED_MS)
        doubled_ms = scenes.settled_after_ms(found, full, scenes.DOUBLED_MS)
        grown_ms = scenes.grown_after_ms(found, full.high, scenes.DOUBLED_MS)
        rows.append(
            {
                "scene": "capacity",
                "policy": name,
                "halved_s": None if halved_ms is None else halved_ms / 1000.0,
                "doubled_s": None if doubled_ms is None else doubled_ms / 1000.0,
                "full_use_s": None if grown_ms is None else grown_ms / 1000.0,
                "good_per_s": found.good / end_s,
                "good_ratio": found.good / ideal,
            }
        )
        chart.add_scatter(
            x=[at_ms / 1000.0 for at_ms, _, _ in found.track],
            y=[limit for _, limit, _ in found.track],
            name=name,
            mode="lines",
        )
        task.advance()
    for best, start_s, stop_s in ((full, 0, 60), (half, 60, 120), (full, 120, 180)):
        chart.add_shape(
            type="rect", x0=start_s, x1=stop_s, y0=best.low, y1=best.high,
            fillcolor="green", opacity=0.12, line_width=0,
        )  # fmt: skip
    chart.update_layout(
        title="The limit while capacity halves (60 s) and doubles (120 s); green: best fixed",
        xaxis_title="s",
        yaxis_title="limit",
        yaxis_range=[0, 400],
    )
    note = (
        f"twice the load, SLO = deadline = {scenes.SLO_MS:.0f} ms; best fixed limits "
        f"{full.low:.0f}-{full.high:.0f} at full and {half.low:.0f}-{half.high:.0f} at half "
        "capacity; followed = within 20 % of those, for 5 s (0: it never left them); the last "
        "column is stricter: within 20 % of the largest of them; a dash: never"
    )
    goals = [
        Goal(name=f"headroom follows a {change} within", measured=_of(rows, key), at_most=5.0)
        for change, key in (("halving, s", "halved_s"), ("doubling, s", "doubled_s"))
    ]
    table = Table(title="Capacity halves and doubles", columns=_CHANGES, rows=rows, note=note)
    return rows, table, goals, [chart]


def _overload(policies: dict[str, LimitFactory], seed: int, shorter: float, task: Task) -> Scene:
    task.say("thirty minutes of overload")
    until_ms = 1_800_000.0 * shorter
    best = scenes.best_fixed(lambda policy: scenes.overload(policy, seed, 120_000.0), 120.0)
    task.advance()
    rows: list[dict[str, object]] = []
    for name, policy in policies.items():
        found = scenes.overload(policy, seed, until_ms)
        last = [limit for at_ms, limit, _ in found.track if at_ms >= until_ms - 60_000.0]
        limit = sum(last) / len(last)
        rows.append(
            {
                "scene": "overload",
                "policy": name,
                "limit": limit,
                "drift": limit / best.high,
                "good_per_s": found.good * 1000.0 / until_ms,
                "good_ratio": found.good * 1000.0 / until_ms / best.good_per_s,
            }
        )
        task.advance()
    note = f"twice the load; best fixed limits {best.low:.0f}-{best.high:.0f}, {_per_s(best)}"
    goals = [
        Goal(
            name="headroom's limit after the overload / best fixed",
            measured=_of(rows, "drift"),
            at_most=1.25,
        ),
        Goal(
            name="headroom's goodput in the overload / best fixed",
            measured=_of(rows, "good_ratio"),
            at_least=0.97,
        ),
    ]
    title = f"{until_ms / 60_000.0:.0f} minutes of overload"
    return rows, Table(title=title, columns=_OVERLOAD, rows=rows, note=note), goals, []


def _bimodal(policies: dict[str, LimitFactory], seed: int, shorter: float, task: Task) -> Scene:
    task.say("short and long work")
    until_ms = 600_000.0 * shorter
    task.advance()
    rows: list[dict[str, object]] = []
    for name, policy in policies.items():
        loose = scenes.bimodal(policy, seed, until_ms, 2.0 * scenes.SLO_MS)
        tight = scenes.bimodal(policy, seed, until_ms, scenes.SLO_MS)
        rows.append(
            {
                "scene": "bimodal",
                "policy": name,
                "refused_ratio": loose.refused_ratio,
                "late_ratio": loose.late / loose.offered,
                "tight_refused_ratio": tight.refused_ratio,
                "tight_late_ratio": tight.late / tight.offered,
            }
        )
        task.advance()
    goals = [
        Goal(
            name="headroom's false refusals, bimodal",
            measured=_of(rows, "refused_ratio"),
            at_most=0.01,
        )
    ]
    note = "0.9 of the capacity: every refusal is a false one"
    table = Table(title="20 ms beside 800 ms", columns=_BIMODAL, rows=rows, note=note)
    return rows, table, goals, []


def _device(
    scene: str,
    title: str,
    policies: dict[str, LimitFactory],
    rates: list[float],
    seed: int,
    shorter: float,
    task: Task,
) -> Scene:
    duration_ms = 120_000.0 * max(shorter, 0.5)
    seconds = duration_ms / 1000.0
    simulate = scenes.device if scene == "device" else planned
    rows: list[dict[str, object]] = []
    best_good: dict[float, float] = {}
    for rate in rates:
        task.say(f"{title} at {rate:g}/s")

        def at_rate(policy: LimitFactory, rate: float = rate) -> Run:
            return simulate(policy, seed, rate, duration_ms)

        best_good[rate] = _best(scene, at_rate, seconds)
        rows.append(
            {
                "scene": scene,
                "policy": "best fixed",
                "rate": rate,
                "good_per_s": best_good[rate],
                "good_ratio": 1.0,
                "refused_ratio": None,
            }
        )
        task.advance()
        for name, policy in policies.items():
            found = at_rate(policy)
            rows.append(
                {
                    "scene": scene,
                    "policy": name,
                    "rate": rate,
                    "good_per_s": found.good / seconds,
                    "good_ratio": found.good / seconds / best_good[rate],
                    "refused_ratio": found.refused_ratio,
                }
            )
            task.advance()
    goals = [
        Goal(
            name=f"headroom's worst goodput / best fixed, {title}",
            measured=min(_values(rows, "headroom", "good_ratio"), default=None),
            at_least=0.97,
        )
    ]
    if 180.0 in rates:
        goals.append(
            Goal(
                name=f"headroom's refusals at 180/s, {title}",
                measured=next(
                    (
                        float(str(row["refused_ratio"]))
                        for row in rows
                        if row["policy"] == "headroom" and row["rate"] == 180.0
                    ),
                    None,
                ),
                at_most=0.005,
            )
        )
    chart = go.Figure()
    for name in ("best fixed", *policies):
        chart.add_scatter(x=rates, y=_values(rows, name, "good_per_s"), name=name)
    chart.update_layout(
        title=f"Goodput of the device behind {title}",
        xaxis_title="offered requests/s",
        yaxis_title="answered in time/s",
    )
    table = _by_rate(rows, rates, f"The headline's device behind {title}: goodput/s (refused)")
    return rows, table, goals, [chart]


def _best(scene: str, at_rate: Callable[[LimitFactory], Run], seconds: float) -> float:
    if scene == "device":
        return scenes.best_fixed(at_rate, seconds).good_per_s
    runs = (at_rate(lambda slo_ms, n=n: FixedLimit(n)) for n in _PLANNED_FIXED)
    return max(run.good for run in runs) / seconds


def _by_rate(rows: list[dict[str, object]], rates: list[float], title: str) -> Table:
    """One line a policy, one column a rate."""
    lines: dict[object, dict[str, object]] = {}
    for row in rows:
        line = lines.setdefault(row["policy"], {"policy": row["policy"]})
        refused = row["refused_ratio"]
        told = f" ({refused:.1%})" if isinstance(refused, float) else ""
        line[f"{row['rate']:g}"] = f"{row['good_per_s']:.1f}{told}"
    columns = [Column(key="policy", title="policy")]
    columns += [Column(key=f"{rate:g}", title=f"{rate:g}/s") for rate in rates]
    return Table(title=title, columns=columns, rows=list(lines.values()))


def _values(rows: list[dict[str, object]], policy: str, key: str) -> list[float]:
    return [float(str(row[key])) for row in rows if row["policy"] == policy]


def _of(rows: list[dict[str, object]], key: str) -> float | None:
    """The figure of the default policy."""
    for row in rows:
        value = row[key]
        if row["policy"] == "headroom" and isinstance(value, float):
            return value
    return None


def _per_s(best: scenes.Best) -> str:
    return f"{best.good_per_s:.1f} answered in time per second"


def _chosen(text: str) -> dict[str, LimitFactory]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in POLICIES:
            raise InvalidInput("policies", name, f"must be of {', '.join(POLICIES)}")
    return {name: POLICIES[name] for name in names}


def _rates(text: str) -> list[float]:
    try:
        rates = [float(rate) for rate in text.split(",")]
    except ValueError as error:
        raise InvalidInput("rates", text, "must be numbers, separated by commas") from error
    if not rates or min(rates) <= 0.0:
        raise InvalidInput("rates", text, "must be requests per second > 0")
    return rates
