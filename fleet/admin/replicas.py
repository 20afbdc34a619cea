"""Replicas: what is written down of them, and draining by the dozen."""

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from engine.errors import InvalidInput
from fleet.addresses import valid_address
from fleet.admin.announced import AnnouncedAdmin, actor
from fleet.models import Replica
from fleet.services import default_concurrency, drain_replica, undrain_replica


class ReplicaForm(forms.ModelForm):
    max_concurrency = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=65_536,
        help_text="Empty: what suits the protocol (batch 1, openai 256).",
    )

    class Meta:
        model = Replica
        fields = "__all__"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance._state.adding:
            self.initial.pop("max_concurrency", None)

    def clean_max_concurrency(self) -> int:
        said = self.cleaned_data["max_concurrency"]
        return default_concurrency(self.data.get("protocol", "")) if said is None else int(said)

    def clean_address(self) -> str:
        try:
            return valid_address(self.cleaned_data["address"])
        except InvalidInput as error:
            raise forms.ValidationError(error.remedy) from None


@admin.register(Replica)
class ReplicaAdmin(AnnouncedAdmin):
    kind = "replica"
    form = ReplicaForm
    list_display = (
        "replica_id",
        "version",
        "address",
        "protocol",
        "weight",
        "draining",
        "heartbeat",
    )
    list_filter = ("draining", "protocol", "version__model", "accelerator")
    search_fields = ("replica_id", "address", "version__name", "version__model__name")
    autocomplete_fields = ("version",)
    list_select_related = ("version__model",)
    readonly_fields = ("registered_at", "heartbeat_at", "started_at")
    actions = ("drain", "undrain")
    fieldsets = (
        (None, {"fields": ("replica_id", "version", "address", "protocol", "draining")}),
        ("Routing", {"fields": ("weight", "accelerator", "loaded_models", "gpu_memory_ratio")}),
        (
            "Limits",
            {
                "fields": ("work_unit", "max_batch_size", "max_batch_tokens", "max_concurrency"),
                "description": "Concurrency is batches at once. Of a server of protocol openai it"
                " bounds what the gateways learn: say as much as the server takes.",
            },
        ),
        ("Life", {"fields": ("runtime", "started_at", "registered_at", "heartbeat_at")}),
    )

    def save_model(
        self, request: HttpRequest, obj: Any, form: forms.ModelForm, change: bool
    ) -> None:
        if "draining" in form.changed_data:
            obj.drain_ordered = obj.draining
        super().save_model(request, obj, form, change)

    def model_name(self, row: Any) -> str:
        return str(row.version.model.name)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        own = ("registered_at", "heartbeat_at", "started_at")
        return own if obj is None else ("replica_id", *own)

    @admin.display(description="heartbeat", ordering="heartbeat_at", empty_value="written down")
    def heartbeat(self, row: Any) -> str | None:
        if row.heartbeat_at is None:
            return None
        return f"{(timezone.now() - row.heartbeat_at).total_seconds():.0f} s ago"

    @admin.action(description="Drain: send them no new work", permissions=["change"])
    def drain(self, request: HttpRequest, queryset: QuerySet[Replica]) -> None:
        for replica in queryset:
            drain_replica(replica.pk, actor=actor(request), reason="in the admin")
        self.message_user(request, f"{len(queryset)} drain")

    @admin.action(description="Undrain: let them have work again", permissions=["change"])
    def undrain(self, request: HttpRequest, queryset: QuerySet[Replica]) -> None:
        for replica in queryset:
            undrain_replica(replica.pk, actor=actor(request), reason="in the admin")
        self.message_user(request, f"{len(queryset)} may have work again")
