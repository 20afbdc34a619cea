"""How rollouts and decisions read and are written."""

from typing import Any

from rest_framework import serializers

from fleet.api.fields import FiniteFloat, StrictBoolean, StrictSerializer, StrictText, name_field
from rollouts.selectors import Status, active_rollouts


class RolloutStartSerializer(StrictSerializer):
    model = name_field()
    version = name_field(help_text="the canary; must have a ready replica")
    policy = serializers.DictField(
        required=False,
        default=dict,
        help_text="steps, intervalS, sloMs, ...: docs/reference/rollout-policy.md. All optional.",
    )
    shadow = StrictBoolean(
        required=False, default=False, help_text="copy the share, throw the answers away"
    )
    supersede = StrictBoolean(
        required=False, default=False, help_text="end what is under way for this model"
    )
    reason = StrictText(max_length=500, help_text="kept in the history")


class ReasonRequiredSerializer(StrictSerializer):
    reason = StrictText(max_length=500, help_text="kept in the history")


class RolloutSerializer(StrictSerializer):
    """Where a rollout is, and why. null means that there is nothing to say yet."""

    id = serializers.IntegerField()
    model = serializers.CharField()
    baseline = serializers.CharField()
    canary = serializers.CharField()
    shadow = serializers.BooleanField()
    phase = serializers.CharField()
    active = serializers.BooleanField()
    step = serializers.IntegerField(help_text="index into steps")
    steps = serializers.ListField(child=FiniteFloat())
    percent = FiniteFloat()
    intervalS = serializers.IntegerField(source="interval_s")
    streaks = serializers.SerializerMethodField()
    stepWindows = serializers.IntegerField(source="step_windows")
    verdict = serializers.CharField(help_text="such as hold:no_data; empty before the first")
    reason = serializers.CharField()
    text = serializers.CharField()
    evidence = serializers.DictField(help_text="the numbers that the last verdict compared")
    decidedAt = serializers.DateTimeField(source="decided_at", allow_null=True)
    nextEvaluationAt = serializers.DateTimeField(source="next_evaluation_at", allow_null=True)
    overdueS = FiniteFloat(
        source="overdue_s", allow_null=True, help_text="set where no worker judges"
    )
    startedAt = serializers.DateTimeField(source="started_at")
    startedBy = serializers.CharField(source="started_by")
    startReason = serializers.CharField(source="start_reason")
    endedAt = serializers.DateTimeField(source="ended_at", allow_null=True)
    decisions = serializers.IntegerField()
    supersededBy = serializers.IntegerField(source="superseded_by", allow_null=True)

    def get_streaks(self, status: Any) -> dict[str, int]:
        return {"healthy": status.healthy, "unhealthy": status.unhealthy}


def document_of(status: Status) -> dict[str, Any]:
    """A rollout as the control API and the command line's `--json` show it."""
    return dict(RolloutSerializer(status).data)


def active_documents() -> list[dict[str, Any]]:
    """Every rollout under way, for `GET /v1/control/state`."""
    return [document_of(status) for status in active_rollouts()]


class DecisionSerializer(StrictSerializer):
    """A judged window with everything that the judge saw."""

    rollout = serializers.IntegerField()
    seq = serializers.IntegerField()
    at = serializers.DateTimeField()
    windowStart = serializers.DateTimeField()
    windowEnd = serializers.DateTimeField()
    act = serializers.CharField()
    reason = serializers.CharField()
    verdict = serializers.CharField()
    step = serializers.IntegerField()
    percentBefore = FiniteFloat()
    percent = FiniteFloat()
    text = serializers.CharField()
    counts = serializers.DictField()
    facts = serializers.DictField()
    calibration = serializers.DictField(allow_null=True)
    resumed = serializers.BooleanField()
    numbers = serializers.DictField()
    digest = serializers.CharField()
    previousDigest = serializers.CharField()
