"""The result as a table, a CSV of all requests, and a page that opens without a network."""

import csv
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots
from rich import box
from rich.table import Table

from fleet.loadtest.sender import Ending
from fleet.loadtest.tally import Tally

CSV_COLUMNS = (
    "started_s",
    "latency_ms",
    "tokens",
    "deadline_ms",
    "status",
    "code",
    "version",
    "replica",
    "batch",
)

LABELS = (
    ("offered", "offered", ""),
    ("succeeded", "succeeded", ""),
    ("inTime", "within the deadline", ""),
    ("offeredPerS", "offered", "/s"),
    ("throughputPerS", "succeeded", "/s"),
    ("goodputPerS", "within the deadline", "/s"),
    ("p50Ms", "p50", "ms"),
    ("p95Ms", "p95", "ms"),
    ("p99Ms", "p99", "ms"),
    ("meanBatch", "mean batch", ""),
)


def table(summary: dict[str, Any]) -> Table:
    shown = Table(box=box.SIMPLE_HEAD, show_header=False)
    shown.add_column()
    shown.add_column(justify="right")
    shown.add_column()
    for name, label, unit in LABELS:
        value = summary[name]
        shown.add_row(label, "–" if value is None else f"{value:,}", unit)
    for kind, label in (("codes", "code"), ("versions", "version"), ("replicas", "replica")):
        for name, count in summary[kind].items():
            share = count / summary["offered"]
            shown.add_row(f"{label} {name}", f"{count:,}", f"{share:.1%}")
    for deadline_ms, ratio in summary["attainment"].items():
        shown.add_row(f"in time of {deadline_ms} ms", f"{ratio:.2%}", "")
    return shown


def write_csv(path: Path, endings: list[Ending]) -> None:
    with path.open("w", newline="", encoding="utf-8") as target:
        writer = csv.writer(target)
        writer.writerow(CSV_COLUMNS)
        for ending in sorted(endings, key=lambda ending: ending.started_s):
            row = [getattr(ending, name) for name in CSV_COLUMNS]
            writer.writerow([round(x, 4) if isinstance(x, float) else x for x in row])


def write_page(path: Path, tally: Tally, title: str) -> None:
    """A self-contained page: offered and good requests by second, and their latency."""
    last = max(tally.seconds, default=0)
    at = list(range(last + 1))
    seconds = [tally.seconds[n] for n in at]
    figure = make_subplots(
        rows=2, cols=1, shared_xaxes=True, subplot_titles=("requests per second", "latency, ms")
    )
    for name, values, colour in (
        ("offered", [s.offered for s in seconds], "#888"),
        ("within the deadline", [s.in_time for s in seconds], "#0072b2"),
    ):
        figure.add_trace(go.Scatter(x=at, y=values, name=name, line={"color": colour}), 1, 1)
    for q, colour in ((0.5, "#009e73"), (0.95, "#e69f00"), (0.99, "#d55e00")):
        quantiles = [s.latency.quantile(q) for s in seconds]
        figure.add_trace(
            go.Scatter(x=at, y=quantiles, name=f"p{q:.0%}"[:-1], line={"color": colour}), 2, 1
        )
    figure.update_xaxes(title_text="seconds", row=2, col=1)
    figure.update_layout(title=title, template="plotly_white", height=720)
    figure.write_html(path, include_plotlyjs=True, full_html=True)
