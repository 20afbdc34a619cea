"""Finding the rollout that is meant, and holding it."""

from engine.errors import InvalidInput, UnknownName
from fleet.models import Model
from fleet.services import Conflict
from rollouts.models import ACTIVE_VALUES, Rollout


def active_rollout(model: str, *, lock: bool = False) -> Rollout | None:
    """The rollout of this model that is under way, held for the transaction if `lock`."""
    rows = Rollout.objects.filter(model=model, phase__in=ACTIVE_VALUES)
    return (rows.select_for_update() if lock else rows).first()


def latest_rollout(model: str, *, lock: bool = False) -> Rollout:
    """The rollout under way, else the last one. Raises where the model never had any."""
    found = active_rollout(model, lock=lock)
    if found is None:
        rows = Rollout.objects.filter(model=model).order_by("-started_at", "-id")
        found = (rows.select_for_update() if lock else rows).first()
    if found is not None:
        return found
    if not Model.objects.filter(name=model).exists():
        raise UnknownName("model", model, Model.objects.values_list("name", flat=True)[:8])
    raise Conflict(f"{model} has no rollout: start one with `manage.py rollout start`")


def require_reason(reason: str) -> str:
    """Who moves traffic by hand says why."""
    reason = reason.strip()
    if not reason:
        raise InvalidInput("reason", reason, "say why: it is kept in the history")
    return reason
