"""Rollouts: the list, the flagship, one decision."""

import json
from collections.abc import Mapping
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404

from fleet.dashboard import charting
from fleet.dashboard.format import number, plural
from fleet.dashboard.page import look, paint, signed_in
from fleet.dashboard.ranges import Range
from fleet.dashboard.tables import body
from fleet.dashboard.twins import Twin
from fleet.live.scene import Scene
from rollouts.dashboard import charts, columns, panels, reading
from rollouts.dashboard.guards import guards
from rollouts.models import ACTIVE_VALUES, Decision, Rollout
from rollouts.selectors import stored_decision

ENDED_SHOWN = 40
REFRESH_S = 600  # the page asks for its charts when a decision was made, not by the clock

ACTIONS = {
    "progressing": ("pause", "promote", "abort"),
    "pending": ("pause", "promote", "abort"),
    "paused": ("resume", "promote", "abort"),
    "inconclusive": ("resume", "promote", "abort"),
}


@signed_in
def rollouts(request: HttpRequest) -> HttpResponse:
    sight = look(request, "rollouts")
    active = [reading.read(r) for r in Rollout.objects.filter(phase__in=ACTIVE_VALUES)]
    sight.doc["tables"] = {"rollouts": body(panels.summary_row(d) for d in active)}
    ended = Rollout.objects.exclude(phase__in=ACTIVE_VALUES)[:ENDED_SHOWN]
    return paint(
        request,
        "rollouts/list.html",
        title="Rollouts",
        page="rollouts",
        topic="rollouts",
        sight=sight,
        twin=Twin("manage.py rollout status", "/v1/control/rollouts"),
        table=columns.ROLLOUTS,
        ended=[(r, panels.phase_word(r.phase)) for r in ended],
    )


@signed_in
def rollout(request: HttpRequest, pk: int) -> HttpResponse:
    row = get_object_or_404(Rollout, pk=pk)
    dossier = reading.read(row)
    sight = look(request, "rollout", id=str(pk))
    sight.doc |= panels.document(dossier)
    sight.once["charts"] = charts.series(dossier)
    return paint(
        request,
        "rollouts/rollout.html",
        title=f"{row.model}: {row.baseline} → {row.canary}",
        page="rollouts",
        topic="rollout",
        sight=sight,
        twin=Twin(
            f"manage.py rollout watch {row.model}", f"/v1/control/rollouts/{row.model}/history"
        ),
        rollout=row,
        dossier=dossier,
        rungs=panels.ladder(dossier),
        guards=columns.GUARDS,
        decisions=columns.DECISIONS,
        charts=charts.figures(),
        actions=[
            (verb, consequence(sight.scene, dossier, verb)) for verb in ACTIONS.get(row.phase, ())
        ],
        policy=sorted(row.policy.items()),
        refresh_s=REFRESH_S,
    )


@signed_in
def decision(request: HttpRequest, pk: int, seq: int) -> HttpResponse:
    row = Decision.objects.select_related("rollout").filter(rollout_id=pk, seq=seq).first()
    if row is None:
        raise Http404(f"Rollout {pk} has no window {seq}.")
    dossier = reading.Dossier(row.rollout, (row,), row.seq)
    sight = look(request, "history")
    sight.doc["tables"] = {"guards": body(guards(dossier))}
    return paint(
        request,
        "rollouts/decision.html",
        title=f"Window {seq}",
        page="rollouts",
        topic="history",
        sight=sight,
        twin=Twin(
            f"manage.py audit replay {pk}",
            f"/v1/control/rollouts/{row.rollout.model}/history",
        ),
        decision=row,
        meaning=panels.meaning(row),
        cells=panels.decision_row(row),
        numbers=[
            (key, number(value) if isinstance(value, int | float) else value)
            for key, value in sorted((row.verdict.get("numbers") or {}).items())
            if value is not None
        ],
        guards=columns.GUARDS,
        raw=json.dumps(stored_decision(row), indent=2, ensure_ascii=False, default=str),
    )


def consequence(scene: Scene, dossier: reading.Dossier, verb: str) -> str:
    """What an action means, in numbers, before it is done."""
    row = dossier.rollout
    rate = 0.0
    for model in scene.state["models"]:
        if model["model"] == row.model:
            rate = sum(version["ratePerS"] for version in model["versions"])
    moved = f"{row.percent:g} %" + (f" of traffic ({rate * row.percent / 100:.0f}/s)" if rate else
                                    " of traffic")  # fmt: skip
    rest = 100.0 - row.percent
    rest_text = f"{rest:g} %" + (
        f" of traffic ({rate * rest / 100:.0f}/s)" if rate else " of traffic"
    )
    judged = plural(dossier.total, "judged window")
    return {
        "abort": f"Moves {moved} from {row.canary} back to {row.baseline} now. Ends this rollout "
        f"after {judged}; it cannot be resumed.",
        "promote": f"Moves the other {rest_text} from {row.baseline} to {row.canary} now, without "
        f"waiting for evidence. {row.canary} becomes the stable version.",
        "pause": f"Keeps {row.percent:g} % on {row.canary} and judges nothing until somebody "
        "resumes: a bad canary is then not rolled back either.",
        "resume": f"Judges again from a fresh window, at {row.percent:g} % on {row.canary}.",
    }[verb]


def chart_series(_choice: Range, params: Mapping[str, str]) -> dict[str, Any]:
    asked = params.get("id", "")
    row = Rollout.objects.filter(pk=int(asked)).first() if asked.isdecimal() else None
    return {} if row is None else charts.series(reading.read(row))


charting.register("rollout", chart_series)
