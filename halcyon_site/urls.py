"""Every address of the web process. Each app brings its own table."""

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
    path("", include("rollouts.api.urls")),
    path("", include("rollouts.dashboard.urls")),
    path("", include("fleet.dashboard.urls")),
]

handler403 = "fleet.dashboard.pages.errors.forbidden"
handler404 = "fleet.dashboard.pages.errors.missing"
handler500 = "fleet.dashboard.pages.errors.broken"
