"""The headline benchmark: who serves the most requests within their deadline?

One accelerator, Poisson arrivals of log-normal sizes, 30 % urgent (120 ms) and 70 % relaxed
(900 ms), 120 s of virtual time, every scheduler inside the same `Scheduler`. Without options
it also runs what a scheduler tuned to one trace would fail: unseen seeds, service noise,
wrong size predictions, a device that slows down mid-run, fleets, other objectives.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import plotly.graph_objects as go

from bench.anchors import MUST, PUBLISHED, RATES, UPPER_BOUND
from bench.baselines import BASELINES
from bench.batching_more import robustness
from bench.progress import Progress
from bench.report import Column, Goal, Report, Table
from bench.stage import Former, Row, Stage, planner
from bench.trace import Arrival, read_trace
from bench.trial import Truth
from engine.batching.worth import Objective
from engine.errors import InvalidInput, require_positive

NAME = "batching"
HELP = "goodput of the planner and six baselines over load, with noise, drift and fleets"

_ROUNDS = 3  # of timing; the best counts
_TITLES = {
    "none": "no batching",
    "fixed": "fixed 32 / 25 ms, queue 512",
    "fixed_tuned": "fixed, tuned queue of 100",
    "original": "the original's rule",
    "edf_feasible": "EDF + feasibility",
    "smallest_feasible": "smallest first, feasible",
    "goodput": "goodput planner",
    "goodput_lottery": "goodput planner, size lottery 0.1",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rates",
        type=_numbers,
        help="offered requests/s per unit of device speed, comma-separated "
        f"(default {','.join(map(str, RATES))}, and then the robustness tables too)",
    )
    parser.add_argument(
        "--devices", type=_numbers, default=(1.0,), help="speeds of the devices, such as 1,1,0.6"
    )
    parser.add_argument(
        "--noise", type=float, default=0.0, help="sigma of log-normal service noise"
    )
    parser.add_argument(
        "--size-noise", type=float, default=0.0, help="sigma of the error of the predicted size"
    )
    parser.add_argument(
        "--drift", type=float, default=1.0, help="factor on the cost of a token from 60 s on"
    )
    parser.add_argument(
        "--objective",
        type=Objective,
        choices=list(Objective),
        default=Objective.REQUESTS,
        help="what the planner counts (default requests)",
    )
    parser.add_argument(
        "--size-lottery",
        type=float,
        help="probability that a request is weighed as if it were small "
        "(default: 0 and 0.1, side by side)",
    )
    parser.add_argument(
        "--trace", type=Path, help='JSON lines {"arrivalMs", "tokens", "deadlineMs"} to run instead'
    )
    parser.add_argument(
        "--schedulers",
        type=lambda text: text.split(","),
        help=f"only these, comma-separated: {', '.join(_TITLES)}",
    )


def run(args: argparse.Namespace, progress: Progress) -> Report:
    """The headline table, and unless the options ask for one scenario, the others."""
    truth = Truth(
        speeds=tuple(args.devices),
        noise=args.noise,
        size_noise=args.size_noise,
        drift=args.drift,
    )
    for speed in truth.speeds:
        require_positive("devices", speed)
    schedulers = _schedulers(args)
    plain = (
        truth == Truth()
        and args.rates is None
        and args.trace is None
        and args.schedulers is None
        and args.objective is Objective.REQUESTS
        and args.size_lottery is None
    )
    stage = Stage(args.seed)
    rates = [float(rate) for rate in (args.rates or RATES)]
    trace = None if args.trace is None else _read(args.trace)
    count = (1 if trace else len(rates)) * len(schedulers)
    with progress.task("the headline table", total=count) as task:
        if trace is not None:
            rows = [
                stage.row(name, former, truth, task, trace=trace, timing_rounds=_ROUNDS)
                for name, former in schedulers.items()
            ]
        else:
            rows = [
                stage.row(name, former, truth, task, rate=rate, timing_rounds=_ROUNDS)
                for name, former in schedulers.items()
                for rate in rates
            ]
    report = Report(
        name=NAME,
        title="Batching: requests served within their deadline",
        summary="Goodput per second and unit of device speed, by offered load. The cost model "
        "is learned online, from a prior of 8 ms + 0.05 ms a token; the truth is 18 ms + 0.022.",
        rows=rows,
    )
    report.tables += [_goodput_table(rows), *_detail_tables(rows)]
    if trace is None:
        report.charts += [_goodput_chart(rows), _share_chart(rows)]
    if truth == Truth() and trace is None and args.objective is Objective.REQUESTS:
        report.goals += _headline_goals(rows)
    if plain:
        robustness(stage, report, progress)
    report.notes += _ties(rows)
    report.notes.append(
        "Simulated: the device and its noise. Real: the scheduler, its cost models, every decision."
    )
    return report


def _schedulers(args: argparse.Namespace) -> dict[str, Former]:
    chosen: dict[str, Former] = dict(BASELINES)
    if args.size_lottery is None:
        chosen["goodput"] = planner(0.0, args.objective)
        chosen["goodput_lottery"] = planner(0.1, args.objective)
    else:
        chosen["goodput"] = planner(args.size_lottery, args.objective)
    if args.schedulers is None:
        return chosen
    for name in args.schedulers:
        if name not in chosen:
            raise InvalidInput("schedulers", name, f"must be of {', '.join(chosen)}")
    return {name: chosen[name] for name in args.schedulers}


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(word) for word in text.split(","))


def _read(path: Path) -> list[Arrival]:
    if not path.is_file():
        raise InvalidInput("trace", str(path), "no such file")
    return read_trace(path)


def _goodput_table(rows: Sequence[Row]) -> Table:
    """Schedulers by rate, each with the published figure beside it where there is one."""
    rates = sorted({float(str(row["rate"])) for row in rows})
    lines: list[Row] = []
    for name in dict.fromkeys(str(row["scheduler"]) for row in rows):
        line: Row = {"scheduler": _TITLES.get(name, name)}
        line |= {
            _rate(row["rate"]): row["goodput_per_s"] for row in rows if row["scheduler"] == name
        }
        lines.append(line)
        published = PUBLISHED.get(name)
        if published and any(rate in published for rate in rates):
            lines.append(
                {"scheduler": "  published"}
                | {_rate(rate): published.get(int(rate)) for rate in rates}
            )
    if any(rate in UPPER_BOUND for rate in rates):
        bound = {_rate(rate): UPPER_BOUND.get(int(rate)) for rate in rates}
        lines.append({"scheduler": "upper bound (clairvoyant, no jitter)"} | bound)
    columns = [Column(key="scheduler", title="goodput/s at")]
    columns += [Column(key=_rate(rate), title=_rate(rate), form=".1f") for rate in rates]
    return Table(
        title="Goodput per second, by offered requests per second", columns=columns, rows=lines
    )


_WHO = (
    Column(key="scheduler", title="scheduler"),
    Column(key="rate", title="rate", form=".0f"),
    Column(key="attainment", title="all", form=".1%"),
    Column(key="urgent", title="urgent", form=".1%"),
    Column(key="relaxed", title="relaxed", form=".1%"),
    Column(key="q1", title="smallest 25 %", form=".1%"),
    Column(key="q2", title="25-50", form=".1%"),
    Column(key="q3", title="50-75", form=".1%"),
    Column(key="q4", title="largest 25 %", form=".1%"),
    Column(key="largest5", title="largest 5 %", form=".1%"),
)
_HOW = (
    Column(key="scheduler", title="scheduler"),
    Column(key="rate", title="rate", form=".0f"),
    Column(key="goodput_per_s", title="good/s", form=".1f"),
    Column(key="token_goodput", title="tokens/s", form=",.0f"),
    Column(key="p50", title="p50 ms", form=".0f"),
    Column(key="p95", title="p95 ms", form=".0f"),
    Column(key="p99", title="p99 ms", form=".0f"),
    Column(key="utilisation", title="busy", form=".0%"),
    Column(key="batch", title="batch", form=".1f"),
    Column(key="cpu_us_per_request", title="cpu us", form=".1f"),
)


def _detail_tables(rows: Sequence[Row]) -> list[Table]:
    lines = []
    for row in rows:
        quartiles = row["by_quartile"]
        assert isinstance(quartiles, list)
        lines.append(row | {f"q{i + 1}": share for i, share in enumerate(quartiles)})
    return [
        Table(title="Who is served in time", columns=_WHO, rows=lines),
        Table(
            title="How fast, and at what cost",
            columns=_HOW,
            rows=lines,
            note="Latencies are of requests served in time. cpu us is the scheduler's own CPU time "
            "a request, on the machine of this run.",
        ),
    ]


def _headline_goals(rows: Sequence[Row]) -> list[Goal]:
    goals = []
    for row in rows:
        rate = row["rate"]
        at = f"at {_rate(rate)}/s"
        if row["scheduler"] == "goodput" and rate in MUST:
            goals.append(
                _at_least(f"goodput {at}", row["goodput_per_s"], MUST[int(str(_rate(rate)))])
            )
            if rate == 260.0:
                cpu = row["cpu_us_per_request"]
                goals.append(Goal(name=f"planner CPU us/request {at}", measured=cpu, at_most=15.0))  # type: ignore[arg-type]
        if row["scheduler"] == "goodput_lottery" and rate == 200.0:
            goals.append(_at_least(f"lottery 0.1: urgent {at}", row["urgent"], 0.95))
        if row["scheduler"] == "goodput_lottery" and rate == 260.0:
            goals.append(_at_least(f"lottery 0.1: goodput {at}", row["goodput_per_s"], 228.0))
            goals.append(_at_least(f"lottery 0.1: largest 5 % {at}", row["largest5"], 0.09))
            goals.append(_at_least(f"lottery 0.1: urgent {at}", row["urgent"], 0.88))
    return goals


def _at_least(name: str, measured: object, bound: float) -> Goal:
    assert measured is None or isinstance(measured, float)
    return Goal(name=name, measured=measured, at_least=bound)


def _ties(rows: Sequence[Row]) -> list[str]:
    """Where a baseline comes within half a percent of the planner."""
    best = {row["rate"]: row["goodput_per_s"] for row in rows if row["scheduler"] == "goodput"}
    notes = []
    for name in BASELINES:
        tied = [
            _rate(row["rate"])
            for row in rows
            if row["scheduler"] == name
            and isinstance(mine := best.get(row["rate"]), float)
            and isinstance(theirs := row["goodput_per_s"], float)
            and abs(theirs - mine) <= 0.005 * mine
        ]
        if tied:
            notes.append(f"A tie (within 0.5 %): {_TITLES[name]} at {', '.join(tied)} requests/s.")
    return notes


def _rate(rate: object) -> str:
    return f"{float(str(rate)):g}"


def _goodput_chart(rows: Sequence[Row]) -> go.Figure:
    figure = go.Figure()
    for name in dict.fromkeys(str(row["scheduler"]) for row in rows):
        mine = [row for row in rows if row["scheduler"] == name]
        figure.add_scatter(
            x=[row["rate"] for row in mine],
            y=[row["goodput_per_s"] for row in mine],
            name=_TITLES.get(name, name),
            mode="lines+markers",
            line={"width": 3 if name == "goodput" else 1.5},
        )
    figure.add_scatter(
        x=list(UPPER_BOUND),
        y=list(UPPER_BOUND.values()),
        name="upper bound",
        mode="lines",
        line={"dash": "dot", "color": "gray"},
    )
    figure.update_layout(
        title="Goodput by offered load", xaxis_title="offered requests/s", yaxis_title="goodput/s"
    )
    return figure


def _share_chart(rows: Sequence[Row]) -> go.Figure:
    figure = go.Figure()
    for key, title in (
        ("urgent", "urgent"),
        ("relaxed", "relaxed"),
        ("largest5", "largest 5 %"),
    ):
        for name in ("goodput", "goodput_lottery"):
            mine = [row for row in rows if row["scheduler"] == name]
            figure.add_scatter(
                x=[row["rate"] for row in mine],
                y=[row[key] for row in mine],
                name=f"{title}, {_TITLES[name]}",
                mode="lines+markers",
                line={"dash": "solid" if name == "goodput" else "dash"},
            )
    figure.update_layout(
        title="Who is served by the planner",
        xaxis_title="offered requests/s",
        yaxis_title="share served in time",
        yaxis_tickformat=".0%",
    )
    return figure
