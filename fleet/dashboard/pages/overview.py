"""The first screen."""

from django.http import HttpRequest, HttpResponse

from fleet.dashboard import columns
from fleet.dashboard.charts import traffic
from fleet.dashboard.page import look, paint, signed_in
from fleet.dashboard.panels import overview as _panel  # noqa: F401  registers the topic
from fleet.dashboard.twins import OVERVIEW


@signed_in
def overview(request: HttpRequest) -> HttpResponse:
    sight = look(request, "overview")
    return paint(
        request,
        "dashboard/overview.html",
        title="Overview",
        page="overview",
        topic="overview",
        sight=sight,
        twin=OVERVIEW,
        charts=[traffic.goodput(), traffic.latency(), traffic.admission()],
        refusals=columns.REFUSALS,
        queues=columns.QUEUES,
        flushes=columns.FLUSHES,
        versions=columns.SERVICE,
        attention=columns.ATTENTION,
    )
