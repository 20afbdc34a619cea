"""The dashboard's addresses: every view of the fleet has one, filters included."""

from django.urls import path

from fleet.dashboard.pages.overview import overview
from fleet.dashboard.pages.session import SignIn, SignOut

urlpatterns = [
    path("", overview, name="overview"),
    path("sign-in/", SignIn.as_view(), name="login"),
    path("sign-out/", SignOut.as_view(), name="logout"),
]
