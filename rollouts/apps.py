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
        markers.register(selectors.markers)
