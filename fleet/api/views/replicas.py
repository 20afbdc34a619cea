"""Replicas: the door that they register at, and the operators' door."""

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from fleet import services
from fleet.api.fields import ReasonSerializer
from fleet.api.permissions import actor_of
from fleet.api.serializers.replicas import RegistrationSerializer, ReplicaSerializer
from fleet.api.views.base import FleetView, describe, described_list, found
from fleet.models import Replica
from fleet.roles import Role


def replicas() -> QuerySet[Replica]:
    return Replica.objects.select_related("version__model").order_by("replica_id")


def find(replica_id: str) -> Replica:
    return found(replicas().filter(pk=replica_id).first(), "replica", replica_id)


class RegisterView(FleetView):
    """An idempotent upsert that repeats as the heartbeat."""

    write_role = Role.OPERATOR
    allow_fleet_token = True

    @describe(
        "Register a replica, or say that it still lives",
        ReplicaSerializer,
        request=RegistrationSerializer,
        description="200 where it was known, 201 where it is new. Repeat it as the heartbeat.",
    )
    def post(self, request: Request) -> Response:
        registration = services.Registration(**self.body(RegistrationSerializer))
        replica, is_new = services.register_replica(registration, actor=actor_of(request))
        return Response(ReplicaSerializer(replica).data, status=201 if is_new else 200)


class ReplicasView(FleetView):
    write_role = Role.OPERATOR

    @described_list("List replicas", ReplicaSerializer)
    def get(self, request: Request) -> Response:
        return self.pages(request, replicas(), ReplicaSerializer)

    @describe(
        "Write down a replica that will not register by itself",
        ReplicaSerializer,
        status=201,
        request=RegistrationSerializer,
        description="For a vLLM or another server. No heartbeat is expected of it.",
    )
    def post(self, request: Request) -> Response:
        registration = services.Registration(**self.body(RegistrationSerializer))
        replica, is_new = services.register_replica(
            registration, actor=actor_of(request), heartbeat=False
        )
        return Response(ReplicaSerializer(replica).data, status=201 if is_new else 200)


class ReplicaView(FleetView):
    write_role = Role.OPERATOR

    @describe("One replica", ReplicaSerializer)
    def get(self, request: Request, replica: str) -> Response:
        return Response(ReplicaSerializer(find(replica)).data)

    @describe("Forget a replica (one that still runs will register again)", None, status=204)
    def delete(self, request: Request, replica: str) -> Response:
        find(replica)
        services.remove_replica(replica, actor=actor_of(request))
        return Response(status=204)


class DrainView(FleetView):
    write_role = Role.OPERATOR

    @describe("Send it no new work", ReplicaSerializer, request=ReasonSerializer)
    def post(self, request: Request, replica: str) -> Response:
        find(replica)
        row = services.drain_replica(
            replica, **self.body(ReasonSerializer), actor=actor_of(request)
        )
        return Response(ReplicaSerializer(row).data)


class UndrainView(FleetView):
    write_role = Role.OPERATOR

    @describe("Let it have work again", ReplicaSerializer, request=ReasonSerializer)
    def post(self, request: Request, replica: str) -> Response:
        find(replica)
        row = services.undrain_replica(
            replica, **self.body(ReasonSerializer), actor=actor_of(request)
        )
        return Response(ReplicaSerializer(row).data)
