"""The series of a page's charts for any range: for its first paint and for each refresh.

A page registers a builder per topic; `GET /charts/?topic=...&range=...` answers with the same
arrays that the first paint carried. The live range is streamed and needs no builder, but for
what is not in the live feed.
"""

from collections.abc import Callable, Mapping
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse

from fleet.dashboard import ranges
from fleet.dashboard.page import signed_in
from fleet.dashboard.ranges import Range

Builder = Callable[[Range, Mapping[str, str]], dict[str, Any]]

_builders: dict[str, Builder] = {}


def register(topic: str, builder: Builder) -> None:
    _builders[topic] = builder


def charts_for(topic: str, params: Mapping[str, str]) -> dict[str, Any]:
    """Series by chart name; nothing where the live feed draws the page."""
    builder = _builders.get(topic)
    return builder(ranges.chosen(params), params) if builder else {}


@signed_in
def charts(request: HttpRequest) -> HttpResponse:
    topic = request.GET.get("topic", "")
    if topic not in _builders:
        raise Http404(f"No charts are known under the topic {topic!r}.")
    return JsonResponse({"charts": charts_for(topic, request.GET.dict())})
