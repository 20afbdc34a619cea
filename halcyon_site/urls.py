"""Every address of the web process. Each app brings its own table."""

from importlib.util import find_spec

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path

from halcyon_site.health import healthz, readyz

admin.site.site_header = "Halcyon"
admin.site.site_title = "Halcyon"
admin.site.index_title = "Tenants, keys, quotas and models"

urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("admin/", admin.site.urls),
    path("", include("fleet.api.urls")),
]
urlpatterns += [
    path("", include(table))
    for table in (
        "rollouts.urls",
        "rollouts.api.urls",
        "rollouts.dashboard.urls",
        "fleet.dashboard.urls",
    )
    if find_spec(table.split(".")[0]) and find_spec(table.rsplit(".", 1)[0]) and find_spec(table)
]

handler403 = "fleet.dashboard.pages.errors.forbidden"
handler404 = "fleet.dashboard.pages.errors.missing"
handler500 = "fleet.dashboard.pages.errors.broken"
