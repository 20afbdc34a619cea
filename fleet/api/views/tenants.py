"""Tenants, their quotas and their keys."""

from rest_framework.request import Request
from rest_framework.response import Response

from fleet import services
from fleet.api.permissions import actor_of
from fleet.api.serializers.tenants import (
    IssuedKeySerializer,
    KeyCreateSerializer,
    KeySerializer,
    QuotaChangeSerializer,
    QuotaSerializer,
    TenantChangeSerializer,
    TenantCreateSerializer,
    TenantSerializer,
)
from fleet.api.views.base import FleetView, describe, described_list, found
from fleet.models import ApiKey, Tenant


def find(name: str) -> Tenant:
    return found(Tenant.objects.filter(name=name).first(), "tenant", name)


class TenantsView(FleetView):
    @described_list("List tenants", TenantSerializer)
    def get(self, request: Request) -> Response:
        return self.pages(request, Tenant.objects.order_by("name"), TenantSerializer)

    @describe("Create a tenant", TenantSerializer, status=201, request=TenantCreateSerializer)
    def post(self, request: Request) -> Response:
        tenant = services.create_tenant(
            **self.body(TenantCreateSerializer), actor=actor_of(request)
        )
        return Response(TenantSerializer(tenant).data, status=201)


class TenantView(FleetView):
    @describe("One tenant", TenantSerializer)
    def get(self, request: Request, tenant: str) -> Response:
        return Response(TenantSerializer(find(tenant)).data)

    @describe("Change what is sent", TenantSerializer, request=TenantChangeSerializer)
    def patch(self, request: Request, tenant: str) -> Response:
        row = services.update_tenant(
            find(tenant), **self.changes(TenantChangeSerializer), actor=actor_of(request)
        )
        return Response(TenantSerializer(row).data)

    @describe("Remove a tenant and its keys (its usage stays)", None, status=204)
    def delete(self, request: Request, tenant: str) -> Response:
        services.remove_tenant(find(tenant), actor=actor_of(request))
        return Response(status=204)


class QuotaView(FleetView):
    @describe("A tenant's limits", QuotaSerializer)
    def get(self, request: Request, tenant: str) -> Response:
        return Response(QuotaSerializer(find(tenant)).data)

    @describe(
        "Set all limits: one that is not sent does not apply",
        QuotaSerializer,
        request=QuotaChangeSerializer,
    )
    def put(self, request: Request, tenant: str) -> Response:
        row = find(tenant)
        given = self.body(QuotaChangeSerializer)
        none = dict.fromkeys(
            field.source for field in QuotaSerializer().fields.values() if field.source
        )
        row = services.update_tenant(row, **{**none, **given}, actor=actor_of(request))
        return Response(QuotaSerializer(row).data)


class KeysView(FleetView):
    @described_list("List a tenant's keys", KeySerializer)
    def get(self, request: Request, tenant: str) -> Response:
        return self.pages(request, find(tenant).keys.order_by("-created_at", "id"), KeySerializer)

    @describe(
        "Issue a key; its text is in this answer and nowhere else",
        IssuedKeySerializer,
        status=201,
        request=KeyCreateSerializer,
    )
    def post(self, request: Request, tenant: str) -> Response:
        issued = services.issue_key(
            find(tenant), **self.body(KeyCreateSerializer), actor=actor_of(request)
        )
        data = {**KeySerializer(issued.key).data, "key": issued.secret}
        return Response(data, status=201, headers={"Cache-Control": "no-store"})


class KeyView(FleetView):
    @describe("One key", KeySerializer)
    def get(self, request: Request, tenant: str, prefix: str) -> Response:
        return Response(KeySerializer(self._find(tenant, prefix)).data)

    @describe("Revoke a key for good", KeySerializer)
    def delete(self, request: Request, tenant: str, prefix: str) -> Response:
        key = services.revoke_key(self._find(tenant, prefix), actor=actor_of(request))
        return Response(KeySerializer(key).data)

    def _find(self, tenant: str, prefix: str) -> ApiKey:
        key = ApiKey.objects.filter(tenant=find(tenant), prefix=prefix).first()
        return found(key, "key", prefix)
