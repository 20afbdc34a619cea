"""What every view shares: sign-in, role, document, first paint.

A view names its topic; the document that the websocket will keep true is made here once for
the first paint, from the same functions. People without a role see nothing of the fleet.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render

from fleet.dashboard import nav, ranges
from fleet.dashboard.twins import Twin
from fleet.live import topics
from fleet.live.pulse import pulse
from fleet.live.scene import Scene
from fleet.roles import Role, role_of

View = Callable[..., HttpResponseBase]

THEMES = ("auto", "dark", "light")
ZONES = ("local", "utc")


@dataclass(slots=True)
class Sight:
    """One look at a page: the scene, and the two documents made of it."""

    scene: Scene
    doc: dict[str, Any]
    once: dict[str, Any]
    params: dict[str, str]


def signed_in(view: View, *, least: Role = Role.VIEWER) -> View:
    """Only for people with a role. Anonymous ones go to the sign-in page and come back."""

    @wraps(view)
    def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        role = role_of(request.user)
        if role < least:
            raise PermissionDenied(
                f"You are signed in as {request.user.get_username()} with the role "
                f"{role.name.lower()}; this page needs {least.name.lower()} or more. "
                "An Admin can put you in that group."
            )
        request.role = role  # type: ignore[attr-defined]
        return view(request, *args, **kwargs)

    return login_required(checked)


def look(request: HttpRequest, topic: str, **params: str) -> Sight:
    """Make the topic's documents for this request."""
    scene = pulse.scene()
    asked = {key: request.GET[key] for key in request.GET} | params
    return Sight(
        scene,
        topics.document(scene, topic, asked),
        topics.once(scene, topic, asked),
        asked,
    )


def paint(
    request: HttpRequest,
    template: str,
    *,
    title: str,
    page: str,
    topic: str,
    sight: Sight,
    twin: Twin,
    status: int = 200,
    **context: Any,
) -> HttpResponse:
    """Render a page with what its shell needs."""
    role: Role = getattr(request, "role", Role.NONE)
    return render(
        request,
        template,
        {
            "title": title,
            "page": page,
            "topic": topic,
            "doc": sight.doc,
            "once": sight.once,
            "params": sight.params,
            "at_ms": sight.scene.at_ms,
            "twin": twin,
            "nav": nav.entries(),
            "role": role.name.lower(),
            "may_act": role >= Role.OPERATOR,
            "may_admin": role >= Role.ADMIN,
            "ranges": list(ranges.RANGES.values()),
            "range": (choice := ranges.chosen(sight.params)),
            "refresh_s": choice.refresh_s,
            **chrome(request),
            **context,
        },
        status=status,
    )


def chrome(request: HttpRequest) -> dict[str, str]:
    """Theme and zone, remembered in cookies so that the first paint has them."""
    theme, zone = request.COOKIES.get("halcyon_theme"), request.COOKIES.get("halcyon_zone")
    return {
        "theme": theme if theme in THEMES else "auto",
        "zone": zone if zone in ZONES else "local",
    }
