from django.apps import AppConfig
from django.db.models.signals import post_migrate


class FleetConfig(AppConfig):
    name = "fleet"
    verbose_name = "Fleet"

    def ready(self) -> None:
        from fleet.roles import create_groups

        post_migrate.connect(create_groups, dispatch_uid="fleet.create_groups")
