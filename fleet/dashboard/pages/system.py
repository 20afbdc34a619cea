"""The doctor in the browser."""

import platform
from importlib.metadata import version
from typing import Any

from django.http import HttpRequest, HttpResponse

from fleet.dashboard import columns
from fleet.dashboard.checkup import checkup
from fleet.dashboard.page import look, paint, signed_in
from fleet.dashboard.panels.engine import gateway_row
from fleet.dashboard.panels.shell import shell
from fleet.dashboard.tables import body
from fleet.dashboard.twins import Twin
from fleet.live.scene import Scene
from fleet.live.topics import Params, register
from fleet.selectors import presence

PACKAGES = ("django", "channels", "daphne", "psycopg", "celery", "numpy", "plotly", "redis")


def versions() -> list[tuple[str, str]]:
    """What this web process is made of."""
    return [("Python", platform.python_version()), *((name, version(name)) for name in PACKAGES)]


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
        seen=checkup.look(),
        processes=presence(),
        versions=versions(),
        gateways=columns.GATEWAYS,
    )
