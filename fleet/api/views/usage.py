"""What tenants used, by local period, with the totals of the whole range on each page."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from django.utils import timezone
from django.utils.dateparse import parse_datetime
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from engine.errors import InvalidInput
from fleet.api.serializers.usage import (
    UsagePageSerializer,
    UsagePointSerializer,
    UsageTotalsSerializer,
)
from fleet.api.views.base import PAGE_PARAMETERS, FleetView, describe
from fleet.selectors import usage_by_period, usage_totals
from fleet.selectors.usage import PERIODS

LONGEST = timedelta(days=3660)


class UsageView(FleetView):
    @describe(
        "Usage by tenant, model and local period",
        UsagePageSerializer,
        parameters=[
            OpenApiParameter("start", datetime, description="First instant; a day ago if absent."),
            OpenApiParameter("end", datetime, description="First instant after; now if absent."),
            OpenApiParameter("period", str, enum=PERIODS, description="hour if absent."),
            OpenApiParameter("zone", str, description="IANA name that cuts days; UTC if absent."),
            OpenApiParameter("tenant", str),
            OpenApiParameter("model", str),
            *PAGE_PARAMETERS,
        ],
    )
    def get(self, request: Request) -> Response:
        asked = request.query_params
        end = _instant("end", asked.get("end")) or timezone.now()
        start = _instant("start", asked.get("start")) or end - timedelta(days=1)
        if not timedelta(0) <= end - start <= LONGEST:
            raise InvalidInput("start", start.isoformat(), "must lie at most 10 years before end")
        period = asked.get("period", "hour")
        if period not in PERIODS:
            raise InvalidInput("period", period, f"use one of {', '.join(PERIODS)}")
        chosen = {name: asked[name] for name in ("tenant", "model") if asked.get(name)}
        for name, value in chosen.items():
            if "\0" in value:
                raise InvalidInput(name, value, "has a zero byte in it")
        points = usage_by_period(start, end, period, _zone(asked.get("zone", "UTC")), **chosen)
        answer = self.pages(request, points, UsagePointSerializer)
        totals = usage_totals(start, end, **chosen)
        answer.data["totals"] = UsageTotalsSerializer(totals).data
        return answer


def _instant(name: str, text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        instant = parse_datetime(text)
    except ValueError as error:
        raise InvalidInput(name, text, f"is no instant ({error})") from None
    if instant is None:
        raise InvalidInput(name, text, "use ISO 8601, e.g. 2026-01-31T09:00:00+01:00")
    try:
        return instant if instant.tzinfo else timezone.make_aware(instant)
    except (OverflowError, ValueError):
        raise InvalidInput(name, text, "is out of range") from None


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidInput("zone", name, "use an IANA name such as Europe/Berlin") from None
