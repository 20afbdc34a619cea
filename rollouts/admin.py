"""Rollouts and history in the stock admin: start, act with a reason, look; never edit."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ActionForm
from django.db.models import QuerySet
from django.http import HttpRequest

from engine.errors import InvalidInput
from fleet.admin.announced import ReadOnlyAdmin, actor
from fleet.models import ModelVersion
from fleet.services import Conflict
from rollouts import services
from rollouts.models import AuditEvent, Decision, Rollout


class StartForm(forms.ModelForm):
    """What `manage.py rollout start` takes."""

    version = forms.ModelChoiceField(
        ModelVersion.objects.select_related("model"), help_text="the canary"
    )
    policy = forms.JSONField(
        required=False, initial=dict, help_text='such as {"steps": [5, 25, 100], "intervalS": 10}'
    )
    supersede = forms.BooleanField(required=False, help_text="end what is under way for this model")
    reason = forms.CharField(max_length=500, widget=forms.Textarea(attrs={"rows": 2}))

    class Meta:
        model = Rollout
        fields = ("version", "policy", "shadow", "supersede", "reason")

    def __init__(self, *args: Any, user: str = "", **options: Any) -> None:
        super().__init__(*args, **options)
        self.user = user

    def clean(self) -> dict[str, Any]:
        """Start it here, so that a refusal is an error of the form."""
        given: dict[str, Any] = super().clean() or {}
        if self.errors:
            return given
        version = given["version"]
        try:
            self.instance = services.start(
                version.model.name,
                version.name,
                policy={} if given["policy"] is None else given["policy"],
                shadow=given["shadow"],
                supersede_active=given["supersede"],
                actor=self.user,
                reason=given["reason"],
            )
        except InvalidInput as error:
            self.add_error(error.field if error.field in self.fields else None, str(error))
        except Conflict as error:
            self.add_error(None, str(error))
        return given

    def _post_clean(self) -> None:
        """Nothing is left to construct or to validate: the service did both."""


class ReasonForm(ActionForm):
    reason = forms.CharField(required=False, max_length=500)


@admin.register(Rollout)
class RolloutAdmin(ReadOnlyAdmin):
    list_display = ("id", "model", "baseline", "canary", "phase", "percent", "started_at")
    list_filter = ("phase", "model")
    search_fields = ("model", "canary", "reason")
    ordering = ("-started_at",)
    action_form = ReasonForm
    actions = ("promote", "abort", "pause", "resume")

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.has_perm("rollouts.add_rollout"))

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **options: Any
    ) -> Any:
        if obj is not None:
            return super().get_form(request, obj, change, **options)

        class Form(StartForm):
            def __init__(self, *args: Any, **given: Any) -> None:
                super().__init__(*args, user=actor(request), **given)

        return Form

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return super().get_fields(request, obj) if obj is not None else StartForm.Meta.fields

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return () if obj is None else super().get_readonly_fields(request, obj)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """The service has written it."""

    @admin.action(description="Promote: give the canary everything", permissions=["operate"])
    def promote(self, request: HttpRequest, queryset: QuerySet[Rollout]) -> None:
        self._act(request, queryset, services.promote)

    @admin.action(description="Abort: all traffic to the stable version", permissions=["operate"])
    def abort(self, request: HttpRequest, queryset: QuerySet[Rollout]) -> None:
        self._act(request, queryset, services.abort)

    @admin.action(description="Pause: hold the split", permissions=["operate"])
    def pause(self, request: HttpRequest, queryset: QuerySet[Rollout]) -> None:
        self._act(request, queryset, services.pause)

    @admin.action(description="Resume", permissions=["operate"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Rollout]) -> None:
        self._act(request, queryset, services.resume)

    def has_operate_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("rollouts.change_rollout"))

    def _act(self, request: HttpRequest, queryset: QuerySet[Rollout], act: Any) -> None:
        reason = request.POST.get("reason", "")
        for rollout in queryset:
            if not rollout.is_active:
                self.message_user(request, f"{rollout} is {rollout.phase}", messages.WARNING)
                continue
            try:
                done = act(rollout.model, actor=actor(request), reason=reason)
            except (InvalidInput, Conflict) as error:
                self.message_user(request, str(error), messages.ERROR)
            else:
                self.message_user(request, f"{done}: {done.phase} at {done.percent:g} %")


@admin.register(Decision)
class DecisionAdmin(ReadOnlyAdmin):
    list_display = ("at", "rollout", "seq", "name", "percent_before", "percent", "text")
    list_filter = ("act", "reason")
    search_fields = ("text", "rollout__model")
    list_select_related = ("rollout",)
    show_full_result_count = False


@admin.register(AuditEvent)
class AuditAdmin(ReadOnlyAdmin):
    list_display = ("seq", "at", "actor", "action", "subject", "model", "reason", "origin")
    list_filter = ("kind", "action")
    search_fields = ("actor", "subject", "reason")
    date_hierarchy = "at"
    show_full_result_count = False
