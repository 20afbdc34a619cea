"""What the views share: a list in pages, a body read strictly, an object or 404."""

from collections.abc import Callable
from typing import Any

from django.db.models import Model as Row
from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.views import APIView

from fleet.api.pagination import Pages
from fleet.api.serializers.errors import ErrorSerializer

PROBLEMS = {
    400: OpenApiResponse(ErrorSerializer, "A value is wrong; the field is named."),
    401: OpenApiResponse(ErrorSerializer, "No session, no valid token."),
    403: OpenApiResponse(ErrorSerializer, "The role does not allow it."),
    404: OpenApiResponse(ErrorSerializer, "There is no such thing."),
    409: OpenApiResponse(ErrorSerializer, "It contradicts the present state."),
    415: OpenApiResponse(ErrorSerializer, "The body is not JSON."),
    503: OpenApiResponse(ErrorSerializer, "The database does not answer."),
}

PAGE_PARAMETERS = [
    OpenApiParameter("page", int, description="From 1."),
    OpenApiParameter("pageSize", int, description="At most 1000, 100 where not given."),
]


def describe[F: Callable[..., Any]](
    summary: str, response: Any, *, status: int = 200, **options: Any
) -> Callable[[F], F]:
    """Document a method: its answer, and the refusals that any of them may give."""
    described: Callable[[F], F] = extend_schema(
        summary=summary, responses={status: response, **PROBLEMS}, **options
    )
    return described


def described_list[F: Callable[..., Any]](
    summary: str, serializer: Any, **options: Any
) -> Callable[[F], F]:
    """Document a method that answers in pages."""
    parameters = [*PAGE_PARAMETERS, *options.pop("parameters", [])]
    return describe(summary, serializer(many=True), parameters=parameters, **options)


class FleetView(APIView):
    """Base of the control API's views."""

    pagination_class = Pages

    def body(self, serializer: type[Serializer[Any]]) -> dict[str, Any]:
        reader = serializer(data=self.request.data)
        reader.is_valid(raise_exception=True)
        return dict(reader.validated_data)

    def changes(self, serializer: type[Serializer[Any]]) -> dict[str, Any]:
        """Only what the caller sent: an absent field is no change."""
        reader = serializer(data=self.request.data, partial=True)
        reader.is_valid(raise_exception=True)
        return dict(reader.validated_data)

    def pages(
        self, request: Request, rows: QuerySet[Any] | list[Any], serializer: type[Serializer[Any]]
    ) -> Response:
        pages = self.pagination_class()
        page = pages.paginate_queryset(rows, request, view=self)
        return pages.get_paginated_response(serializer(page, many=True).data)


def found[T: Row](row: T | None, kind: str, name: str) -> T:
    """The row, or 404 that says what was looked for."""
    if row is None:
        raise NotFound(f"there is no {kind} {name!r}")
    return row
