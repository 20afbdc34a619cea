"""Models with their versions, and the split."""

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Count, QuerySet
from django.http import HttpRequest

from engine.errors import UnknownName
from fleet.admin.announced import AnnouncedAdmin, actor, save_inline
from fleet.models import Model, ModelVersion, TrafficSplit
from fleet.services import create_version, set_split
from fleet.services.splits import clear_split, find_version


class VersionInline(admin.TabularInline):
    model = ModelVersion
    extra = 0
    fields = ("name", "notes", "created_at")
    readonly_fields = ("created_at",)
    show_change_link = True

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # from its own page, which says what is in the way


@admin.register(Model)
class ModelAdmin(AnnouncedAdmin):
    kind = "model"
    list_display = ("name", "strategy", "slo_ms", "split", "version_count", "created_at")
    list_filter = ("strategy",)
    search_fields = ("name", "description")
    readonly_fields = ("created_at",)
    inlines = (VersionInline,)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Model]:
        rows: QuerySet[Model] = super().get_queryset(request)
        return rows.select_related("split__baseline", "split__canary", "split__model").annotate(
            versions_counted=Count("versions")
        )

    def model_name(self, row: Any) -> str:
        return str(row.name)

    @admin.display(description="versions", ordering="versions_counted")
    def version_count(self, row: Any) -> int:
        return int(row.versions_counted)

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        """New versions go through their service, so that they are announced."""
        for row in formset.save(commit=False):
            if row.pk is None:
                create_version(row.model, row.name, notes=row.notes, actor=actor(request))
            else:
                save_inline(request, row, kind="version", subject=row.name, model=row.model.name)
        formset.save_m2m()


@admin.register(ModelVersion)
class VersionAdmin(AnnouncedAdmin):
    kind = "version"
    list_display = ("name", "model", "created_at", "replica_count")
    list_filter = ("model",)
    search_fields = ("name", "model__name", "notes")
    autocomplete_fields = ("model",)
    readonly_fields = ("created_at",)
    list_select_related = ("model",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[ModelVersion]:
        rows: QuerySet[ModelVersion] = super().get_queryset(request)
        return rows.annotate(replicas_counted=Count("replicas"))

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("created_at",) if obj is None else ("model", "created_at")

    def model_name(self, row: Any) -> str:
        return str(row.model.name)

    @admin.display(description="replicas", ordering="replicas_counted")
    def replica_count(self, row: Any) -> int:
        return int(row.replicas_counted)


class SplitForm(forms.ModelForm):
    """Both versions must belong to the model."""

    class Meta:
        model = TrafficSplit
        fields = ("model", "baseline", "canary", "canary_percent", "shadow")

    def clean(self) -> dict[str, Any]:
        given: dict[str, Any] = super().clean() or {}
        model = given.get("model") or (self.instance.model if self.instance.pk else None)
        for name in ("baseline", "canary"):
            version = given.get(name)
            if model is not None and version is not None:
                try:
                    find_version(model, version)
                except UnknownName:
                    self.add_error(name, f"{version.name} is no version of {model.name}")
        return given


@admin.register(TrafficSplit)
class SplitAdmin(admin.ModelAdmin):
    form = SplitForm
    list_display = ("model", "baseline", "canary", "canary_percent", "shadow", "updated_at")
    search_fields = ("model__name",)
    list_select_related = ("model", "baseline__model", "canary__model")
    autocomplete_fields = ("model", "baseline", "canary")
    readonly_fields = ("salt", "updated_at")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        own = ("salt", "updated_at")
        return own if obj is None else ("model", *own)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        saved = set_split(
            obj.model,
            baseline=obj.baseline,
            canary=obj.canary,
            canary_percent=obj.canary_percent,
            shadow=obj.shadow,
            actor=actor(request),
            reason="in the admin",
        )
        obj.pk = saved.pk

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        clear_split(obj.model, actor=actor(request), reason="in the admin")

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[TrafficSplit]) -> None:
        for row in queryset:
            self.delete_model(request, row)
