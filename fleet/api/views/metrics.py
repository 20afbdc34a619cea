"""`/metrics` of the web process: for this machine, for HALCYON_METRICS_NETWORKS, for Viewers."""

import ipaddress
from typing import TYPE_CHECKING

from django.conf import settings
from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView

from fleet.metrics import registry
from fleet.roles import Role, has_role

if TYPE_CHECKING:
    from collections.abc import Iterable

PROXIED = ("X-Forwarded-For", "Forwarded", "X-Real-IP")


class MayScrape(BasePermission):
    message = "scrape from this machine, from HALCYON_METRICS_NETWORKS, or with a Viewer's token"

    def has_permission(self, request: Request, view: APIView) -> bool:
        if has_role(request.user, Role.VIEWER):
            return True
        if any(name in request.headers for name in PROXIED):
            return False
        return is_within(request.META.get("REMOTE_ADDR", ""), settings.HALCYON_METRICS_NETWORKS)


def is_within(address: str, networks: "Iterable[str]") -> bool:
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    return ip.is_loopback or any(ip in ipaddress.ip_network(network) for network in networks)


@extend_schema(exclude=True)
class MetricsView(APIView):
    permission_classes = [MayScrape]

    def get(self, request: Request) -> HttpResponse:
        return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)
