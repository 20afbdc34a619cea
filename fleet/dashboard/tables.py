"""Live tables: columns declared once, rows as dictionaries of ready text.

The same column list draws the header, the first rows on the server and the rows that the
browser adds later, from one `<template>` row. A row is keyed by its id; `order` says how
rows stand, and the browser applies a new order only while the pointer is elsewhere.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Row = dict[str, Any]
Kind = Literal["text", "number", "link", "status", "badge", "bar", "spark", "code", "time"]


@dataclass(slots=True, frozen=True, kw_only=True)
class Column:
    """`href` may name other cells of the row in braces: `/fleet/{id}/`."""

    key: str
    title: str
    unit: str = ""
    kind: Kind = "text"
    href: str = ""
    hint: str = ""
    below: str = ""  # another cell, written small beneath this one
    wide_only: bool = False  # leaves the table on a narrow screen


@dataclass(slots=True, frozen=True, kw_only=True)
class Table:
    """A table's fixed part."""

    name: str
    caption: str
    columns: Sequence[Column]
    empty: str
    command: str = ""  # what would produce data


def body(rows: Iterable[Row], *, total: int | None = None, note: str = "") -> dict[str, Any]:
    """A table's changing part. Every row needs an `id`; unknown cells are left out."""
    ordered = list(rows)
    return {
        "order": [row["id"] for row in ordered],
        "rows": {
            row["id"]: {key: value for key, value in row.items() if value is not None}
            for row in ordered
        },
        "shown": len(ordered),
        "total": len(ordered) if total is None else total,
        "note": note,
    }
