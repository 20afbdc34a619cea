"""Find by name: an exact name leads straight to its page, anything else to a short list."""

from urllib.parse import quote

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from fleet.dashboard.page import look, paint, signed_in
from fleet.dashboard.paging import matches
from fleet.dashboard.panels.shell import shell
from fleet.dashboard.twins import OVERVIEW
from fleet.live.scene import Scene
from fleet.live.topics import register

LISTED = 40

register("search", lambda scene, _params: {"shell": shell(scene)})


@signed_in
def search(request: HttpRequest) -> HttpResponse:
    text = request.GET.get("q", "").strip()
    sight = look(request, "search")
    found = _found(sight.scene, text) if text else []
    exact = [hit for hit in found if hit[1] == text]
    if len(exact) == 1 or len(found) == 1:
        return redirect((exact or found)[0][2])
    return paint(
        request,
        "dashboard/search.html",
        title=f"Find “{text}”" if text else "Find",
        page="",
        topic="search",
        sight=sight,
        twin=OVERVIEW,
        found=found[:LISTED],
        more=max(len(found) - LISTED, 0),
        text=text,
    )


def _found(scene: Scene, text: str) -> list[tuple[str, str, str]]:
    """(kind, name, address) of everything whose name holds the words."""
    state = scene.state
    named = [
        *(("model", m["model"], f"/models/{quote(m['model'], safe='')}/") for m in state["models"]),
        *(
            ("replica", r["replicaId"], f"/fleet/{quote(r['replicaId'], safe='')}/")
            for r in state["replicas"]
        ),
        *(
            ("tenant", t["tenant"], f"/tenants/{quote(t['tenant'], safe='')}/")
            for t in state["tenants"]
        ),
        *(
            ("request", r["requestId"], f"/requests/{quote(r['requestId'], safe='')}/")
            for r in scene.samples.newest()
        ),
    ]
    return [hit for hit in named if matches(text, hit[1])]
