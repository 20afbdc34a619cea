"""The charts of a replica: what its batches took beside what was predicted, its breaker."""

from functools import cache

import plotly.graph_objects as go

from fleet.dashboard.charts.skeleton import (
    BASELINE,
    FAILED,
    Chart,
    line,
    scatter_chart,
    threshold,
    time_chart,
)
from fleet.dashboard.panels.shell import COMMAND_WITHOUT_TRAFFIC

BREAKER_LEVELS = ("closed", "half open", "open")  # as `BreakerView.state`, in this order


@cache
def batches() -> Chart:
    """Service time against work, a point a batch, and the line that was fitted to them."""
    points = go.Scatter(
        meta="took",
        name="took",
        mode="markers",
        marker={"color": BASELINE, "size": 5, "opacity": 0.6},
        x=[],
        y=[],
    )
    return scatter_chart(
        "batches",
        "Its batches",
        "ms, one a second at most",
        [points, threshold("predicted", "predicted")],
        x_title="work in the batch",
        y_title="service time, ms",
        empty="Waiting for data: it has ended no batch since this page's server listens",
        command=COMMAND_WITHOUT_TRAFFIC,
        height=210,
    )


@cache
def breaker() -> Chart:
    """The states of its breaker over the last minutes."""
    states = line("state", "breaker", FAILED, width=2)
    states.line.shape = "hv"
    return time_chart(
        "breaker",
        "Breaker",
        "0 closed, 1 half open, 2 open",
        [states],
        empty="Waiting for a gateway to speak of it",
        height=130,
        levels=BREAKER_LEVELS,
    )
