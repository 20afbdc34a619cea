"""Signing in and out, and remembering nobody who asked not to be."""

from typing import Any

from django.contrib.auth.views import LoginView, LogoutView

from fleet.dashboard.page import chrome


class SignIn(LoginView):
    template_name = "registration/sign_in.html"
    redirect_authenticated_user = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs) | chrome(self.request) | {"title": "Sign in"}


class SignOut(LogoutView):
    next_page = "login"
