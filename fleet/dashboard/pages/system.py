"""The doctor in the browser."""

from typing import Any

from django.http import HttpRequest, HttpResponse

from fleet.dashboard import checks, columns
from fleet.dashboard.page import look, paint, signed_in
from fleet.dashboard.panels.engine import gateway_row
from fleet.dashboard.panels.shell import shell
from fleet.dashboard.tables import body
from fleet.dashboard.twins import Twin
from fleet.live.scene import Scene
from fleet.live.topics import Params, register
from fleet.selectors import presence


def live(scene: Scene, _params: Params) -> dict[str, Any]:
    rows = [gateway_row(gateway) for gateway in scene.state["gateways"]]
    return {"shell": shell(scene), "tables": {"gateways": body(rows)}}


register("system", live)


@signed_in
def system(request: HttpRequest) -> HttpResponse:
    sight = look(request, "system")
    return paint(
        request,
        "dashboard/system.html",
        title="System",
        page="system",
        topic="system",
        sight=sight,
        twin=Twin("manage.py doctor", "/v1/control/state"),
        checks=checks.run(sight.scene),
        processes=presence(),
        versions=checks.versions(),
        gateways=columns.GATEWAYS,
    )
