"""The charts of a model: baseline beside canary, and what a batch costs where."""

from functools import cache

import plotly.graph_objects as go

from fleet.dashboard.charts.skeleton import (
    BASELINE,
    CANARY,
    Chart,
    line,
    scatter_chart,
    threshold,
    time_chart,
)
from fleet.dashboard.panels.shell import COMMAND_WITHOUT_TRAFFIC

EMPTY = "Waiting for data: no completed request of this model in this range"


def _arms(name: str, title: str, unit: str, suffix: str, *extra: go.Scatter) -> Chart:
    return time_chart(
        name,
        title,
        unit,
        [
            line(f"baseline.{suffix}", "baseline", BASELINE, width=1.8),
            line(f"canary.{suffix}", "canary", CANARY, width=1.8),
            *extra,
        ],
        empty=EMPTY,
        command=COMMAND_WITHOUT_TRAFFIC,
        height=190,
    )


@cache
def latency() -> Chart:
    return _arms("arm_latency", "p95, end to end", "ms", "p95", threshold("slo", "SLO"))


@cache
def rate() -> Chart:
    return _arms("arm_rate", "Requests", "/s", "rate")


@cache
def errors() -> Chart:
    return _arms("arm_errors", "Errors", "%", "errors")


@cache
def cost() -> Chart:
    """Fitted service time against work: a line each, and its deviation as a band."""
    traces: list[go.Scatter] = []
    for arm, color, soft in (
        ("baseline", BASELINE, "var(--baseline-soft)"),
        ("canary", CANARY, "var(--canary-soft)"),
    ):
        for index, dash in ((1, "solid"), (2, "7px,3px"), (3, "2px,2px")):
            key = f"{arm}.{index}"
            none = {"color": "rgba(0,0,0,0)", "width": 0}
            traces += [
                go.Scatter(meta=f"{key}.low", mode="lines", line=none, hoverinfo="skip"),
                go.Scatter(
                    meta=f"{key}.high",
                    mode="lines",
                    line=none,
                    hoverinfo="skip",
                    fill="tonexty",
                    fillcolor=soft,
                ),
                line(key, f"{arm} {index}", color, dash=dash),
            ]
    return scatter_chart(
        "cost",
        "What a batch costs",
        "ms",
        traces,
        x_title="work in the batch",
        y_title="service time, ms",
        empty="Waiting for data: no batch of this model has ended yet",
        command=COMMAND_WITHOUT_TRAFFIC,
        height=240,
    )
