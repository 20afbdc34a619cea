from django.apps import AppConfig


class HalcyonSiteConfig(AppConfig):
    """Installed for its management command `up`, which composes every other part."""

    name = "halcyon_site"
    verbose_name = "Halcyon"
