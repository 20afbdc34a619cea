"""Tokens for the control API."""

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from fleet.admin.announced import actor
from fleet.admin.shown_once import ShowsOnce, note
from fleet.models import AccessToken
from fleet.services import issue_token, revoke_token

READ_ONLY = ("prefix", "created_at", "last_used_at", "revoked_at")


class TokenForm(forms.ModelForm):
    class Meta:
        model = AccessToken
        fields = ("kind", "name", "user", "expires_at")


@admin.register(AccessToken)
class TokenAdmin(ShowsOnce):
    form = TokenForm
    list_display = ("prefix", "kind", "name", "user", "expires_at", "revoked_at", "last_used_at")
    list_filter = ("kind", "revoked_at")
    search_fields = ("prefix", "name", "user__username")
    autocomplete_fields = ("user",)
    actions = ("revoke",)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return () if obj is None else ("kind", "name", "user", "expires_at", *READ_ONLY)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # revoke it

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        if change:
            return
        issued = issue_token(
            obj.name,
            user=obj.user,
            expires_at=obj.expires_at,
            actor=actor(request),
            reason="in the admin",
        )
        obj.pk, obj.prefix = issued.token.pk, issued.token.prefix
        note(request, obj.name, issued.secret)

    @admin.action(description="Revoke for good", permissions=["change"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[AccessToken]) -> None:
        for token in queryset:
            revoke_token(token, actor=actor(request), reason="in the admin")
        self.message_user(request, f"{len(queryset)} revoked")
