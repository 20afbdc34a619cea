"""The dashboard's addresses: every view of the fleet has one, filters included.

Names of models, replicas and requests may hold slashes and dots: they travel quoted, and the
`path` converter takes what is between the page's prefix and its last slash.
"""

from django.urls import path

from fleet.dashboard.charting import charts
from fleet.dashboard.pages.engine import engine
from fleet.dashboard.pages.fleet import drain, replica, replicas, undrain
from fleet.dashboard.pages.models import model, models
from fleet.dashboard.pages.overview import overview
from fleet.dashboard.pages.requests import attempt, explain, requests
from fleet.dashboard.pages.search import search
from fleet.dashboard.pages.session import SignIn, SignOut
from fleet.dashboard.pages.system import system
from fleet.dashboard.pages.tenants import tenant, tenants

urlpatterns = [
    path("", overview, name="overview"),
    path("models/", models, name="models"),
    path("models/<path:name>/", model, name="model"),
    path("fleet/", replicas, name="fleet"),
    path("fleet/<path:replica_id>/drain/", drain, name="drain"),
    path("fleet/<path:replica_id>/undrain/", undrain, name="undrain"),
    path("fleet/<path:replica_id>/", replica, name="replica"),
    path("tenants/", tenants, name="tenants"),
    path("tenants/<path:name>/", tenant, name="tenant"),
    path("requests/", requests, name="requests"),
    path("requests/try/", attempt, name="try"),
    path("requests/<path:request_id>/", explain, name="request"),
    path("engine/", engine, name="engine"),
    path("system/", system, name="system"),
    path("search/", search, name="search"),
    path("charts/", charts, name="charts"),
    path("sign-in/", SignIn.as_view(), name="login"),
    path("sign-out/", SignOut.as_view(), name="logout"),
]
