"""The control API's addresses. Models and replicas may have a slash in their name."""

from django.urls import path

from fleet.api.views.access import TokensView, TokenView, WhoAmIView
from fleet.api.views.catalog import ModelsView, ModelView, SplitView, VersionsView
from fleet.api.views.metrics import MetricsView
from fleet.api.views.replicas import DrainView, RegisterView, ReplicasView, ReplicaView, UndrainView
from fleet.api.views.schema import DocsView, SchemaView
from fleet.api.views.state import StateView
from fleet.api.views.tenants import KeysView, KeyView, QuotaView, TenantsView, TenantView
from fleet.api.views.usage import UsageView

control = "v1/control"

urlpatterns = [
    path("v1/replicas/register", RegisterView.as_view(), name="api-register"),
    path(f"{control}/state", StateView.as_view(), name="api-state"),
    path(f"{control}/whoami", WhoAmIView.as_view(), name="api-whoami"),
    path(f"{control}/usage", UsageView.as_view(), name="api-usage"),
    path(f"{control}/models", ModelsView.as_view(), name="api-models"),
    path(f"{control}/models/<path:model>/versions", VersionsView.as_view(), name="api-versions"),
    path(f"{control}/models/<path:model>/split", SplitView.as_view(), name="api-split"),
    path(f"{control}/models/<path:model>", ModelView.as_view(), name="api-model"),
    path(f"{control}/replicas", ReplicasView.as_view(), name="api-replicas"),
    path(f"{control}/replicas/<path:replica>/drain", DrainView.as_view(), name="api-drain"),
    path(f"{control}/replicas/<path:replica>/undrain", UndrainView.as_view(), name="api-undrain"),
    path(f"{control}/replicas/<path:replica>", ReplicaView.as_view(), name="api-replica"),
    path(f"{control}/tenants", TenantsView.as_view(), name="api-tenants"),
    path(f"{control}/tenants/<str:tenant>", TenantView.as_view(), name="api-tenant"),
    path(f"{control}/tenants/<str:tenant>/quota", QuotaView.as_view(), name="api-quota"),
    path(f"{control}/tenants/<str:tenant>/keys", KeysView.as_view(), name="api-keys"),
    path(f"{control}/tenants/<str:tenant>/keys/<str:prefix>", KeyView.as_view(), name="api-key"),
    path(f"{control}/tokens", TokensView.as_view(), name="api-tokens"),
    path(f"{control}/tokens/<str:prefix>", TokenView.as_view(), name="api-token"),
    path("metrics", MetricsView.as_view(), name="metrics"),
    path("api/schema/", SchemaView.as_view(), name="schema"),
    path("api/docs/", DocsView.as_view(url_name="schema"), name="api-docs"),
]
