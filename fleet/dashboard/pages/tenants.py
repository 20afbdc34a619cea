"""Tenants: the list, and one with its use, its keys and its refusals."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone

from fleet.dashboard import charting, columns, history, ranges
from fleet.dashboard.charts import tenants as figures
from fleet.dashboard.page import look, paint, signed_in
from fleet.dashboard.panels import tenants as panel
from fleet.dashboard.ranges import Range
from fleet.dashboard.sorting import sort_links
from fleet.dashboard.twins import Twin
from fleet.models import Tenant, UsageMinute
from fleet.selectors import usage_totals

MINUTE_MS = 60_000
REFRESH_S = 30  # usage is recorded by the minute
SHORTEST_S = 3600


@signed_in
def tenants(request: HttpRequest) -> HttpResponse:
    sight = look(request, "tenants")
    return paint(
        request,
        "dashboard/tenants.html",
        title="Tenants",
        page="tenants",
        topic="tenants",
        sight=sight,
        twin=Twin("manage.py tenant list", "/v1/control/tenants"),
        table=columns.TENANTS,
        pages=panel.page_of(sight.scene.state, sight.params),
        sort_links=sort_links(request, panel.SORTS, "-rate"),
    )


@signed_in
def tenant(request: HttpRequest, name: str) -> HttpResponse:
    sight = look(request, "tenant", id=name)
    row = Tenant.objects.filter(name=name).first()
    if row is None and panel.find(sight.scene, name) is None:
        raise Http404(f"No tenant {name} exists.")
    sight.once["charts"] = charting.charts_for("tenant", sight.params)
    now = timezone.now()
    return paint(
        request,
        "dashboard/tenant.html",
        title=name,
        page="tenants",
        topic="tenant",
        sight=sight,
        twin=Twin(f"manage.py tenant show {name}", f"/v1/control/tenants/{name}"),
        tenant=row,
        keys=[(key, key.status(now)) for key in row.keys.all()[:50]] if row else [],
        today=usage_totals(now - timedelta(hours=24), now, tenant=name),
        refusals=columns.TENANT_REFUSALS,
        charts=[figures.requests(), figures.tokens()],
        refresh_s=max(ranges.chosen(sight.params).refresh_s, REFRESH_S),
    )


def chart_series(choice: Range, params: Mapping[str, str]) -> dict[str, Any]:
    """Minutes, summed over gateways and models; into wider bins for the long ranges."""
    seconds = max(choice.seconds, SHORTEST_S)
    step_min = max(choice.bin_s // 60, 1)
    end = timezone.now().replace(second=0, microsecond=0)
    start = end - timedelta(seconds=seconds)
    sums: dict[int, dict[str, int]] = {}
    rows = UsageMinute.objects.filter(
        tenant=params.get("id", ""), minute__gte=start, minute__lt=end
    ).values_list("minute", "served", "refused", "prompt_tokens", "completion_tokens")
    for minute, served, refused, prompt, completion in rows:
        slot = sums.setdefault(int((minute - start).total_seconds() // (60 * step_min)), {})
        for key, n in (
            ("served", served),
            ("prompt", prompt),
            ("completion", completion),
            *((f"refused.{code}", n) for code, n in refused.items()),
        ):
            slot[key] = slot.get(key, 0) + n
    keys = sorted({key for slot in sums.values() for key in slot})
    slots = range(seconds // (60 * step_min))
    first = history.milliseconds(start)
    series: dict[str, Any] = {"t": [first + slot * step_min * MINUTE_MS for slot in slots]}
    for key in keys:
        series[key] = [round(sums.get(slot, {}).get(key, 0) / step_min, 2) for slot in slots]
    return {"usage": series, "tokens": series}


charting.register("tenant", chart_series)
