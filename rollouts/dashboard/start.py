"""Starting a rollout from a form: choices that exist, errors at their field, a preview."""

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from engine.errors import InvalidInput
from engine.rollout.capacity import largest_ratio, replicas_needed
from fleet.dashboard.format import percent, plural, seconds
from fleet.dashboard.page import look, paint, signed_in
from fleet.dashboard.twins import Twin
from fleet.live.scene import Scene
from fleet.models import Model, ModelVersion
from fleet.roles import Role
from fleet.services import Conflict
from rollouts import services
from rollouts.audit import origin
from rollouts.capacity import capacity_facts
from rollouts.dashboard import panels as _topics  # noqa: F401  registers the topics
from rollouts.policy import FIELDS, Policy, read_policy
from rollouts.selectors import preview as what_it_means

SHOWN_FIELDS = (
    "intervalS",
    "toleratedSlowdownPercent",
    "nonInferiorityPercent",
    "failureAllowancePercent",
    "sloMs",
    "maxWaitS",
)
WRITTEN = {field.name: field for field in FIELDS}
CAPACITY_SPAN_S = 30.0


class StartForm(forms.Form):
    """The policy's common fields; every other keeps its default and is set by API or CLI."""

    model = forms.ModelChoiceField(Model.objects.order_by("name"), to_field_name="name")
    version = forms.CharField(max_length=128, label="Canary version")
    steps = forms.CharField(
        initial="1, 5, 25, 50, 100", help_text="shares of the canary in per cent, ascending"
    )
    shadow = forms.BooleanField(
        required=False, help_text="copy the share to the canary and drop its answers"
    )
    supersede = forms.BooleanField(
        required=False, help_text="end a rollout of this model that is under way"
    )
    reason = forms.CharField(widget=forms.Textarea(attrs={"rows": 2}), max_length=300)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in SHOWN_FIELDS:
            field = WRITTEN[name]
            unit = f", {field.unit}" if field.unit else ""
            self.fields[name] = forms.FloatField(
                required=False,
                initial=field.default,
                label=f"{_spoken(name)}{unit}",
                help_text=field.help,
            )

    def clean_steps(self) -> list[float]:
        try:
            return [float(part) for part in self.cleaned_data["steps"].replace("%", "").split(",")]
        except ValueError:
            raise forms.ValidationError("write percentages with commas: 1, 5, 25, 100") from None

    def policy(self) -> dict[str, Any]:
        """The policy as it is written, without what was left empty."""
        given = {name: self.cleaned_data.get(name) for name in ("steps", *SHOWN_FIELDS)}
        return {name: value for name, value in given.items() if value is not None}

    def read(self) -> Policy | None:
        """The policy read; what is wrong with it stands at its field."""
        try:
            return read_policy(self.policy(), slo_ms=self.cleaned_data["model"].slo_ms)
        except InvalidInput as error:
            self.add_error(error.field if error.field in self.fields else None, error.remedy)
            return None

    @property
    def policy_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in SHOWN_FIELDS]


def _spoken(name: str) -> str:
    spaced = "".join(f" {c.lower()}" if c.isupper() else c for c in name)
    for suffix in (" percent", " ms", " s"):
        spaced = spaced.removesuffix(suffix)
    return spaced.capitalize().replace("Slo", "SLO").replace("Non inferiority", "Non-inferiority")


def _start(request: HttpRequest) -> HttpResponse:
    form = StartForm(request.POST or None, initial={"model": request.GET.get("model")})
    if request.method == "POST" and form.is_valid() and form.read() is not None:
        given = form.cleaned_data
        try:
            with origin(request.META.get("REMOTE_ADDR", "")):
                rollout = services.start(
                    given["model"].name,
                    given["version"],
                    actor=request.user.get_username(),
                    reason=given["reason"],
                    policy=form.policy(),
                    shadow=given["shadow"],
                    supersede_active=given["supersede"],
                )
        except InvalidInput as error:
            form.add_error(error.field if error.field in form.fields else None, error.remedy)
        except Conflict as error:
            form.add_error(None, str(error))
        else:
            messages.success(
                request, f"{rollout.canary} has {rollout.percent:g} % of {rollout.model} now."
            )
            return redirect("rollout", rollout.pk)
    return paint(
        request,
        "rollouts/start.html",
        title="Start a rollout",
        page="rollouts",
        topic="history",
        sight=look(request, "history"),
        twin=Twin(
            "manage.py rollout start MODEL VERSION --steps 1,5,25,50,100 --reason WHY",
            "/v1/control/rollouts",
        ),
        status=422 if form.errors else 200,
        form=form,
        versions=ModelVersion.objects.select_related("model").order_by("model__name", "name"),
    )


def _preview(request: HttpRequest) -> HttpResponse:
    """What a start would mean, as the form stands. An incomplete form previews nothing."""
    form = StartForm(request.GET)
    form.fields["reason"].required = False
    lines: list[str] = []
    if form.is_valid() and (policy := form.read()) is not None:
        from fleet.live.pulse import pulse

        lines = foresee(pulse.scene(), form.cleaned_data, policy)
    errors = [f"{form[name].label if name in form.fields else ''}: {e[0]}".lstrip(": ")
              for name, e in form.errors.items() if name not in ("version", "model")]  # fmt: skip
    return render(request, "rollouts/preview.html", {"lines": lines, "errors": errors})


def foresee(scene: Scene, given: dict[str, Any], policy: Policy) -> list[str]:
    """The first step's traffic, the time to full traffic at best, and what capacity carries."""
    model, version = given["model"], given["version"]
    split = getattr(model, "split", None)
    if split is None:
        return [f"{model.name} has no stable version yet: set its split first."]
    baseline, steps = split.baseline.name, policy.rules.steps
    offered = sum(
        v["ratePerS"] for m in scene.state["models"] if m["model"] == model.name
        for v in m["versions"]
    )  # fmt: skip
    rate = f", {offered * steps[0]:.1f}/s," if offered else ""
    lines = [f"At once {steps[0]:.0%} of sessions{rate} go from {baseline} to {version}."]
    facts = capacity_facts(
        model.name, baseline, version, [], CAPACITY_SPAN_S, timezone.now(), policy.rules.slo_ms
    )
    if not facts.canary_ready:
        return [*lines, f"{version} has no ready replica: it cannot be started."]
    known = type(facts)(
        canary_ready=facts.canary_ready,
        canary_per_s=facts.canary_per_s,
        offered_per_s=offered or None,
    )
    ready = plural(facts.canary_ready, "ready replica")
    carried = largest_ratio(known, policy.rules)
    if carried is None:
        lines.append(f"{version} has {ready}; what they carry is not known before they serve.")
    else:
        text = f"{version} has {ready}, which carry {percent(carried, digits=0)} % of the traffic"
        first_short = next((step for step in steps if step > carried + 1e-9), None)
        if first_short is not None:
            needed = replicas_needed(first_short, known, policy.rules)
            text += f": the step to {first_short:.0%} will wait"
            text += f" for {plural(needed, 'replica')}" if needed else ""
        lines.append(f"{text}.")
    meant = what_it_means(policy.written, slo_ms=policy.rules.slo_ms)
    soonest = seconds(meant.soonest_s)
    return [*lines, *meant.sentences[1:], f"At the soonest it is promoted after {soonest}."]


start = signed_in(_start, least=Role.OPERATOR)
preview = signed_in(_preview, least=Role.OPERATOR)
