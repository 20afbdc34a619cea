"""Is everything as it should be, and if not: what, so what, and what now?

    findings = examine()       # never raises: a check that cannot be made is a finding

`surroundings` looks at servers and settings, `processes` at what runs, `fleet` at what is
configured. The words are the dashboard's: healthy, degraded, down, unknown.
"""

from collections.abc import Callable, Iterator

from django.db import DatabaseError

from fleet.doctor import configuration, processes, surroundings
from fleet.doctor.finding import Finding, Word

__all__ = ["Finding", "Word", "examine"]

WITHOUT_DATABASE: tuple[tuple[str, Callable[[], Iterator[Finding]]], ...] = (
    ("settings", surroundings.settings_are_safe),
    ("disk", surroundings.disk),
    ("broker", surroundings.broker),
    ("gateway", processes.gateway),
    ("web", processes.web),
)
WITH_DATABASE: tuple[tuple[str, Callable[[], Iterator[Finding]]], ...] = (
    ("migrations", surroundings.migrations),
    ("triggers", surroundings.triggers),
    ("clock", surroundings.clock),
    ("beat", processes.beat),
    ("gateways", processes.gateways),
    ("replicas", processes.replicas),
    ("traffic", configuration.every_model_is_served),
    ("keys", configuration.somebody_may_ask),
)


def examine() -> list[Finding]:
    """Every finding, in the order in which things depend on each other."""
    findings = list(_guarded("database", surroundings.database))
    checks = WITHOUT_DATABASE
    if findings[0].word == "healthy":
        checks += WITH_DATABASE
    for name, check in checks:
        findings += _guarded(name, check)
    return findings


def _guarded(name: str, check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    try:
        yield from check()
    except (DatabaseError, OSError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        yield Finding(
            name,
            "unknown",
            f"could not be checked: {reason}",
            "It may be well or not.",
            "Repair what is named above, then ask again.",
        )
