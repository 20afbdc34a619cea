"""`python -m bench routing`: what routing does when something goes wrong, in virtual time."""

import argparse

import plotly.graph_objects as go

from bench.progress import Progress
from bench.report import Column, Goal, Report, Table
from bench.routing_scenes import SCENES

NAME = "routing"
HELP = "Black holes, stragglers, healing, random errors, newcomers, hedging, Zipf affinity."

_COLUMNS = (
    Column(key="scene", title="scene"),
    Column(key="figure", title="figure"),
    Column(key="value", title="value", form=".4g"),
    Column(key="p95_ms", title="p95 ms", form=".1f"),
    Column(key="errors", title="errors", form="d"),
    Column(key="max_over_avg", title="max/avg in flight", form=".3f"),
    Column(key="peak_over_avg", title="median peak/avg", form=".3f"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--quick", action="store_true", help="leave out the hour of random errors (20 s)"
    )


def run(args: argparse.Namespace, progress: Progress) -> Report:
    scenes = [scene for scene in SCENES if not (args.quick and scene[0] == "random errors")]
    rows: list[dict[str, object]] = []
    goals: list[Goal] = []
    with progress.task("routing", total=len(scenes)) as task:
        for name, scene in scenes:
            task.say(name)
            found, wanted = scene(args.seed)
            rows += found
            goals += wanted
            task.advance()
    return Report(
        name=NAME,
        title="Routing",
        summary=(
            "Replicas of 4 places and 50 ms (10 % log-normal noise) at 60 % load, Poisson "
            "arrivals, the real router, breakers, budget and hedging in virtual time."
        ),
        rows=rows,
        tables=[Table(title="Scenes", columns=_COLUMNS, rows=rows)],
        charts=[_chart(goals)],
        goals=goals,
        notes=[
            "simulated: servers are queues with places, the network costs nothing",
            "a black hole costs 5 faults and about 3 probes in its first 10 s, whatever the rate: "
            "the slower the traffic, the larger that share",
            "a request that faults is tried once more, within the budget of 5 % and its reserve",
        ],
    )


def _chart(goals: list[Goal]) -> go.Figure:
    """Each goal as a share of its bound: below 1 is met where the bound is a maximum."""
    bounded = [goal for goal in goals if goal.at_most and goal.measured is not None]
    figure = go.Figure(
        go.Bar(
            x=[(goal.measured or 0.0) / (goal.at_most or 1.0) for goal in bounded],
            y=[goal.name for goal in bounded],
            orientation="h",
        )
    )
    figure.add_vline(x=1.0, line_dash="dash", annotation_text="the bound")
    figure.update_layout(
        title="Measured, as a share of what is allowed", margin={"l": 320}, height=420
    )
    return figure
