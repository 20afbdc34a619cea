"""Admin pages whose saves and deletions are announced, in the transaction that makes them."""

from typing import Any

from django.contrib import admin
from django.db import models, transaction
from django.db.models import QuerySet
from django.forms import ModelForm
from django.http import HttpRequest

from fleet.events import Change, announce
from fleet.services.writing import difference, facts


class AnnouncedAdmin(admin.ModelAdmin):
    """`kind` is the first word of the actions; `model_name` says which model a row is about."""

    kind = ""

    def model_name(self, row: models.Model) -> str | None:
        return None

    def subject(self, row: models.Model) -> str:
        return str(row)

    @transaction.atomic
    def save_model(
        self, request: HttpRequest, obj: models.Model, form: ModelForm, change: bool
    ) -> None:
        before = _present(obj) if change else {}
        super().save_model(request, obj, form, change)
        was, became = difference(before, facts(obj))
        if became or not change:
            verb = "changed" if change else "created"
            self._announce(request, obj, verb, was if change else None, became)

    @transaction.atomic
    def delete_model(self, request: HttpRequest, obj: models.Model) -> None:
        before = facts(obj)
        self._announce(request, obj, "removed", before, None)
        super().delete_model(request, obj)

    @transaction.atomic
    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        for row in queryset:
            self.delete_model(request, row)

    def _announce(
        self,
        request: HttpRequest,
        row: models.Model,
        verb: str,
        before: dict[str, Any] | None,
        after: dict[str, Any] | None,
    ) -> None:
        _tell(request, self.kind, verb, self.subject(row), self.model_name(row), before, after)


@transaction.atomic
def save_inline(
    request: HttpRequest, row: models.Model, *, kind: str, subject: str, model: str | None = None
) -> None:
    """Save a changed row of an inline, and announce what changed."""
    before = _present(row)
    row.save()
    was, became = difference(before, facts(row))
    if became:
        _tell(request, kind, "changed", subject, model, was, became)


def _present(row: models.Model) -> dict[str, Any]:
    return facts(type(row)._default_manager.select_for_update().get(pk=row.pk))


def _tell(
    request: HttpRequest,
    kind: str,
    verb: str,
    subject: str,
    model: str | None,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
) -> None:
    announce(
        Change(
            action=f"{kind}.{verb}",
            kind=kind,
            subject=subject,
            model=model,
            actor=actor(request),
            reason="in the admin",
            before=before,
            after=after,
        )
    )


class ReadOnlyAdmin(admin.ModelAdmin):
    """To look, search and filter; nothing can be added, changed or deleted."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


def actor(request: HttpRequest) -> str:
    return request.user.get_username()
