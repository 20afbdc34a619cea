"""Errors for people: what happened, what it means for inference, what to do.

`Unavailable` turns a database that is away into a 503 page that says so, because a person
who opens the dashboard during an incident must learn which part of it is the incident.
"""

import logging
from collections.abc import Callable

from django.core.exceptions import PermissionDenied
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render

from fleet.dashboard.page import chrome

log = logging.getLogger(__name__)

RETRY_AFTER_S = 5
CODES = {403: "forbidden", 404: "not_found", 500: "error", 503: "unavailable"}


def forbidden(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    reason = str(exception) if isinstance(exception, PermissionDenied) else ""
    return _page(request, 403, "Not for your role", reason or "Your role does not allow this.")


def stale_form(request: HttpRequest, reason: str = "") -> HttpResponse:
    return _page(
        request,
        403,
        "This form has grown old",
        "The page was open for too long, or cookies are blocked. Nothing was changed: "
        "go back, reload the page and send the form again.",
    )


def missing(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    said = exception.args[0] if exception and exception.args else None
    text = said if said and isinstance(said, str) else "There is no such page."
    return _page(request, 404, "Not here", text)


def broken(request: HttpRequest) -> HttpResponse:
    return _page(
        request,
        500,
        "This page broke",
        "The dashboard made a mistake and logged it. Inference does not depend on it: "
        "gateways go on serving.",
    )


class Unavailable:
    """Middleware: a database that does not answer is 503 with Retry-After, never a 500."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        try:
            return self.get_response(request)
        except (OperationalError, InterfaceError) as error:
            return self.answer(request, error)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if isinstance(error, OperationalError | InterfaceError):
            return self.answer(request, error)
        return None

    def answer(self, request: HttpRequest, error: Exception) -> HttpResponse:
        log.warning("the database is away: %s", error)
        response = _page(
            request,
            503,
            "PostgreSQL does not answer",
            "Inference is not affected: gateways serve from their last snapshot, and what they "
            "record waits in memory. Dashboards that are open keep their live numbers. "
            "Signing in, history and every change wait until the database is back.",
            commands=("manage.py doctor", "curl http://GATEWAY:8080/v1/control/state"),
        )
        response["Retry-After"] = str(RETRY_AFTER_S)
        return response


def _page(
    request: HttpRequest, status: int, title: str, text: str, commands: tuple[str, ...] = ()
) -> HttpResponse:
    if request.path.startswith("/v1/"):  # the control API speaks its own envelope
        error = {"code": CODES[status], "message": f"{title}. {text}"}
        return JsonResponse({"error": error}, status=status)
    context = {"title": title, "text": text, "status": status, "commands": commands}
    return render(request, "error.html", context | chrome(request), status=status)
