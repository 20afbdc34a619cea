"""Every write of the fleet's configuration: one module a concept, one transaction a call.

Each service names its actor, checks what it is given, writes, and announces the change
(`fleet.events`), so that no door (admin, API, command, rollout) leaves history unwritten.
Bad values raise `engine.errors.InvalidInput` (or `UnknownName`), impossible moves `Conflict`.
"""

from fleet.services.catalog import create_model, create_version, remove_model, update_model
from fleet.services.conflict import Conflict
from fleet.services.keys import IssuedKey, issue_key, revoke_key
from fleet.services.presence import note_alive
from fleet.services.replicas import (
    Registration,
    default_concurrency,
    drain_replica,
    register_replica,
    remove_replica,
    undrain_replica,
)
from fleet.services.splits import clear_split, set_split
from fleet.services.tenants import create_tenant, remove_tenant, update_tenant
from fleet.services.tokens import IssuedToken, issue_token, revoke_token, verify_token

__all__ = [
    "Conflict",
    "IssuedKey",
    "IssuedToken",
    "Registration",
    "clear_split",
    "create_model",
    "create_tenant",
    "create_version",
    "default_concurrency",
    "drain_replica",
    "issue_key",
    "issue_token",
    "note_alive",
    "register_replica",
    "remove_model",
    "remove_replica",
    "remove_tenant",
    "revoke_key",
    "revoke_token",
    "set_split",
    "undrain_replica",
    "update_model",
    "update_tenant",
    "verify_token",
]
