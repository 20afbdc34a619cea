"""The hook by which a change of the fleet becomes a row of somebody's history.

`fleet` may not import `rollouts`, which owns the audit. So every service announces what it
did as a `Change`, inside its own transaction, and whoever registered listens:

    fleet.events.register_listener(write_audit_row)      # in AppConfig.ready()

A listener that raises takes the change down with it: what cannot be recorded does not
happen. Listeners must therefore be quick and speak to the database only.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction


@dataclass(slots=True, frozen=True, kw_only=True)
class Change:
    """One thing that was done. `before` and `after` hold only what differs (None: was absent).

    `action` is `<kind>.<verb>`: replica.registered, replica.moved, replica.drained,
    tenant.changed, key.issued, key.revoked, split.changed, token.issued, ...
    """

    action: str
    kind: str  # model | version | replica | tenant | key | split | token
    subject: str
    actor: str
    reason: str = ""
    model: str | None = None
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


Listener = Callable[[Change], None]
_listeners: list[Listener] = []


def register_listener(listener: Listener) -> None:
    """Call `listener` with each change, in the same transaction. Registering twice is once."""
    if listener not in _listeners:
        _listeners.append(listener)


def unregister_listener(listener: Listener) -> None:
    if listener in _listeners:
        _listeners.remove(listener)


def announce(change: Change) -> None:
    """Tell every listener. Must be called inside the transaction that makes the change."""
    if not transaction.get_connection().in_atomic_block:
        raise RuntimeError(f"{change.action} was announced outside a transaction")
    for listener in tuple(_listeners):
        listener(change)
