"""The shape that all charts share: quiet axes, fixed ranges, one hover line, SVG traces.

GL traces are left out on purpose: they need `unsafe-eval`, which the content security policy
denies.
"""

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

import plotly.graph_objects as go
from plotly.basedatatypes import BaseTraceType

GOOD = "var(--good)"
LATE = "var(--late)"
FAILED = "var(--failed)"
REFUSED = "var(--refused)"
BASELINE = "var(--baseline)"
CANARY = "var(--canary)"
NEUTRAL = "var(--line-2)"
TEXT = "var(--text-2)"
GUARD = "var(--guard)"


@dataclass(slots=True, frozen=True, kw_only=True)
class Chart:
    """A chart's fixed part: what it asks, its skeleton, and the units of its table."""

    name: str
    title: str
    unit: str
    figure: str  # JSON
    series: tuple[tuple[str, str], ...]  # (key, label) in table order
    empty: str
    command: str = ""
    height: int = 220


def line(key: str, label: str, color: str, **more: Any) -> go.Scatter:
    """A line of a time chart."""
    style = {"color": color, "width": more.pop("width", 1.6), "dash": more.pop("dash", "solid")}
    return go.Scatter(
        meta=key, name=label, mode="lines", line=style, connectgaps=False, x=[], y=[], **more
    )


def area(key: str, label: str, color: str) -> go.Scatter:
    """A layer of a stacked time chart."""
    return go.Scatter(
        meta=key,
        name=label,
        mode="lines",
        stackgroup="all",
        line={"color": color, "width": 0.5},
        fillcolor=color,
        x=[],
        y=[],
    )


def threshold(key: str, label: str) -> go.Scatter:
    """A line that a judgement compares against: dashed, in the guard colour, always drawn."""
    return line(key, label, GUARD, width=1.2, dash="6px,4px")


def time_chart(
    name: str,
    title: str,
    unit: str,
    traces: list[BaseTraceType],
    *,
    empty: str,
    command: str = "",
    height: int = 220,
    log: bool = False,
    from_zero: bool = True,
    floor: float | None = None,
    levels: tuple[str, ...] = (),
) -> Chart:
    """A chart over time with the house layout. What lies under `floor` leaves the picture;
    `levels` are words for the values 0, 1, 2 and so on."""
    shape = layout(log=log, time=True)
    if levels:
        at = list(range(len(levels)))
        shape["yaxis"] |= {"tickvals": at, "ticktext": levels, "range": [-0.2, at[-1] + 0.2]}
        shape["margin"] = shape["margin"] | {"l": 60}
    if not from_zero or floor is not None:
        shape["yaxis"]["rangemode"] = "normal"
    if floor is not None:
        shape["yaxis"]["autorangeoptions"] = {"clipmin": floor, "include": [floor]}
    figure = go.Figure(data=traces, layout=shape)
    return _chart(name, title, unit, figure, empty, command, height)


def scatter_chart(
    name: str,
    title: str,
    unit: str,
    traces: list[BaseTraceType],
    *,
    x_title: str,
    y_title: str,
    empty: str,
    command: str = "",
    height: int = 240,
) -> Chart:
    """A chart of one quantity against another."""
    shape = layout(log=False, time=False)
    shape["xaxis"]["title"] = {"text": x_title, "font": {"size": 11}, "standoff": 6}
    shape["yaxis"]["title"] = {"text": y_title, "font": {"size": 11}, "standoff": 6}
    shape["margin"] = {"l": 52, "r": 12, "t": 8, "b": 40}
    shape["hovermode"] = "closest"
    return _chart(name, title, unit, go.Figure(traces, shape), empty, command, height)


def layout(*, log: bool, time: bool) -> dict[str, Any]:
    """Axes and margins, the same on every chart."""
    axis = {
        "gridcolor": "var(--grid)",
        "linecolor": "var(--grid)",
        "zeroline": False,
        "tickfont": {"size": 11, "color": TEXT},
        "fixedrange": True,
        "automargin": False,
    }
    y: dict[str, Any] = axis | {"nticks": 5, "rangemode": "tozero"}
    if log:
        y |= {"type": "log", "rangemode": "normal", "dtick": 1}
    return {
        "margin": {"l": 44, "r": 12, "t": 8, "b": 26},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "inherit", "size": 11, "color": TEXT},
        "showlegend": False,
        "hovermode": "x unified",
        "hoverlabel": {
            "bgcolor": "var(--panel)",
            "bordercolor": "var(--edge)",
            "font": {"size": 11, "color": "var(--text)"},
        },
        "xaxis": axis
        | (
            {
                "type": "date",
                "nticks": 6,
                "tickformat": "%H:%M",
                "tickformatstops": [{"dtickrange": [None, 59_999], "value": "%H:%M:%S"}],
                "hoverformat": "%H:%M:%S",
            }
            if time
            else {"nticks": 7}
        ),
        "yaxis": y,
        "template": None,
    }


def _chart(
    name: str, title: str, unit: str, figure: go.Figure, empty: str, command: str, height: int
) -> Chart:
    made = json.loads(figure.to_json())
    made["layout"].pop("template", None)
    series = tuple((trace["meta"], trace["name"]) for trace in made["data"] if "name" in trace)
    return Chart(
        name=name,
        title=title,
        unit=unit,
        figure=json.dumps(made, separators=(",", ":")),
        series=series,
        empty=empty,
        command=command,
        height=height,
    )


@cache
def style_ids() -> tuple[str, ...]:
    """Ids of the style elements that this plotly.js would inject.

    The policy forbids injected styles. Plotly leaves alone what exists already, so pages
    carry empty elements with these ids, and the few rules that matter are in `charts.css`.
    """
    import re
    from pathlib import Path

    import plotly

    source = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
    hashed = re.findall(
        r'getElementById\("([0-9a-f]{64})"\)', source.read_text(encoding="utf-8", errors="replace")
    )
    return ("plotly.js-style-global", *sorted(set(hashed)))
