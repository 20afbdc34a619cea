"""The addresses. A model's name may have a slash in it, so what is asked comes last."""

from django.urls import path

from rollouts.api.views import (
    AbortView,
    AuditVerifyView,
    AuditView,
    HistoryView,
    PauseView,
    PromoteView,
    ResumeView,
    RolloutStateView,
    RolloutsView,
)

control = "v1/control"
one = f"{control}/rollouts/<path:model>"

urlpatterns = [
    path(f"{control}/rollouts", RolloutsView.as_view(), name="api-rollouts"),
    path(f"{one}/promote", PromoteView.as_view(), name="api-rollout-promote"),
    path(f"{one}/abort", AbortView.as_view(), name="api-rollout-abort"),
    path(f"{one}/pause", PauseView.as_view(), name="api-rollout-pause"),
    path(f"{one}/resume", ResumeView.as_view(), name="api-rollout-resume"),
    path(f"{one}/history", HistoryView.as_view(), name="api-rollout-history"),
    path(one, RolloutStateView.as_view(), name="api-rollout"),
    path(f"{control}/audit", AuditView.as_view(), name="api-audit"),
    path(f"{control}/audit/verify", AuditVerifyView.as_view(), name="api-audit-verify"),
]
