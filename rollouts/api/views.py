"""Rollouts: list, start, look, act. The audit: read, verify."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.utils import timezone
from django.utils.dateparse import parse_datetime
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from engine.errors import InvalidInput
from fleet.api.permissions import actor_of
from fleet.api.views.base import FleetView, describe, described_list, found
from fleet.roles import Role
from rollouts import selectors, services
from rollouts.api.serializers.audit import AuditEventSerializer, VerificationSerializer
from rollouts.api.serializers.rollouts import (
    DecisionSerializer,
    ReasonRequiredSerializer,
    RolloutSerializer,
    RolloutStartSerializer,
)
from rollouts.audit import verify
from rollouts.models import Decision, Rollout


def latest(model: str) -> Rollout:
    rows = Rollout.objects.filter(model=model).order_by("-started_at", "-id")
    return found(rows.first(), "rollout of", model)


class RolloutView(FleetView):
    """Base: operators move traffic, everybody may look."""

    write_role = Role.OPERATOR

    def answer(self, rollout: Rollout, status: int = 200) -> Response:
        shown = RolloutSerializer(selectors.status_of(rollout)).data
        return Response(shown, status=status, headers={"Cache-Control": "no-store"})


class RolloutsView(RolloutView):
    @described_list(
        "List rollouts, those under way first",
        RolloutSerializer,
        parameters=[
            OpenApiParameter("model", str),
            OpenApiParameter("active", bool, description="only those under way"),
        ],
    )
    def get(self, request: Request) -> Response:
        chosen = request.query_params.get("model") or None
        rows = selectors.recent_rollouts(1000, model=without_zero("model", chosen))
        if truth("active", request.query_params.get("active")):
            rows = [row for row in rows if row.active]
        return self.pages(request, rows, RolloutSerializer)

    @describe("Start a rollout", RolloutSerializer, status=201, request=RolloutStartSerializer)
    def post(self, request: Request) -> Response:
        body = self.body(RolloutStartSerializer)
        rollout = services.start(
            body["model"],
            body["version"],
            policy=body["policy"],
            shadow=body["shadow"],
            supersede_active=body["supersede"],
            actor=actor_of(request),
            reason=body["reason"],
        )
        return self.answer(rollout, 201)


class RolloutStateView(RolloutView):
    @describe("The rollout of a model that is under way, else its last", RolloutSerializer)
    def get(self, request: Request, model: str) -> Response:
        return self.answer(latest(model))


class ActionView(RolloutView):
    """One thing an operator does. Doing it twice is doing it once; too late is 409."""

    act: Callable[..., Rollout]

    def run(self, request: Request, model: str) -> Response:
        reason = self.body(ReasonRequiredSerializer)["reason"]
        latest(model)
        return self.answer(type(self).act(model, actor=actor_of(request), reason=reason))


class PromoteView(ActionView):
    act = staticmethod(services.promote)

    @describe("Give the canary everything now", RolloutSerializer, request=ReasonRequiredSerializer)
    def post(self, request: Request, model: str) -> Response:
        return self.run(request, model)


class AbortView(ActionView):
    act = staticmethod(services.abort)

    @describe(
        "Take the canary's traffic away now", RolloutSerializer, request=ReasonRequiredSerializer
    )
    def post(self, request: Request, model: str) -> Response:
        return self.run(request, model)


class PauseView(ActionView):
    act = staticmethod(services.pause)

    @describe("Hold the split, judge nothing", RolloutSerializer, request=ReasonRequiredSerializer)
    def post(self, request: Request, model: str) -> Response:
        return self.run(request, model)


class ResumeView(ActionView):
    act = staticmethod(services.resume)

    @describe("Judge again", RolloutSerializer, request=ReasonRequiredSerializer)
    def post(self, request: Request, model: str) -> Response:
        return self.run(request, model)


class HistoryView(RolloutView):
    @described_list(
        "Every decision about a model, newest first",
        DecisionSerializer,
        parameters=[OpenApiParameter("rollout", int, description="only this one's")],
    )
    def get(self, request: Request, model: str) -> Response:
        latest(model)
        rows = Decision.objects.filter(rollout__model=model).order_by("-at", "-id")
        if (wanted := request.query_params.get("rollout")) is not None:
            if not wanted.isascii() or not wanted.isdigit() or len(wanted) > 18:
                raise InvalidInput("rollout", wanted, "must be a rollout's number")
            rows = rows.filter(rollout_id=int(wanted))
        pages = self.pagination_class()
        page: list[Any] = pages.paginate_queryset(rows, request, view=self) or []
        shown = [selectors.stored_decision(row) for row in page]
        return pages.get_paginated_response(DecisionSerializer(shown, many=True).data)


class AuditView(FleetView):
    @described_list(
        "Who did what, newest first",
        AuditEventSerializer,
        parameters=[
            OpenApiParameter("kind", str, description="rollout, split, tenant, key, ..."),
            OpenApiParameter("action", str, description="such as rollout.started"),
            OpenApiParameter("subject", str),
            OpenApiParameter("model", str),
            OpenApiParameter("actor", str, description="part of it will do"),
            OpenApiParameter("text", str, description="in reason, subject or action"),
            OpenApiParameter("start", datetime),
            OpenApiParameter("end", datetime),
        ],
    )
    def get(self, request: Request) -> Response:
        asked = request.query_params
        names = ("kind", "action", "subject", "model", "actor", "text")
        chosen: dict[str, Any] = {
            name: without_zero(name, asked[name]) for name in names if asked.get(name)
        }
        events = selectors.audit_events(
            **chosen,
            start=instant("start", asked.get("start")),
            end=instant("end", asked.get("end")),
        )
        return self.pages(request, events, AuditEventSerializer)


class AuditVerifyView(FleetView):
    @describe(
        "Walk the chains and name the first row that does not fit",
        VerificationSerializer,
        parameters=[],
    )
    def get(self, request: Request) -> Response:
        return Response(VerificationSerializer(verify()).data)


def without_zero(name: str, text: str | None) -> str | None:
    if text is not None and "\0" in text:
        raise InvalidInput(name, text, "has a zero byte in it")
    return text


def truth(name: str, text: str | None) -> bool:
    """Whether it says so; saying nothing is saying no."""
    said = (text or "false").lower()
    if said not in {"1", "true", "0", "false"}:
        raise InvalidInput(name, text, "must be true or false")
    return said in {"1", "true"}


def instant(name: str, text: str | None) -> datetime | None:
    """An instant with its zone; one without is UTC."""
    if not text:
        return None
    try:
        moment = parse_datetime(text)
    except ValueError:
        moment = None
    if moment is None:
        raise InvalidInput(name, text, "must be an instant such as 2026-05-01T12:00:00Z")
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.get_default_timezone())
