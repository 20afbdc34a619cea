"""Requests: the sampled ones, one explained, and a form to try one."""

import json
import time
from typing import Any

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST

from fleet.dashboard import columns, gateways
from fleet.dashboard.page import look, paint, signed_in
from fleet.dashboard.panels import requests as panel
from fleet.dashboard.twins import GATEWAY, Twin
from fleet.live.pulse import pulse
from fleet.roles import Role

SLACK_S = 3.0  # beyond the deadline, before the dashboard itself gives up


class TryForm(forms.Form):
    """A request as a client would send it. The key is used once and never stored."""

    key = forms.CharField(
        label="API key", widget=forms.PasswordInput(attrs={"autocomplete": "off"}), max_length=200
    )
    model = forms.CharField(max_length=128)
    text = forms.CharField(
        label="Input", widget=forms.Textarea(attrs={"rows": 3}), max_length=20_000
    )
    deadline_ms = forms.IntegerField(
        label="Deadline, ms", min_value=10, max_value=600_000, initial=2000
    )
    max_output_tokens = forms.IntegerField(
        label="Output tokens, at most", min_value=1, max_value=8192, initial=64
    )


@signed_in
def requests(request: HttpRequest) -> HttpResponse:
    sight = look(request, "requests")
    names = [model["model"] for model in sight.scene.state["models"]]
    return paint(
        request,
        "dashboard/requests.html",
        title="Requests",
        page="requests",
        topic="requests",
        sight=sight,
        twin=Twin("manage.py explain REQUEST_ID", f"{GATEWAY}/v1/requests/REQUEST_ID/explain"),
        table=columns.REQUESTS,
        pages=panel.page_of(sight.scene, sight.params),
        form=TryForm(initial={"model": names[0] if names else ""}),
        models=names,
    )


@signed_in
def explain(request: HttpRequest, request_id: str) -> HttpResponse:
    record = pulse.scene().samples.get(request_id) or gateways.explain(request_id)
    if record is None:
        raise Http404(
            f"No gateway remembers request {request_id[:80]}: decision records are kept for "
            "recent requests only, in the memory of the gateway that took it."
        )
    sight = look(request, "request", id=request_id)
    return paint(
        request,
        "dashboard/request.html",
        title=request_id,
        page="requests",
        topic="request",
        sight=sight,
        twin=Twin(f"manage.py explain {request_id}", f"{GATEWAY}/v1/requests/{request_id}/explain"),
        record=record,
        row=panel.request_row(record),
        fall=panel.waterfall(record),
        steps=panel.steps(record),
        remedy=panel.remedy(record),
        raw=json.dumps(record, indent=2, ensure_ascii=False, default=str),
    )


def _attempt(request: HttpRequest) -> HttpResponse:
    form = TryForm(request.POST)
    context: dict[str, Any] = {"form": form}
    if form.is_valid():
        context |= _send(form.cleaned_data)
    status = 200 if form.is_valid() else 422
    return render(request, "dashboard/parts/tried.html", context, status=status)


def _send(asked: dict[str, Any]) -> dict[str, Any]:
    body = {
        "model": asked["model"],
        "input": asked["text"],
        "deadlineMs": asked["deadline_ms"],
        "maxOutputTokens": asked["max_output_tokens"],
    }
    began = time.monotonic()
    answer = gateways.ask(
        f"{gateways.addresses()[0]}/v1/infer",
        body=json.dumps(body).encode(),
        headers={"x-api-key": asked["key"]},
        timeout_s=asked["deadline_ms"] / 1000 + SLACK_S,
    )
    said = answer.body if isinstance(answer.body, dict) else {}
    error = said.get("error") if isinstance(said.get("error"), dict) else None
    return {
        "answer": answer,
        "took_ms": round((time.monotonic() - began) * 1000),
        "request_id": (error or said).get("requestId"),
        "error": error,
        "pretty": json.dumps(answer.body, indent=2, ensure_ascii=False)
        if answer.body is not None
        else answer.text,
    }


attempt = require_POST(signed_in(_attempt, least=Role.OPERATOR))
