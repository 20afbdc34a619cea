"""Filter, order and cut a long live list by what the query string says.

Filters live in the URL, so that a link shows the same rows to whoever opens it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PAGE_SIZE = 50


@dataclass(slots=True, frozen=True)
class Page[T]:
    items: Sequence[T]
    number: int
    pages: int
    total: int

    @property
    def first(self) -> int:
        return (self.number - 1) * PAGE_SIZE + 1 if self.total else 0

    @property
    def last(self) -> int:
        return self.first + len(self.items) - 1 if self.total else 0


def cut[T](items: Sequence[T], params: Mapping[str, str], size: int = PAGE_SIZE) -> Page[T]:
    """The page that `?page=` names; the nearest one where that lies outside."""
    pages = max((len(items) + size - 1) // size, 1)
    asked = params.get("page", "1")
    number = min(max(int(asked) if asked.isdecimal() and len(asked) < 9 else 1, 1), pages)
    return Page(items[(number - 1) * size : number * size], number, pages, len(items))


def ordered[T](
    items: Sequence[T],
    params: Mapping[str, str],
    keys: Mapping[str, Callable[[T], Any]],
    default: str,
) -> list[T]:
    """Sorted by `?sort=`; a leading minus turns the order round. What is unknown goes last."""
    asked = params.get("sort", default)
    name = asked.removeprefix("-")
    if name not in keys:
        asked = default
        name = default.removeprefix("-")
    key = keys[name]
    known = [item for item in items if key(item) is not None]
    unknown = [item for item in items if key(item) is None]
    return sorted(known, key=key, reverse=asked.startswith("-")) + unknown


def matches(text: str, *haystacks: str | None) -> bool:
    """True where every word of the search is in one of the texts."""
    joined = " ".join(h for h in haystacks if h).lower()
    return all(word in joined for word in text.lower().split())
