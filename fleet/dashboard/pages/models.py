"""Models: the list, and one in detail."""

from collections.abc import Mapping
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse

from fleet.dashboard import charting, columns, history, markers, ranges
from fleet.dashboard.charts import models as figures
from fleet.dashboard.format import count, ms, percent
from fleet.dashboard.page import look, paint, signed_in
from fleet.dashboard.paging import cut
from fleet.dashboard.panels import model as panel
from fleet.dashboard.panels import models as listing
from fleet.dashboard.ranges import Range
from fleet.dashboard.twins import Twin
from fleet.live.pulse import pulse
from fleet.models import Model

LIVE_REFRESH_S = 5


@signed_in
def models(request: HttpRequest) -> HttpResponse:
    sight = look(request, "models")
    return paint(
        request,
        "dashboard/models.html",
        title="Models",
        page="models",
        topic="models",
        sight=sight,
        twin=Twin("manage.py model list", "/v1/control/models"),
        table=columns.VERSIONS,
        pages=cut(listing.filtered(sight.scene.state, sight.params), sight.params, size=25),
    )


@signed_in
def model(request: HttpRequest, name: str) -> HttpResponse:
    sight = look(request, "model", id=name)
    row = Model.objects.filter(name=name).prefetch_related("versions").first()
    seen = panel.find(sight.scene, name)
    if row is None and seen is None:
        raise Http404(f"No model {name} is defined.")
    choice = ranges.chosen(sight.params)
    sight.once["charts"] = charting.charts_for("model", sight.params)
    return paint(
        request,
        "dashboard/model.html",
        title=name,
        page="models",
        topic="model",
        sight=sight,
        twin=Twin(f"manage.py model show {name}", f"/v1/control/models/{name}"),
        model=row,
        seen=seen,
        totals=_totals(choice, name),
        versions=columns.VERSIONS,
        costs=columns.COSTS,
        queues=columns.QUEUES,
        attention=columns.ATTENTION,
        charts=[figures.latency(), figures.rate(), figures.errors(), figures.cost()],
        refresh_s=choice.refresh_s or LIVE_REFRESH_S,
    )


def _totals(choice: Range, name: str) -> list[dict[str, str]]:
    """What the range adds up to, by version."""
    rows = []
    for version, total in sorted(history.version_totals(choice, name).items()):
        offered = total.offered
        rows.append(
            {
                "version": version,
                "offered": count(offered),
                "served": count(total.served),
                "in_time": percent((total.served / offered) if offered else None),
                "faults": count(total.faults),
                "refused": count(total.sheds),
                "p50": ms(total.quantile_ms(0.5)),
                "p95": ms(total.quantile_ms(0.95)),
                "p99": ms(total.quantile_ms(0.99)),
            }
        )
    return rows


def chart_series(choice: Range, params: Mapping[str, str]) -> dict[str, Any]:
    name = params.get("id", "")
    scene = pulse.scene()
    seen = panel.find(scene, name)
    series = history.by_arm_series(choice, name)
    if seen is not None and any(v is not None for v in series["baseline.p95"]):
        series["slo"] = [seen["sloMs"]] * len(series["t"])
    start, end = history.bounds(choice)
    series["markers"] = markers.between(start, end, name)
    shared = dict.fromkeys(("arm_latency", "arm_rate", "arm_errors"), series)
    return shared | {"cost": panel.cost_series(seen)}


charting.register("model", chart_series)
