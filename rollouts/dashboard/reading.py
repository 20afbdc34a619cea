"""One rollout with its decisions, read once per change and shared by everybody who watches.

The fact `rollout_pages` keeps what is under way, or ended a few minutes ago, fresh for the
live feed. A rollout whose row did not change is not read again: a page that is watched costs
one small query every two seconds, whoever watches.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.utils import timezone

from rollouts.models import ACTIVE_VALUES, Decision, Rollout

DECISIONS_SHOWN = 300
KEPT_AFTER_END = timedelta(minutes=10)


@dataclass(slots=True, frozen=True)
class Dossier:
    """A rollout and its latest decisions, oldest first."""

    rollout: Rollout
    decisions: tuple[Decision, ...]
    total: int  # decisions made, of which the latest are here

    @property
    def last(self) -> Decision | None:
        return self.decisions[-1] if self.decisions else None

    @property
    def numbers(self) -> dict[str, Any]:
        """The arithmetic of the last verdict that had any."""
        for decision in reversed(self.decisions):
            numbers: dict[str, Any] = decision.verdict.get("numbers") or {}
            if "latencyLogE" in numbers:
                return numbers
        return {}

    @property
    def steps(self) -> list[float]:
        """The ladder in per cent."""
        return [float(step) for step in self.rollout.policy.get("steps", ())]


_known: dict[int, tuple[tuple[Any, ...], Dossier]] = {}


def read(rollout: Rollout) -> Dossier:
    """The dossier, from memory where nothing changed."""
    stamp = stamp_of(rollout)
    known = _known.get(rollout.pk)
    if known is not None and known[0] == stamp:
        return known[1]
    latest = Decision.objects.filter(rollout=rollout).order_by("-seq")
    decisions = tuple(reversed(latest[:DECISIONS_SHOWN]))
    total = decisions[-1].seq if decisions else 0
    dossier = Dossier(rollout, decisions, total)
    _known[rollout.pk] = (stamp, dossier)
    return dossier


def stamp_of(rollout: Rollout) -> tuple[Any, ...]:
    """What tells that something happened."""
    return (rollout.judged_at, rollout.phase, rollout.step, rollout.percent, rollout.ended_at)


def pages() -> dict[int, Dossier]:
    """Every rollout that somebody may be watching."""
    recent = Rollout.objects.filter(ended_at__gte=timezone.now() - KEPT_AFTER_END)
    active = Rollout.objects.filter(phase__in=ACTIVE_VALUES)
    found = {rollout.pk: read(rollout) for rollout in [*active, *recent]}
    for pk in _known.keys() - found.keys():
        _known.pop(pk, None)
    return found
