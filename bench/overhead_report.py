"""The tables and the verdict of `bench overhead`."""

import statistics

import plotly.graph_objects as go

from bench.overhead_rounds import Figures
from bench.report import Column, Goal, Report, Table

GOAL_US, GOAL_RATIO, GOAL_FLAT = 70.0, 2.2, 1.2
GOAL_RELOAD_MS, GOAL_PAUSE_MS = 100.0, 5.0


def make_report(
    name: str,
    measured: dict[int, tuple[Figures, Figures]],
    fleets: dict[str, Figures],
    reloads: list[dict[str, float]],
) -> Report:
    rows: list[dict[str, object]] = []
    goals: list[Goal] = []
    for at, (echo, gateway) in measured.items():
        ratio = gateway.median_us / echo.median_us
        rows.append(
            {
                "connections": at,
                "echo_us": echo.median_us,
                "gateway_us": gateway.median_us,
                "gateway_best_us": gateway.best_us,
                "ratio": ratio,
                "echo_per_s": echo.per_s,
                "gateway_per_s": gateway.per_s,
                "batch": gateway.batch,
                "errors": gateway.errors,
            }
        )
        goals.append(Goal(name=f"us at {at}", measured=gateway.median_us, at_most=GOAL_US))
        goals.append(Goal(name=f"of the echo at {at}", measured=ratio, at_most=GOAL_RATIO))
    three, crowd, _ = fleets.values()
    flat = crowd.best_us / three.best_us
    reload_ms = statistics.median(each["reload_ms"] for each in reloads)
    pause_ms = statistics.median(each["pause_ms"] for each in reloads)
    pause_cpu_ms = statistics.median(each["pause_cpu_ms"] for each in reloads)
    goals += [
        Goal(name="300 registered replicas against 3", measured=flat, at_most=GOAL_FLAT),
        Goal(name="reload of 10,000 tenants, ms", measured=reload_ms, at_most=GOAL_RELOAD_MS),
        Goal(name="longest pause of the loop, ms", measured=pause_ms, at_most=GOAL_PAUSE_MS),
    ]
    fleet_rows: list[dict[str, object]] = [
        {
            "fleet": name,
            "median_us": figures.median_us,
            "best_us": figures.best_us,
            "batch": figures.batch,
        }
        for name, figures in fleets.items()
    ]
    figure = go.Figure(
        [
            go.Bar(
                name="bare echo",
                x=[str(r["connections"]) for r in rows],
                y=[r["echo_us"] for r in rows],
            ),
            go.Bar(
                name="gateway",
                x=[str(r["connections"]) for r in rows],
                y=[r["gateway_us"] for r in rows],
            ),
        ],
        layout={
            "title": "CPU per request",
            "barmode": "group",
            "xaxis": {"title": "connections", "type": "category"},
            "yaxis": {"title": "us"},
        },
    )
    return Report(
        name=name,
        title="The gateway's own CPU per request",
        summary="User and system time of the gateway divided by requests, replicas costing"
        " nothing, beside a bare uvicorn echo of the same JSON in the same run.",
        rows=[*rows, *fleet_rows, *reloads],
        tables=[
            Table(
                title="By connections (medians of the rounds)",
                columns=(
                    Column(key="connections", title="connections"),
                    Column(key="echo_us", title="echo, us", form=".1f"),
                    Column(key="gateway_us", title="gateway, us", form=".1f"),
                    Column(key="gateway_best_us", title="best round, us", form=".1f"),
                    Column(key="ratio", title="of the echo", form=".2f"),
                    Column(key="echo_per_s", title="echo, req/s", form=",.0f"),
                    Column(key="gateway_per_s", title="gateway, req/s", form=",.0f"),
                    Column(key="batch", title="batch", form=".1f"),
                    Column(key="errors", title="errors", form="d"),
                ),
                rows=rows,
            ),
            Table(
                title="By size of the fleet (64 connections)",
                columns=(
                    Column(key="fleet", title="replicas"),
                    Column(key="median_us", title="median, us", form=".1f"),
                    Column(key="best_us", title="best, us", form=".1f"),
                    Column(key="batch", title="requests a batch", form=".1f"),
                ),
                rows=fleet_rows,
                note="with 300 idle replicas for 64 clients batches are small: more upstream"
                " calls a request, which is what the last row shows",
            ),
            Table(
                title="Reload of 10,000 tenants",
                columns=(
                    Column(key="reload_ms", title="reload, ms", form=".1f"),
                    Column(key="pause_ms", title="longest pause, ms", form=".2f"),
                    Column(key="pause_cpu_ms", title="of it CPU, ms", form=".2f"),
                ),
                rows=reloads,
                note=f"median pause {pause_ms:.2f} ms, {pause_cpu_ms:.2f} ms of it CPU",
            ),
        ],
        charts=[figure],
        goals=goals,
        notes=[
            "wrk, the replicas, PostgreSQL and Valkey run on the same machine: requests per second"
            " say how busy it was, CPU per request is the gateway's alone.",
        ],
    )
