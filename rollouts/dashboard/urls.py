"""Addresses of the rollout and history pages. With this module the two entries of the rail open."""

from django.urls import path, register_converter

from fleet.dashboard import nav
from fleet.live.facts import facts
from rollouts.dashboard import reading
from rollouts.dashboard.actions import act
from rollouts.dashboard.history_pages import event, export_csv, export_json, history
from rollouts.dashboard.pages import decision, rollout, rollouts
from rollouts.dashboard.start import preview, start


class Verb:
    """The four things that a person does to a rollout."""

    regex = "promote|abort|pause|resume"

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: str) -> str:
        return value


register_converter(Verb, "verb")

urlpatterns = [
    path("rollouts/", rollouts, name="rollouts"),
    path("rollouts/start/", start, name="rollout-start"),
    path("rollouts/preview/", preview, name="rollout-preview"),
    path("rollouts/<int:pk>/", rollout, name="rollout"),
    path("rollouts/<int:pk>/<int:seq>/", decision, name="decision"),
    path("rollouts/<int:pk>/<verb:verb>/", act, name="rollout-act"),
    path("history/", history, name="history"),
    path("history/<int:seq>/", event, name="event"),
    path("history.csv", export_csv, name="history-csv"),
    path("history.json", export_json, name="history-json"),
]

nav.open_page("rollouts")
nav.open_page("history")
facts.register("rollout_pages", reading.pages, every_s=2.0)
