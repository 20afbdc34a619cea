"""What a scheduler tuned to one trace would fail: the robustness tables of the headline bench.

Unseen seeds, log-normal service noise, wrong size predictions, a device that becomes slower
mid-run, fleets of unequal devices, and the price of serving large requests.
"""

import random
from collections.abc import Sequence

from bench.anchors import MUST
from bench.baselines import BASELINES
from bench.progress import Progress
from bench.report import Column, Goal, Report, Table
from bench.stage import Row, Stage, planner
from bench.trace import PUBLISHED_SEED
from bench.trial import Truth
from engine.batching.worth import Objective

_NOISE_ALLOWANCE = 0.98
_RATES = (150.0, 180.0, 200.0, 260.0, 320.0, 500.0)
_FLEET_RATES = (150.0, 180.0, 200.0, 260.0)
_DRIFT = 1.6
_DRIFT_AT_MS = 60_000.0
_WINDOW_MS = 2_000.0


def robustness(stage: Stage, report: Report, progress: Progress) -> None:
    """Run all of it into `report`."""
    best = planner()
    noisy = {
        "service noise 10 %": Truth(noise=0.1),
        "size noise 30 %": Truth(size_noise=0.3),
    }
    seeds = random.Random(PUBLISHED_SEED).sample(range(1, 1_000_000), 3)
    extra: list[Row] = []
    with progress.task("robustness", total=(len(noisy) + len(seeds)) * len(_RATES)) as task:
        for title, truth in noisy.items():
            for rate in _RATES:
                row = stage.row(title, best, truth, task, rate=rate)
                extra.append(row)
                report.goals.append(
                    _floor(f"{title} at {rate:g}/s", row, MUST[int(rate)] * _NOISE_ALLOWANCE)
                )
        for seed in seeds:
            for rate in _RATES:
                row = stage.row(f"seed {seed}", best, Truth(), task, rate=rate, seed=seed)
                extra.append(row)
                report.goals.append(_floor(f"seed {seed} at {rate:g}/s", row, MUST[int(rate)]))
    report.tables.append(_by_rate("The planner on other seeds and with noise", extra))
    _fleets(stage, report, progress)
    _drift(stage, report, progress)
    _prices(stage, report, progress)
    report.extra["robustness"] = extra


def _fleets(stage: Stage, report: Report, progress: Progress) -> None:
    fleets = {"3 devices (1, 1, 0.6)": (1.0, 1.0, 0.6), "8 devices": (1.0,) * 8}
    alone = {
        row["rate"]: row["goodput_per_s"] for row in report.rows if row["scheduler"] == "goodput"
    }
    rows: list[Row] = []
    with progress.task("fleets", total=3 * len(fleets) * len(_FLEET_RATES)) as task:
        for title, speeds in fleets.items():
            for rate in _FLEET_RATES:
                truth = Truth(speeds=speeds)
                row = stage.row(title, planner(), truth, task, rate=rate)
                rows.append(row)
                single = alone[rate]
                assert isinstance(single, float)
                # two traces of one rate differ by a fraction of a percent in what they offer
                report.goals.append(_floor(f"{title} at {rate:g}/s a device", row, single * 0.995))
            for name in ("edf_feasible", "smallest_feasible"):
                for rate in _FLEET_RATES:
                    truth = Truth(speeds=speeds)
                    label = f"{title}: {name}"
                    rows.append(stage.row(label, BASELINES[name], truth, task, rate=rate))
    report.tables.append(_by_rate("Fleets, per unit of device speed", rows))
    report.extra["fleets"] = rows


def _drift(stage: Stage, report: Report, progress: Progress) -> None:
    """Recovered when a window serves 97 % of what a run that was always this slow serves."""
    lines: list[Row] = []
    with progress.task("drift", total=4) as task:
        for rate in (150.0, 260.0):
            arrivals = stage.arrivals(rate)
            drifting = stage.trial(
                planner(), Truth(drift=_DRIFT, drift_at_ms=_DRIFT_AT_MS), arrivals
            )
            task.advance()
            always = stage.trial(planner(), Truth(drift=_DRIFT, drift_at_ms=0.0), arrivals)
            task.advance()
            recovery_s = _recovery_s(drifting.good_at_ms, always.good_at_ms)
            lines.append({"rate": rate, "recovery_s": recovery_s})
            report.goals.append(
                Goal(
                    name=f"slope x 1.6 mid-run at {rate:g}/s: seconds to recover",
                    measured=recovery_s,
                    at_most=2.0,
                )
            )
    report.tables.append(
        Table(
            title="A device whose marginal cost grows by 60 % at 60 s",
            columns=[
                Column(key="rate", title="rate", form=".0f"),
                Column(key="recovery_s", title="seconds to recover", form=".2f"),
            ],
            rows=lines,
            note="Recovered: from then on a window of 2 s serves at least 97 % of what the same "
            "planner serves on a device that was this slow from the start.",
        )
    )
    report.extra["drift"] = lines


def _recovery_s(drifting: Sequence[float], always: Sequence[float]) -> float | None:
    for step in range(41):
        start_ms = _DRIFT_AT_MS + 250.0 * step
        served = _between(drifting, start_ms)
        if served >= 0.97 * _between(always, start_ms):
            return 0.25 * step
    return None


def _between(times: Sequence[float], start_ms: float) -> int:
    return sum(1 for at_ms in times if start_ms <= at_ms < start_ms + _WINDOW_MS)


def _prices(stage: Stage, report: Report, progress: Progress) -> None:
    """What it costs to serve the large ones: the lottery, and counting tokens."""
    rows: list[Row] = []
    formers = {f"lottery {p:g}": planner(p) for p in (0.0, 0.1, 0.25, 0.5)}
    formers["objective tokens"] = planner(0.0, Objective.TOKENS)
    with progress.task("the price of size", total=len(formers)) as task:
        for title, former in formers.items():
            rows.append(stage.row(title, former, Truth(), task, rate=260.0))
    report.tables.append(
        Table(
            title="What serving large requests costs, at 260 requests/s",
            columns=[
                Column(key="scheduler", title="planner with"),
                Column(key="goodput_per_s", title="good/s", form=".1f"),
                Column(key="urgent", title="urgent", form=".1%"),
                Column(key="relaxed", title="relaxed", form=".1%"),
                Column(key="largest5", title="largest 5 %", form=".1%"),
                Column(key="token_goodput", title="tokens/s", form=",.0f"),
            ],
            rows=rows,
        )
    )
    report.extra["prices"] = rows


def _floor(name: str, row: Row, bound: float) -> Goal:
    measured = row["goodput_per_s"]
    assert isinstance(measured, float)
    return Goal(name=f"goodput, {name}", measured=measured, at_least=round(bound, 1))


def _by_rate(title: str, rows: Sequence[Row]) -> Table:
    rates = list(dict.fromkeys(f"{row['rate']:g}" for row in rows))
    lines = []
    for name in dict.fromkeys(str(row["scheduler"]) for row in rows):
        line: Row = {"name": name}
        for row in rows:
            if row["scheduler"] == name:
                line[f"{row['rate']:g}"] = row["goodput_per_s"]
        lines.append(line)
    columns = [Column(key="name", title="goodput/s at")]
    columns += [Column(key=rate, title=rate, form=".1f") for rate in rates]
    return Table(title=title, columns=columns, rows=lines)
