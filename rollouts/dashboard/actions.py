"""What operators do from a page: each confirmed with its consequence, each with a reason."""

from collections.abc import Callable

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_POST

from engine.errors import InvalidInput
from fleet.dashboard.page import signed_in
from fleet.roles import Role
from fleet.services import Conflict
from rollouts import services
from rollouts.audit import origin
from rollouts.models import Rollout

SERVICES: dict[str, Callable[..., Rollout]] = {
    "promote": services.promote,
    "abort": services.abort,
    "pause": services.pause,
    "resume": services.resume,
}
SAID = {
    "promote": "{canary} has all traffic of {model} and is its stable version.",
    "abort": "All traffic of {model} goes to {baseline} again.",
    "pause": "The rollout of {model} is paused at {percent:g} %.",
    "resume": "The rollout of {model} is judged again.",
}


def _act(request: HttpRequest, pk: int, verb: str) -> HttpResponse:
    row = get_object_or_404(Rollout, pk=pk)
    if not row.is_active and verb != row.phase:
        newer = Rollout.objects.filter(model=row.model, started_at__gt=row.started_at).exists()
        if newer:  # never act on another rollout than the one on the page
            messages.error(request, f"Nothing was changed: this rollout is {row.phase}.")
            return redirect("rollout", pk)
    try:
        with origin(request.META.get("REMOTE_ADDR", "")):
            done = SERVICES[verb](
                row.model,
                actor=request.user.get_username(),
                reason=request.POST.get("reason", ""),
            )
    except (Conflict, InvalidInput) as error:
        messages.error(request, f"Nothing was changed: {error}")
    else:
        said = SAID[verb].format(
            model=done.model, canary=done.canary, baseline=done.baseline, percent=done.percent
        )
        messages.success(request, said)
    return redirect("rollout", pk)


act = require_POST(signed_in(_act, least=Role.OPERATOR))
