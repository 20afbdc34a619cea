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
    size: int = PAGE_SIZE

    @property
    def first(self) -> int:
        return (self.number - 1) * self.size + 1 if self.total else 0

    @property
    def last(self) -> int:
        return self.first + len(self.items) - 1 if self.total else 0


def cut[T](items: Sequence[T], params: Mapping[str, str], size: int = PAGE_SIZE) -> Page[T]:
    """The page that `?page=` names; the nearest one where that lies outside."""
    pages = max((len(items) + size - 1) // size, 1)
    asked = params.get("page", "1")
    number = min(max(int(asked) if asked.isdecimal() and len(asked) < 9 else 1, 1), pages)
    return Page(items[(number - 1) * size : number * size], number, pages, len(items), size)


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
    ranks = [key(item) for item in items]
    known = [place for place, rank in enumerate(ranks) if rank is not None]
    known.sort(key=ranks.__getitem__, reverse=asked.startswith("-"))
    unknown = [item for item, rank in zip(items, ranks, strict=True) if rank is None]
    return [items[place] for place in known] + unknown


def matches(text: str, *haystacks: str | None) -> bool:
    """True where every word of the search is in one of the texts."""
    joined = " ".join(h for h in haystacks if h).lower()
    return all(word in joined for word in text.lower().split())
