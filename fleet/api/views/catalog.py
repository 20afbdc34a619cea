"""Models, versions and splits."""

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from fleet import services
from fleet.api.permissions import actor_of
from fleet.api.serializers.catalog import (
    ModelChangeSerializer,
    ModelCreateSerializer,
    ModelSerializer,
    SplitSerializer,
    SplitWriteSerializer,
    VersionSerializer,
    VersionWriteSerializer,
)
from fleet.api.views.base import FleetView, describe, described_list, found
from fleet.models import Model, ModelVersion, TrafficSplit
from fleet.roles import Role


def models() -> QuerySet[Model]:
    return Model.objects.select_related("split__baseline", "split__canary").prefetch_related(
        "versions__replicas"
    )


def find(name: str) -> Model:
    return found(models().filter(name=name).first(), "model", name)


class ModelsView(FleetView):
    @described_list("List models with their versions and split", ModelSerializer)
    def get(self, request: Request) -> Response:
        return self.pages(request, models().order_by("name"), ModelSerializer)

    @describe("Create a model", ModelSerializer, status=201, request=ModelCreateSerializer)
    def post(self, request: Request) -> Response:
        model = services.create_model(**self.body(ModelCreateSerializer), actor=actor_of(request))
        return Response(ModelSerializer(find(model.name)).data, status=201)


class ModelView(FleetView):
    @describe("One model", ModelSerializer)
    def get(self, request: Request, model: str) -> Response:
        return Response(ModelSerializer(find(model)).data)

    @describe("Change strategy, SLO or description", ModelSerializer, request=ModelChangeSerializer)
    def patch(self, request: Request, model: str) -> Response:
        row = find(model)
        services.update_model(row, **self.changes(ModelChangeSerializer), actor=actor_of(request))
        return Response(ModelSerializer(find(model)).data)

    @describe("Remove a model that no replica serves", None, status=204)
    def delete(self, request: Request, model: str) -> Response:
        services.remove_model(find(model), actor=actor_of(request))
        return Response(status=204)


class VersionsView(FleetView):
    write_role = Role.OPERATOR

    @described_list("List a model's versions", VersionSerializer)
    def get(self, request: Request, model: str) -> Response:
        rows = find(model).versions.prefetch_related("replicas").order_by("created_at", "id")
        return self.pages(request, rows, VersionSerializer)

    @describe(
        "Create a version (it gets no traffic by this)",
        VersionSerializer,
        status=201,
        request=VersionWriteSerializer,
    )
    def post(self, request: Request, model: str) -> Response:
        version: ModelVersion = services.create_version(
            find(model), **self.body(VersionWriteSerializer), actor=actor_of(request)
        )
        return Response(VersionSerializer(version).data, status=201)


class SplitView(FleetView):
    write_role = Role.OPERATOR

    @describe("The split in force", SplitSerializer)
    def get(self, request: Request, model: str) -> Response:
        split = TrafficSplit.objects.filter(model=find(model)).first()
        return Response(SplitSerializer(found(split, "split of", model)).data)

    @describe("Set the split whole", SplitSerializer, request=SplitWriteSerializer)
    def put(self, request: Request, model: str) -> Response:
        split = services.set_split(
            find(model), **self.body(SplitWriteSerializer), actor=actor_of(request)
        )
        return Response(SplitSerializer(split).data)

    @describe("Take the model out of service", None, status=204)
    def delete(self, request: Request, model: str) -> Response:
        services.clear_split(find(model), actor=actor_of(request))
        return Response(status=204)
