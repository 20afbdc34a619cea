from typing import Any

from django.apps import AppConfig


class RolloutsConfig(AppConfig):
    name = "rollouts"
    verbose_name = "Rollouts and history"

    def ready(self) -> None:
        from fleet.dashboard import markers
        from fleet.events import register_listener
        from fleet.live.facts import facts
        from rollouts import selectors
        from rollouts.audit import record_change

        register_listener(record_change)
        facts.register("rollouts", selectors.summaries, every_s=1.0)
        facts.register("rollout states", _documents, every_s=3600.0)  # asked, not polled
        markers.register(selectors.markers)


def _documents() -> list[dict[str, Any]]:
    """As the control API shows them; REST framework is loaded when somebody asks."""
    from rollouts.api.serializers.rollouts import active_documents

    return active_documents()
