"""The complete live state in one round trip, merged over every gateway that speaks."""

from drf_spectacular.types import OpenApiTypes
from rest_framework.request import Request
from rest_framework.response import Response

from fleet.api.views.base import FleetView, describe
from fleet.live.store import store


class StateView(FleetView):
    @describe(
        "The live state of the whole fleet",
        OpenApiTypes.OBJECT,
        description="`status` is live, stale (all gateways silent) or empty (none ever spoke).",
    )
    def get(self, request: Request) -> Response:
        return Response(store.state(), headers={"Cache-Control": "no-store"})
