"""The OpenAPI document and a page to read it, with assets from this server only."""

from typing import Any

from django.utils.csp import CSP
from django.utils.decorators import method_decorator
from django.views.decorators.csp import csp_override
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.permissions import AllowAny

# Swagger UI draws its icons from data: URIs and sets style attributes. Scripts stay 'self'.
DOCS_CSP: dict[str, list[str]] = {
    "default-src": [CSP.SELF],
    "img-src": [CSP.SELF, "data:"],
    "style-src": [CSP.SELF],
    "style-src-attr": [CSP.UNSAFE_INLINE],
    "object-src": [CSP.NONE],
    "base-uri": [CSP.NONE],
    "frame-ancestors": [CSP.NONE],
}


class SchemaView(SpectacularAPIView):
    permission_classes = [AllowAny]
    authentication_classes: list[Any] = []


@method_decorator(csp_override(DOCS_CSP), name="dispatch")
class DocsView(SpectacularSwaggerSplitView):
    permission_classes = [AllowAny]
    authentication_classes: list[Any] = []
    template_name = "fleet/api_docs.html"
