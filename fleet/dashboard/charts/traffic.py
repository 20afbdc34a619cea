"""The charts of the overview: goodput against what was offered, latency, admission."""

from functools import cache

import plotly.graph_objects as go

from engine.errors import RefusalCode
from fleet.dashboard.charts.skeleton import (
    BASELINE,
    FAILED,
    GOOD,
    LATE,
    Chart,
    area,
    line,
    threshold,
    time_chart,
)
from fleet.dashboard.format import words
from fleet.dashboard.panels.shell import COMMAND_WITHOUT_TRAFFIC

EMPTY = "Waiting for data: no request in this range"

# Shades of the one colour that means refused, from the quota to the capacity.
REFUSED_SHADES = {
    RefusalCode.QUOTA_EXCEEDED: "var(--refused-1)",
    RefusalCode.OVERLOADED: "var(--refused-2)",
    RefusalCode.QUEUE_FULL: "var(--refused-3)",
    RefusalCode.DEADLINE_UNREACHABLE: "var(--refused-4)",
    RefusalCode.DEADLINE_EXCEEDED: "var(--refused-5)",
    RefusalCode.NO_CAPACITY: "var(--refused-6)",
}


@cache
def goodput() -> Chart:
    """Where every offered request went, stacked; the offered rate as a line above."""
    layers = [
        area("goodput", "in time", GOOD),
        area("late", "late", LATE),
        *(
            area(f"refused.{code}", f"refused: {words(code)}", shade)
            for code, shade in REFUSED_SHADES.items()
        ),
        area("failed", "failed", FAILED),
        line("offered", "offered", "var(--text-2)", width=1.2, dash="dot"),
    ]
    return time_chart(
        "goodput",
        "Goodput against offered",
        "/s",
        layers,
        empty=EMPTY,
        command=COMMAND_WITHOUT_TRAFFIC,
        height=236,
    )


@cache
def latency() -> Chart:
    """End-to-end latency quantiles and the objective they are held to."""
    quantiles: list[go.Scatter] = [
        line("p50", "p50", "var(--q50)"),
        line("p95", "p95", BASELINE, width=2),
        line("p99", "p99", "var(--q99)"),
        threshold("slo", "SLO of the busiest model"),
    ]
    return time_chart(
        "latency",
        "Latency, end to end",
        "ms",
        quantiles,
        empty="Waiting for data: no completed request in this range",
        command=COMMAND_WITHOUT_TRAFFIC,
        height=236,
    )


@cache
def admission(*, live: bool = True) -> Chart:
    """What is in flight beneath the adaptive limit. Windows do not record it."""
    return time_chart(
        "admission",
        "In flight, under the limit",
        "requests",
        [
            line(
                "in_flight",
                "in flight",
                BASELINE,
                width=1.6,
                fill="tozeroy",
                fillcolor="var(--baseline-soft)",
            ),
            line("queued", "queued", "var(--q99)"),
            threshold("limit", "limit"),
        ],
        empty=EMPTY if live else "What is in flight is not recorded: choose the live range",
        command=COMMAND_WITHOUT_TRAFFIC if live else "",
        height=236,
    )
