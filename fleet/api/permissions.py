"""Which role may do what: reading needs Viewer; a view says what changing needs.

A view sets `write_role` (default Admin) and, rarely, `read_role`. `allow_fleet_token` lets
the fleet's token in where it belongs.
"""

from typing import TYPE_CHECKING

from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from fleet.models import AccessToken
from fleet.roles import Role, has_role

if TYPE_CHECKING:  # REST framework imports this module while it makes its own views
    from rest_framework.views import APIView


class RolePermission(BasePermission):
    message = "your role does not allow this"

    def has_permission(self, request: Request, view: "APIView") -> bool:
        if is_fleet(request):
            return bool(getattr(view, "allow_fleet_token", False))
        role = needed_role(request, view)
        if not has_role(request.user, role):
            self.message = f"this needs the role {role.group_name}"
            return False
        return True


def needed_role(request: Request, view: "APIView") -> Role:
    if request.method in SAFE_METHODS:
        return getattr(view, "read_role", Role.VIEWER)
    return getattr(view, "write_role", Role.ADMIN)


def is_fleet(request: Request) -> bool:
    token = request.auth
    return isinstance(token, AccessToken) and token.kind == AccessToken.Kind.FLEET


def actor_of(request: Request) -> str:
    """How history names the caller."""
    if isinstance(request.auth, AccessToken):
        who = request.auth.user.get_username() if request.auth.user else "fleet"
        return f"{who} (token {request.auth.prefix})"
    return request.user.get_username() or "anonymous"
