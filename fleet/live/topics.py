"""What a browser may watch: named documents, made once a tick however many watch them.

A topic has two functions of (scene, parameters): `live` gives the document that changes,
`once` what only a fresh page needs (series, which the browser then continues by itself).
The parameters are the page's own query string, so the first paint and the feed filter alike.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from fleet.live.deltas import Document, diff
from fleet.live.scene import Scene

Params = Mapping[str, str]
Builder = Callable[[Scene, Params], Document]


@dataclass(slots=True, frozen=True)
class Topic:
    name: str
    live: Builder
    once: Builder


def nothing(_scene: Scene, _params: Params) -> Document:
    """For topics without series."""
    return {}


_topics: dict[str, Topic] = {}


def register(name: str, live: Builder, once: Builder = nothing) -> None:
    """Make a document watchable under `name`."""
    _topics[name] = Topic(name, live, once)


def known(name: str) -> bool:
    return name in _topics


def names() -> list[str]:
    return sorted(_topics)


def document(scene: Scene, topic: str, params: Params) -> Document:
    """The document of a first paint, outside of any edition."""
    return _topics[topic].live(scene, params)


def once(scene: Scene, topic: str, params: Params) -> Document:
    """What a fresh page needs beside the document."""
    return _topics[topic].once(scene, params)


@dataclass(slots=True, frozen=True)
class Edition:
    """A topic's document at one tick. Viewers share it, and compare by identity."""

    tick: int
    at_ms: int
    document: Document


class Press:
    """Prints each edition once, and each patch between two editions once."""

    def __init__(self) -> None:
        self._tick = -1
        self._editions: dict[tuple[str, frozenset[tuple[str, str]]], Edition] = {}
        self._patches: dict[tuple[int, int], bytes] = {}

    def edition(self, scene: Scene, topic: str, params: Params) -> Edition:
        """This tick's document."""
        self._turn(scene.tick)
        key = (topic, frozenset(params.items()))
        edition = self._editions.get(key)
        if edition is None:
            document = _topics[topic].live(scene, params)
            edition = self._editions[key] = Edition(scene.tick, scene.at_ms, document)
        return edition

    def patch(self, old: Edition, new: Edition) -> bytes:
        """The encoded merge patch from one edition to a later one."""
        key = (id(old), id(new))
        encoded = self._patches.get(key)
        if encoded is None:
            encoded = self._patches[key] = encode(diff(old.document, new.document))
        return encoded

    def _turn(self, tick: int) -> None:
        if tick != self._tick:
            self._tick = tick
            self._editions.clear()
            self._patches.clear()


def encode(document: Any) -> bytes:
    """JSON, with dates and numbers as msgspec writes them."""
    return msgspec.json.encode(document)


press = Press()
