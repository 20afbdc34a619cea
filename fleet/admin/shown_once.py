"""The page that shows a new key or token, once. Nothing keeps it: not a message, not a session."""

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

ATTRIBUTE = "_halcyon_issued"


def note(request: HttpRequest, name: str, secret: str) -> None:
    """Remember a secret until this request is answered."""
    issued: list[tuple[str, str]] = getattr(request, ATTRIBUTE, [])
    issued.append((name, secret))
    setattr(request, ATTRIBUTE, issued)


def page(request: HttpRequest, site: admin.AdminSite, back: str) -> TemplateResponse | None:
    """The page, where this request issued anything."""
    issued: Sequence[tuple[str, str]] = getattr(request, ATTRIBUTE, ())
    if not issued:
        return None
    context = {**site.each_context(request), "title": "Shown once", "issued": issued, "back": back}
    response = TemplateResponse(request, "admin/fleet/shown_once.html", context)
    response["Cache-Control"] = "no-store"
    return response


class ShowsOnce(admin.ModelAdmin):
    """Answers a save that issued a secret with the page that shows it."""

    def response_add(
        self, request: HttpRequest, obj: Any, post_url_continue: str | None = None
    ) -> HttpResponse:
        usual = super().response_add(request, obj, post_url_continue)
        return page(request, self.admin_site, usual.get("Location", ".")) or usual

    def response_change(self, request: HttpRequest, obj: Any) -> HttpResponse:
        usual = super().response_change(request, obj)
        return page(request, self.admin_site, usual.get("Location", ".")) or usual
