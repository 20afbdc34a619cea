"""The nine pages in the order of the rail, and the keys that lead to them.

Apps above this one add theirs in `ready()`; the order of the rail is fixed here.
"""

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Entry:
    key: str
    title: str
    href: str
    shortcut: str  # after `g`
    available: bool = True


_ORDER = [
    Entry("overview", "Overview", "/", "o"),
    Entry("models", "Models", "/models/", "m"),
    Entry("fleet", "Fleet", "/fleet/", "f"),
    Entry("rollouts", "Rollouts", "/rollouts/", "r", available=False),
    Entry("history", "History", "/history/", "h", available=False),
    Entry("tenants", "Tenants", "/tenants/", "t"),
    Entry("requests", "Requests", "/requests/", "q"),
    Entry("engine", "Engine", "/engine/", "e"),
    Entry("system", "System", "/system/", "s"),
]


def open_page(key: str) -> None:
    """Show a page whose app is installed."""
    for index, entry in enumerate(_ORDER):
        if entry.key == key:
            _ORDER[index] = Entry(entry.key, entry.title, entry.href, entry.shortcut)


def entries() -> list[Entry]:
    return [entry for entry in _ORDER if entry.available]
