"""One envelope for every refusal of the control API, the same as the gateway's.

    {"error": {"code": "invalid_request", "message": "...", "details": {"field": "..."}}}

Bad values come from serializers or from services (`InvalidInput`); both name the field as
the caller spelt it. A database that is away is 503 with Retry-After, never a 500.
"""

import logging
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.db import DatabaseError, InterfaceError, OperationalError
from django.http import Http404
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import set_rollback

from engine.errors import InvalidInput
from fleet.services import Conflict

log = logging.getLogger(__name__)

RETRY_AFTER_S = 2

CODES = {
    400: "invalid_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    409: "conflict",
    413: "payload_too_large",
    415: "unsupported_media_type",
    429: "too_many_requests",
    503: "unavailable",
}


def camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def envelope(
    status: int, message: str, *, details: dict[str, Any] | None = None, **headers: str
) -> Response:
    error: dict[str, Any] = {"code": CODES.get(status, "error"), "message": message}
    if details:
        error["details"] = details
    return Response(
        {"error": error},
        status=status,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )


def as_envelope(error: Exception, context: dict[str, Any]) -> Response | None:
    """REST framework's exception handler."""
    response = _answer(error)
    if response is not None:
        set_rollback()
    return response


def _answer(error: Exception) -> Response | None:
    if isinstance(error, InvalidInput):
        field = camel(error.field)
        return envelope(400, f"{field}: {error.remedy}", details={"field": field})
    if isinstance(error, Conflict):
        return envelope(409, str(error))
    if isinstance(error, Http404):
        return envelope(404, str(error) or "there is no such thing here")
    if isinstance(error, PermissionDenied):
        return envelope(403, str(error) or "your role does not allow this")
    if isinstance(error, RequestDataTooBig):
        return envelope(413, "the body is larger than the control API takes (1 MiB)")
    if isinstance(error, (OperationalError, InterfaceError)):
        log.warning("the database is away: %s", error)
        return envelope(
            503,
            "the database does not answer; nothing was changed. Inference is not affected.",
            Retry_After=str(RETRY_AFTER_S),
        )
    if isinstance(error, DatabaseError):
        # A value that passed every check and that the database still refuses (e.g. NUL in text).
        log.warning("the database refused a value: %s", error)
        return envelope(400, f"the database refuses a value: {str(error).splitlines()[0]}")
    if isinstance(error, exceptions.ValidationError):
        field, message = _first(error.detail)
        return envelope(
            400,
            f"{field}: {message}" if field else message,
            details={"field": field} if field else None,
        )
    if isinstance(error, exceptions.APIException):
        headers = {}
        if challenge := getattr(error, "auth_header", None):
            headers["WWW_Authenticate"] = challenge
        if wait := getattr(error, "wait", None):
            headers["Retry_After"] = str(int(wait) + 1)
        return envelope(error.status_code, str(error.detail), **headers)
    return None


def _first(detail: Any, path: str = "") -> tuple[str, str]:
    """The first fault with the path of its field: ("items.0.name", "may not be blank")."""
    if isinstance(detail, dict):
        name, inner = next(iter(detail.items()))
        step = "" if name == "non_field_errors" else str(name)
        return _first(inner, ".".join(part for part in (path, step) if part))
    if isinstance(detail, list):
        for index, inner in enumerate(detail):
            if isinstance(inner, dict):
                if inner:
                    return _first(inner, f"{path}.{index}" if path else str(index))
            else:
                return path, str(inner)
    return path, str(detail)
