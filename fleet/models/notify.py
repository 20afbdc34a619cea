"""Database triggers that tell every gateway of a change: `NOTIFY halcyon_config, '<table>'`.

Triggers rather than Django's signals, so that `queryset.update()`, bulk writes and plain
SQL count too. PostgreSQL delivers at commit and folds equal notices of one transaction into
one, so ten thousand tenants in one transaction cost the gateways one reload.

The sequence `fleet_config_revision` grows with each change: it numbers snapshots. A sequence
is outside transactions, so a revision may be skipped, or be seen just before its change.
"""

import pgtrigger

CHANNEL = "halcyon_config"

_ROW = """
    PERFORM nextval('fleet_config_revision');
    PERFORM pg_notify('halcyon_config', TG_TABLE_NAME);
    RETURN NULL;
"""


def configuration_triggers(*, ignoring: tuple[str, ...] = ()) -> list[pgtrigger.Trigger]:
    """Notify on insert, delete, truncate, and on updates that touch more than `ignoring`."""
    return [
        pgtrigger.Trigger(
            name="notify_insert_delete",
            operation=pgtrigger.Insert | pgtrigger.Delete,
            when=pgtrigger.After,
            func=_ROW,
        ),
        pgtrigger.Trigger(
            name="notify_update",
            operation=pgtrigger.Update,
            when=pgtrigger.After,
            condition=pgtrigger.AnyChange(exclude=list(ignoring)),
            func=_ROW,
        ),
        pgtrigger.Trigger(
            name="notify_truncate",
            operation=pgtrigger.Truncate,
            when=pgtrigger.After,
            level=pgtrigger.Statement,
            func=_ROW,
        ),
    ]
