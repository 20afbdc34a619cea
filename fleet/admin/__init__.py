"""The stock admin, made comfortable: one module a concept.

Whatever is saved here is announced like any other change (`fleet.events`), so the history
has no back door. Keys and tokens are shown once, on the page that answers their creation.
Evidence and usage are read-only.
"""

from fleet.admin import access, catalog, evidence, replicas, tenants

__all__ = ["access", "catalog", "evidence", "replicas", "tenants"]
