"""Tokens, and who the caller is."""

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from fleet import services
from fleet.api.permissions import actor_of
from fleet.api.serializers.access import (
    IssuedTokenSerializer,
    TokenCreateSerializer,
    TokenSerializer,
    WhoSerializer,
)
from fleet.api.views.base import FleetView, describe, described_list
from fleet.models import AccessToken
from fleet.roles import Role, has_role, role_of


class WhoAmIView(FleetView):
    @describe("Who the caller is, and what it may do", WhoSerializer)
    def get(self, request: Request) -> Response:
        return Response(
            {
                "user": request.user.get_username() or None,
                "role": role_of(request.user).name.lower(),
                "token": getattr(request.auth, "prefix", None),
            }
        )


class TokensView(FleetView):
    """A user makes tokens that act as the user; fleet tokens need the role Admin."""

    write_role = Role.VIEWER

    @described_list("List tokens: one's own, or all for an Admin", TokenSerializer)
    def get(self, request: Request) -> Response:
        return self.pages(request, _visible(request).order_by("-created_at", "id"), TokenSerializer)

    @describe(
        "Issue a token; its text is in this answer and nowhere else",
        IssuedTokenSerializer,
        status=201,
        request=TokenCreateSerializer,
    )
    def post(self, request: Request) -> Response:
        given = self.body(TokenCreateSerializer)
        kind = given.pop("kind")
        if kind == "fleet" and not has_role(request.user, Role.ADMIN):
            self.permission_denied(request, message="a fleet token needs the role Admin")
        issued = services.issue_token(
            user=_person(request) if kind == "user" else None, **given, actor=actor_of(request)
        )
        data = {**TokenSerializer(issued.token).data, "token": issued.secret}
        return Response(data, status=201, headers={"Cache-Control": "no-store"})


class TokenView(FleetView):
    write_role = Role.VIEWER

    @describe("Revoke a token for good", TokenSerializer)
    def delete(self, request: Request, prefix: str) -> Response:
        token = _visible(request).filter(prefix=prefix).first()
        if token is None:
            raise NotFound(f"there is no token {prefix!r} that you may revoke")
        return Response(TokenSerializer(services.revoke_token(token, actor=actor_of(request))).data)


def _person(request: Request) -> User:
    if not isinstance(request.user, User):
        raise PermissionDenied("only a person has tokens of their own")
    return request.user


def _visible(request: Request) -> QuerySet[AccessToken]:
    rows = AccessToken.objects.select_related("user")
    return rows if has_role(request.user, Role.ADMIN) else rows.filter(user=_person(request))
