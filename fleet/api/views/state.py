"""The complete live state in one round trip, merged over every gateway that speaks."""

from drf_spectacular.types import OpenApiTypes
from rest_framework.request import Request
from rest_framework.response import Response

from fleet.api.views.base import FleetView, describe
from fleet.live.facts import facts
from fleet.live.store import store


class StateView(FleetView):
    @describe(
        "The live state of the whole fleet",
        OpenApiTypes.OBJECT,
        description=(
            "`status` is live, stale (all gateways silent) or empty (none ever spoke). "
            "`rollouts` are those under way, with phase, step, streaks and last evidence."
        ),
    )
    def get(self, request: Request) -> Response:
        state = {**store.state(), "rollouts": facts.now("rollout states") or []}
        return Response(state, headers={"Cache-Control": "no-store"})
