"""The engine: its health, and every knob it has."""

from django.http import HttpRequest, HttpResponse

from fleet.dashboard import columns
from fleet.dashboard.charts import traffic
from fleet.dashboard.page import look, paint, signed_in
from fleet.dashboard.panels import engine as _panel  # noqa: F401  registers the topic
from fleet.dashboard.panels import knobs
from fleet.dashboard.twins import Twin


@signed_in
def engine(request: HttpRequest) -> HttpResponse:
    return paint(
        request,
        "dashboard/engine.html",
        title="Engine",
        page="engine",
        topic="engine",
        sight=look(request, "engine"),
        twin=Twin("curl $GATEWAY/metrics", "/v1/control/state"),
        gateways=columns.GATEWAYS,
        queues=columns.QUEUES,
        charts=[traffic.admission()],
        groups=knobs.groups(),
    )
