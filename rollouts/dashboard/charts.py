"""The flagship's figures: weight, both arms' tails and errors, evidence, capacity.

Each draws the line that the judge compares against. A point is one judged window.
"""

from functools import cache
from typing import Any

import plotly.graph_objects as go

from engine.rollout.verdict import Act
from fleet.dashboard.charts.skeleton import (
    BASELINE,
    CANARY,
    FAILED,
    LATE,
    Chart,
    line,
    threshold,
    time_chart,
)
from fleet.dashboard.history import milliseconds
from rollouts.dashboard.reading import Dossier

EMPTY = "Waiting for the first judged window"


def _steps(key: str, label: str, color: str, **more: Any) -> go.Scatter:
    """A line that holds its value until it changes: weights do not drift."""
    trace = line(key, label, color, **more)
    trace.line.shape = "hv"
    return trace


@cache
def weight() -> Chart:
    return time_chart(
        "weight",
        "Share of the canary",
        "%",
        [
            _steps(
                "weight", "has", CANARY, width=2, fill="tozeroy", fillcolor="var(--canary-soft)"
            ),
            _steps("carried", "its replicas can carry", "var(--guard)", dash="6px,4px", width=1.2),
        ],
        empty=EMPTY,
        height=244,
    )


@cache
def evidence() -> Chart:
    return time_chart(
        "evidence",
        "Evidence against it",
        "log E",
        [
            line("latency", "latency", CANARY, width=2),
            line("failures", "failures", FAILED),
            line("misses", "missed deadlines", LATE),
            threshold("latency_limit", "rollback at (latency)"),
            line("failures_limit", "rollback at (failures)", FAILED, dash="6px,4px", width=1),
            line("misses_limit", "rollback at (misses)", LATE, dash="6px,4px", width=1),
        ],
        empty=EMPTY,
        height=220,
        floor=-3.0,
    )


@cache
def promotion() -> Chart:
    return time_chart(
        "promotion",
        "Evidence for promotion",
        "log E′",
        [
            line("promotion", "not slower by the margin", BASELINE, width=2),
            threshold("promotion_limit", "promotion at"),
        ],
        empty="Promotion is asked at the last step that leaves the baseline traffic",
        height=292,
        floor=-3.0,
    )


@cache
def tails() -> Chart:
    return time_chart(
        "tails",
        "Slow executions",
        "% of timed",
        [
            line("slow_baseline", "baseline over its 95th percentile", BASELINE),
            line("slow_canary", "canary over it plus the tolerance", CANARY, width=2),
            threshold("tail", "5 %: the baseline's own tail"),
        ],
        empty=EMPTY,
        height=200,
    )


@cache
def errors() -> Chart:
    return time_chart(
        "errors",
        "Failures",
        "%",
        [
            line("error_baseline", "baseline", BASELINE),
            line("error_canary", "canary", CANARY, width=2),
        ],
        empty=EMPTY,
        height=218,
    )


@cache
def deadlines() -> Chart:
    return time_chart(
        "deadlines",
        "Deadlines met",
        "%",
        [
            line("met_baseline", "baseline", BASELINE),
            line("met_canary", "canary", CANARY, width=2),
        ],
        empty=EMPTY,
        height=218,
        from_zero=False,
    )


def figures() -> list[Chart]:
    return [weight(), evidence(), promotion(), tails(), errors(), deadlines()]


def series(dossier: Dossier) -> dict[str, Any]:
    """The arrays of every chart, one point a judged window, with markers where it moved."""
    decisions = dossier.decisions
    made: dict[str, Any] = {"t": [milliseconds(d.window_end) for d in decisions]}

    def put(key: str, values: list[float | None]) -> None:
        made[key] = [None if value is None else round(value, 4) for value in values]

    put("weight", [d.percent for d in decisions])
    numbers = [d.verdict.get("numbers") or {} for d in decisions]
    put("carried", [_times(n.get("largestRatio"), 100.0) for n in numbers])
    for key in ("latency", "failures", "misses", "promotion"):
        put(key, [n.get(f"{key}LogE") for n in numbers])
        put(f"{key}_limit", [n.get(f"{key}Limit") for n in numbers])
    counts = [d.counts for d in decisions]
    put("slow_canary", [_share(c, "slow_canary", "canary_timed") for c in counts])
    put("slow_baseline", [_share(c, "slow_baseline", "baseline_timed") for c in counts])
    put("tail", [5.0 for _ in counts])
    for arm in ("canary", "baseline"):
        put(f"error_{arm}", [_share(c, f"{arm}_faults", f"{arm}_ended") for c in counts])
        missed = [_share(c, f"{arm}_misses", f"{arm}_ended") for c in counts]
        put(f"met_{arm}", [None if m is None else 100.0 - m for m in missed])
    made["markers"] = [
        {"t": milliseconds(d.window_end), "text": _marker(d)}
        for d in decisions
        if d.act != Act.HOLD
    ]
    return {chart.name: made for chart in figures()}


def _marker(decision: Any) -> str:
    return f"{decision.percent:g} %" if decision.act == Act.ADVANCE else str(decision.act)


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else min(value * factor, 100.0)


def _share(counts: dict[str, Any], part: str, whole: str) -> float | None:
    total = counts.get(whole)
    return None if not total or counts.get(part) is None else 100.0 * counts[part] / total
