"""The few drawing tools of the pages: status words, sparklines, tables, charts, commands.

Rows are drawn here and not in templates, because a table of fifty replicas has seven hundred
cells, and because the same function draws the `<template>` row that the browser copies.
"""

import json
import re
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from django import template
from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from fleet.dashboard.charts.skeleton import Chart, style_ids
from fleet.dashboard.format import THIN, words
from fleet.dashboard.tables import Column, Row, Table

register = template.Library()

SPARK_WIDTH, SPARK_HEIGHT = 100.0, 24.0


@register.simple_tag
def status(word: str, live: str = "") -> SafeString:
    """A word of the status vocabulary: shape, word and colour."""
    return format_html(
        '<span class="status" data-word="{}"{}>{}</span>',
        word,
        format_html(' data-live="{}" data-as="status"', live) if live else "",
        word,
    )


@register.simple_tag
def sparkline(values: list[float | None] | None, key: str = "") -> SafeString:
    """A small line without axes; `key` lets the browser continue it."""
    return format_html(
        '<svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" aria-hidden="true"'
        ' focusable="false" data-spark="{}"><path d="{}"/></svg>',
        key,
        spark_path(values or []),
    )


def spark_path(values: list[float | None]) -> str:
    """The path of a sparkline, scaled from zero to its maximum. The browser has the same."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return ""
    top = max(max(known), 1e-9)
    low = min(min(known), 0.0)
    step = SPARK_WIDTH / (len(values) - 1)
    path, pen_down = [], False
    for index, value in enumerate(values):
        if value is None:
            pen_down = False
            continue
        y = SPARK_HEIGHT - 1 - (value - low) / (top - low) * (SPARK_HEIGHT - 2)
        path.append(f"{'L' if pen_down else 'M'}{index * step:.1f} {y:.1f}")
        pen_down = True
    return "".join(path)


@register.inclusion_tag("dashboard/parts/table.html", takes_context=True)
def live_table(context: template.Context, table: Table) -> dict[str, Any]:
    """A table with its first rows, its empty state and its row template."""
    data = (context["doc"].get("tables") or {}).get(table.name) or {"order": [], "rows": {}}
    sparks = (context.get("once") or {}).get("sparks") or {}
    rows = [(row_id, data["rows"][row_id]) for row_id in data["order"]]
    return {
        "table": table,
        "data": data,
        "sort_links": context.get("sort_links") or {},
        "rows": mark_safe("".join(draw_row(table, row, row_id, sparks) for row_id, row in rows)),
        "blank": draw_row(table, {}, "", {}),
    }


def draw_row(table: Table, row: Row, row_id: str, sparks: dict[str, Any]) -> SafeString:
    """One `<tr>`, cells escaped."""
    cells = [
        _draw_cell(column, row, row_id, sparks.get(f"{table.name}/{row_id}"), table.name)
        for column in table.columns
    ]
    return format_html(
        '<tr data-row="{}">{}</tr>',
        row_id,
        mark_safe("".join(cells)),
    )


def _draw_cell(
    column: Column, row: Row, row_id: str, spark: list[float | None] | None, table: str
) -> str:
    value = row.get(column.key)
    text = conditional_escape("" if value is None else value)
    key = column.key
    wide = " wide" if column.wide_only else ""
    if column.kind == "spark":
        inner = sparkline(spark, f"{table}/{row_id}")
        return f'<td class="spark-cell{wide}" data-cell="{key}" data-as="spark">{inner}</td>'
    if column.kind == "status":
        return (
            f'<td class="{wide.strip()}"><span class="status" data-cell="{key}" data-as="status" '
            f'data-word="{text}">{text}</span></td>'
        )
    if column.kind == "badge":
        return (
            f'<td class="{wide.strip()}"><span class="badge" data-cell="{key}" data-as="badge" '
            f'data-value="{text}">{text}</span></td>'
        )
    if column.kind == "bar":
        share = float(value or 0.0)
        shown = f"{share * 100:.0f}{'' if column.unit else ' %'}" if value is not None else ""
        return (
            f'<td class="bar-cell{wide}"><span class="bar" data-cell="{key}" data-as="bar" '
            f'style="--share:{share:.3f}">{shown}</span></td>'
        )
    if column.kind == "time":
        return (
            f'<td class="num{wide}"><time data-cell="{key}" data-as="time" '
            f'data-at="{text}"></time></td>'
        )
    if column.href:
        href = conditional_escape(fill(column.href, row, row_id))
        pattern = conditional_escape(column.href)
        return (
            f'<td class="{wide.strip()}"><a data-cell="{key}" data-href="{pattern}" '
            f'href="{href}"{"" if text else " hidden"}>{text}</a></td>'
        )
    if column.below:
        small = conditional_escape(row.get(column.below, ""))
        return (
            f'<td class="two{wide}"><span data-cell="{key}">{text}</span>'
            f'<small data-cell="{column.below}">{small}</small></td>'
        )
    name = {"number": "num", "code": "mono"}.get(column.kind, "")
    return f'<td class="{name}{wide}" data-cell="{key}">{text}</td>'


def fill(pattern: str, row: Row, row_id: str) -> str:
    """`/models/{model}/` with the row's own values, each quoted."""

    def value(match: re.Match[str]) -> str:
        key = match.group(1)
        return quote(str(row_id if key == "id" else row.get(key, "")), safe="")

    return re.sub(r"\{(\w+)\}", value, pattern)


@register.inclusion_tag("dashboard/parts/chart.html", takes_context=True)
def chart(context: template.Context, chart: Chart) -> dict[str, Any]:
    """A figure with its summary, its skeleton for the browser and its numbers as a table."""
    once = context.get("once") or {}
    series = (once.get("charts") or {}).get(chart.name) or once.get("series") or {}
    figure = json.loads(chart.figure)
    legend = [
        {
            "key": trace.get("meta", ""),
            "label": trace.get("name", ""),
            "color": trace.get("fillcolor") or _color_of(trace),
            "dash": (trace.get("line") or {}).get("dash", "solid") != "solid",
        }
        for trace in figure["data"]
        if trace.get("name")
    ]
    present = [
        entry for entry in legend if any(v is not None for v in series.get(entry["key"]) or ())
    ]
    return {
        "chart": chart,
        "figure": figure,
        "legend": present or legend[:4],
        "has_data": bool(present),
        "summary": summary(chart, series),
        "sample": _sample(chart, series),
    }


def _color_of(trace: dict[str, Any]) -> str:
    for part in ("line", "marker"):
        color = (trace.get(part) or {}).get("color")
        if isinstance(color, str):
            return color
    return "var(--text-2)"


def summary(chart: Chart, series: dict[str, Any]) -> str:
    """The chart in a sentence: the last value of each series and its greatest."""
    from fleet.dashboard.format import number

    parts = []
    for key, label in chart.series:
        known = [value for value in series.get(key) or () if value is not None]
        if known:
            parts.append(f"{label} {number(known[-1])} (at most {number(max(known))})")
    if not parts:
        return chart.empty
    return f"{chart.title}, {chart.unit}: " + "; ".join(parts) + "."


def _sample(chart: Chart, series: dict[str, Any], rows: int = 12) -> dict[str, Any]:
    """The series as a table of at most `rows` lines, evenly taken, the newest last."""
    from fleet.dashboard.format import number

    times = series.get("t") or series.get("x") or []
    labels = [(key, label) for key, label in chart.series if series.get(key)]
    step = max(len(times) // rows, 1)
    picked = list(range(len(times) - 1, -1, -step))[:rows][::-1] if times else []
    lines = [
        {
            "at": times[index],
            "cells": [
                number(series[key][index]) if index < len(series[key]) else "" for key, _ in labels
            ],
        }
        for index in picked
    ]
    return {"labels": [label for _, label in labels], "lines": lines, "timed": "t" in series}


@register.simple_tag
def plotly_placeholders() -> SafeString:
    """Empty elements that keep plotly.js from injecting style elements."""
    return format_html_join(
        "", '<template id="{}" class="no-inline-styles"></template>', ((i,) for i in style_ids())
    )


@register.filter
def dig(document: dict[str, Any] | None, path: str) -> Any:
    """`doc|dig:"tiles.goodput.value"`: a member, or nothing."""
    value: Any = document
    for key in path.split("."):
        if not isinstance(value, dict):
            return ""
        value = value.get(key, "")
    return value


@register.filter
def member(document: dict[str, Any] | None, key: str) -> Any:
    """One member by a name that may hold dots or slashes."""
    return (document or {}).get(key)


@register.filter
def milliseconds(moment: Any) -> str:
    """A datetime as Unix milliseconds, which `<time data-at>` carries."""
    return str(round(moment.timestamp() * 1000)) if moment else ""


register.filter("words", words)


@register.filter
def tone(verb: str) -> str:
    """The look of an action's button: what takes traffic away looks grave."""
    return "grave" if verb in ("abort", "drain") else "primary"


@register.filter
def words_of(text: str) -> list[str]:
    """A short fixed list, written where it is used."""
    return text.split()


@register.filter
def clock(at_ms: int | None) -> str:
    """Unix milliseconds as a time in UTC: what stands there until the browser localises it."""
    if at_ms in (None, ""):
        return ""
    return f"{datetime.fromtimestamp(at_ms / 1000, tz=UTC):%H:%M:%S}"


@register.simple_tag(takes_context=True)
def with_query(context: template.Context, **changes: Any) -> str:
    """The present query string with some parameters changed; an empty value removes one."""
    query = context["request"].GET.copy()
    for key, value in changes.items():
        query.pop(key, None)
        if value not in ("", None):
            query[key] = str(value)
    return f"?{query.urlencode()}" if query else "?"


@register.filter
def with_commands(text: str) -> SafeString:
    """Prose in which what stands between backticks is a command to copy."""
    return format_html_join(
        "",
        "{}",
        (
            (format_html("<code data-copy>{}</code>", part) if index % 2 else part,)
            for index, part in enumerate(text.split("`"))
        ),
    )


@register.filter
def thousands(value: int) -> str:
    """A whole number in full, in groups of three: 12 345 678."""
    return f"{value:,}".replace(",", THIN)
