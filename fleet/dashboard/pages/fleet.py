"""Replicas: the list with its filters, one in detail, and the two actions on one."""

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from engine.errors import InvalidInput
from fleet.dashboard import charting, columns
from fleet.dashboard.charts import replica as figures
from fleet.dashboard.page import look, paint, signed_in
from fleet.dashboard.panels import fleet as panel
from fleet.dashboard.panels import replica as detail
from fleet.dashboard.ranges import Range
from fleet.dashboard.sorting import sort_links
from fleet.dashboard.twins import Twin
from fleet.live.pulse import pulse
from fleet.models import Replica
from fleet.roles import Role
from fleet.services import drain_replica, undrain_replica

LONGEST_REASON = 300
REFRESH_S = 5


@signed_in
def replicas(request: HttpRequest) -> HttpResponse:
    sight = look(request, "fleet")
    names = sorted({replica["model"] for replica in sight.scene.state["replicas"]})
    return paint(
        request,
        "dashboard/fleet.html",
        title="Fleet",
        page="fleet",
        topic="fleet",
        sight=sight,
        twin=Twin("manage.py replicas list", "/v1/control/replicas"),
        table=columns.REPLICAS,
        pages=panel.page_of(sight.scene.state, sight.params),
        models=names,
        statuses=("healthy", "degraded", "down", "draining", "unknown"),
        sort_links=sort_links(request, panel.SORTS, "status"),
    )


@signed_in
def replica(request: HttpRequest, replica_id: str) -> HttpResponse:
    sight = look(request, "replica", id=replica_id)
    row = _row(replica_id)
    seen = detail.find(sight.scene, replica_id)
    if row is None and seen is None:
        raise Http404(f"No replica {replica_id} is registered, and no gateway speaks of one.")
    sight.once["charts"] = detail.chart_series(sight.scene, replica_id)
    return paint(
        request,
        "dashboard/replica.html",
        title=replica_id,
        page="fleet",
        topic="replica",
        sight=sight,
        twin=Twin(f"manage.py replicas show {replica_id}", f"/v1/control/replicas/{replica_id}"),
        replica=row,
        seen=seen,
        draining=row.draining if row else bool(seen and seen["status"] == "draining"),
        health=columns.HEALTH,
        chances=columns.CHANCES,
        charts=[figures.batches(), figures.breaker()],
        refresh_s=REFRESH_S,
    )


def chart_series(_choice: Range, params: Mapping[str, str]) -> dict[str, Any]:
    return detail.chart_series(pulse.scene(), params.get("id", ""))


charting.register("replica", chart_series)


def _row(replica_id: str) -> Any:
    return Replica.objects.select_related("version__model").filter(pk=replica_id).first()


def _act(request: HttpRequest, replica_id: str, verb: str) -> HttpResponse:
    reason = request.POST.get("reason", "").strip()
    if not reason or len(reason) > LONGEST_REASON:
        messages.error(
            request, f"Nothing was changed: give a reason of 1 to {LONGEST_REASON} characters."
        )
        return redirect("replica", replica_id)
    service = {"drain": drain_replica, "undrain": undrain_replica}[verb]
    try:
        service(replica_id, actor=request.user.get_username(), reason=reason)
    except InvalidInput as error:
        raise Http404(str(error)) from error
    said = {
        "drain": f"{replica_id} drains: it finishes what it has and gets no more.",
        "undrain": f"{replica_id} is back in service.",
    }
    messages.success(request, said[verb])
    return redirect("replica", replica_id)


def _drain(request: HttpRequest, replica_id: str) -> HttpResponse:
    return _act(request, replica_id, "drain")


def _undrain(request: HttpRequest, replica_id: str) -> HttpResponse:
    return _act(request, replica_id, "undrain")


drain = require_POST(signed_in(_drain, least=Role.OPERATOR))
undrain = require_POST(signed_in(_undrain, least=Role.OPERATOR))
