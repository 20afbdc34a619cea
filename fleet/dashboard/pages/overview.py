"""The first screen."""

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse

from fleet.dashboard import charting, columns, history, markers, ranges
from fleet.dashboard.charts import traffic
from fleet.dashboard.page import look, paint, signed_in
from fleet.dashboard.panels import overview as _panel  # noqa: F401  registers the topic
from fleet.dashboard.ranges import Range
from fleet.dashboard.twins import OVERVIEW


@signed_in
def overview(request: HttpRequest) -> HttpResponse:
    sight = look(request, "overview")
    sight.once["charts"] = charting.charts_for("overview", sight.params)
    return paint(
        request,
        "dashboard/overview.html",
        title="Overview",
        page="overview",
        topic="overview",
        sight=sight,
        twin=OVERVIEW,
        charts=[
            traffic.goodput(),
            traffic.latency(),
            traffic.admission(live=ranges.chosen(sight.params).live),
        ],
        refusals=columns.REFUSALS,
        queues=columns.QUEUES,
        flushes=columns.FLUSHES,
        versions=columns.SERVICE,
        attention=columns.ATTENTION,
    )


def chart_series(choice: Range, _params: Mapping[str, str]) -> dict[str, Any]:
    """The recorded past. The live range is streamed, and admission is not recorded."""
    if choice.live:
        return {}
    start, end = history.bounds(choice)
    series = history.traffic_series(choice)
    series["markers"] = markers.between(start, end)
    return {"goodput": series, "latency": series, "admission": {"t": []}}


charting.register("overview", chart_series)
