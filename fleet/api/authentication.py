"""Who calls: a session (checked for CSRF), a user's token, or the fleet's token.

Tokens come as `Authorization: Bearer ht_...` (or `hf_...`). A fleet token is not a user:
`request.user` stays anonymous and `request.auth` carries the token, which the one view that
takes it looks at.
"""

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from fleet.models import AccessToken
from fleet.services import verify_token


class TokenAuthentication(BaseAuthentication):
    keyword = "Bearer"

    def authenticate(
        self, request: Request
    ) -> tuple[AbstractBaseUser | AnonymousUser, AccessToken] | None:
        scheme, _, text = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != self.keyword.lower():
            return None
        token = verify_token(text.strip())
        if token is None or (token.user is not None and not token.user.is_active):
            raise AuthenticationFailed("this token is unknown, expired or revoked")
        return token.user or AnonymousUser(), token

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="halcyon"'


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the OpenAPI document speaks of it."""

    target_class = TokenAuthentication
    name = "token"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "A user's or the fleet's token"}
