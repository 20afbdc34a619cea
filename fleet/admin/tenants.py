"""Tenants with their limits and keys on one page."""

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest

from fleet.admin.announced import AnnouncedAdmin, actor, save_inline
from fleet.admin.shown_once import ShowsOnce, note
from fleet.models import ApiKey, Tenant
from fleet.services import issue_key, revoke_key

KEY_READ_ONLY = ("prefix", "status", "created_at", "last_used_at", "revoked_at")


class KeyForm(forms.ModelForm):
    """What can be chosen for a key; the rest is made."""

    class Meta:
        model = ApiKey
        fields = ("tenant", "name", "expires_at", "may_choose_version")


class KeyInline(admin.TabularInline):
    model = ApiKey
    form = KeyForm
    extra = 0
    fields = ("name", "expires_at", "may_choose_version", *KEY_READ_ONLY)
    readonly_fields = KEY_READ_ONLY
    can_delete = False
    show_change_link = True
    verbose_name_plural = "API keys (a new one is shown once, after saving)"

    def get_queryset(self, request: HttpRequest) -> QuerySet[ApiKey]:
        rows: QuerySet[ApiKey] = super().get_queryset(request)
        return rows.order_by("revoked_at", "-created_at")


@admin.register(Tenant)
class TenantAdmin(ShowsOnce, AnnouncedAdmin):
    kind = "tenant"
    list_display = (
        "name",
        "enabled",
        "priority",
        "weight",
        "requests_per_minute",
        "tokens_per_minute",
        "max_in_flight",
        "active_keys",
    )
    list_editable = (
        "enabled",
        "priority",
        "requests_per_minute",
        "tokens_per_minute",
        "max_in_flight",
    )
    list_filter = ("enabled", "priority")
    search_fields = ("name", "keys__prefix", "keys__name")
    readonly_fields = ("created_at",)
    inlines = (KeyInline,)
    fieldsets = (
        (None, {"fields": ("name", "enabled", "created_at")}),
        ("Under contention", {"fields": ("priority", "weight")}),
        (
            "Limits (empty: none)",
            {
                "fields": (
                    ("requests_per_minute", "requests_burst"),
                    ("tokens_per_minute", "tokens_burst"),
                    "max_in_flight",
                )
            },
        ),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Tenant]:
        rows: QuerySet[Tenant] = super().get_queryset(request)
        active = Count("keys", filter=Q(keys__revoked_at=None), distinct=True)
        return rows.annotate(keys_counted=active)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("created_at",) if obj is None else ("name", "created_at")

    @admin.display(description="keys", ordering="keys_counted")
    def active_keys(self, row: Any) -> int:
        return int(row.keys_counted)

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        for row in formset.save(commit=False):
            if row.pk is None:
                issue(request, row)
            else:
                save_inline(request, row, kind="key", subject=row.prefix)
        formset.save_m2m()


@admin.register(ApiKey)
class KeyAdmin(ShowsOnce, AnnouncedAdmin):
    kind = "key"
    form = KeyForm
    list_display = ("prefix", "tenant", "name", "status", "expires_at", "last_used_at")
    list_filter = ("revoked_at", "tenant")
    search_fields = ("prefix", "name", "tenant__name")
    autocomplete_fields = ("tenant",)
    list_select_related = ("tenant",)
    readonly_fields = KEY_READ_ONLY
    actions = ("revoke",)

    def subject(self, row: Any) -> str:
        return str(row.prefix)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return () if obj is None else ("tenant", *KEY_READ_ONLY)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # revoke it: what it did stays explained

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        if change:
            super().save_model(request, obj, form, change)
        else:
            issue(request, obj)

    @admin.action(description="Revoke for good", permissions=["change"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        for key in queryset:
            revoke_key(key, actor=actor(request), reason="in the admin")
        self.message_user(request, f"{len(queryset)} revoked")


def issue(request: HttpRequest, row: ApiKey) -> None:
    """Issue what the form describes, and keep its text for the answer to this request."""
    issued = issue_key(
        row.tenant,
        row.name,
        expires_at=row.expires_at,
        may_choose_version=row.may_choose_version,
        actor=actor(request),
        reason="in the admin",
    )
    row.pk = issued.key.pk
    row.prefix = issued.key.prefix
    note(request, f"{row.tenant.name}/{row.name}", issued.secret)
