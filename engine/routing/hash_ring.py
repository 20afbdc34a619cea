"""Where does a key live? A consistent-hash ring: few keys move when a replica comes or goes.

A node has 150 virtual nodes of 4 points each, on a ring of 2^32; a key lives at the node that
owns the next point clockwise, and its second home is the next *distinct* node. Each virtual
node's four points are the quarters of one 128-bit hash, as in ketama. The spread of a node's
share is 1/sqrt(points): 8 % with 150 points, so that one node in a hundred would take over
1.2 x its share; 4 % with 600, where one in a million does.

The ring depends on the set of names alone, not on the order in which they came: gateways
that see replicas register in different orders agree on every key. The hash is xxh3, whose
value does not depend on the process (Python's own `hash` does).
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator

import xxhash

from engine.errors import require_range

_MASK = (1 << 32) - 1
_QUARTERS = (0, 32, 64, 96)


class HashRing:
    """Nodes on a ring. `walk(key)` names them from the key's home on, each once."""

    __slots__ = ("_entries", "_names", "_positions", "_virtual_nodes")

    def __init__(self, nodes: Iterable[str] = (), *, virtual_nodes: int = 150) -> None:
        self._virtual_nodes = int(require_range("virtual_nodes", virtual_nodes, 1, 10_000))
        self._names: dict[str, None] = {}
        self._entries: list[tuple[int, str]] = []
        self._positions: list[int] = []
        self.add(nodes)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, node: str) -> bool:
        return node in self._names

    @property
    def nodes(self) -> list[str]:
        return list(self._names)

    def add(self, nodes: Iterable[str]) -> None:
        """Put nodes on the ring; those already there stay where they are."""
        fresh = [node for node in dict.fromkeys(nodes) if node not in self._names]
        if not fresh:
            return
        for node in fresh:
            self._names[node] = None
            self._entries.extend((position, node) for position in self._points(node))
        self._entries.sort()
        self._positions = [position for position, _ in self._entries]

    def remove(self, nodes: Iterable[str]) -> None:
        """Take nodes off the ring; their keys go to the next node clockwise."""
        gone = {node for node in nodes if node in self._names}
        if not gone:
            return
        for node in gone:
            del self._names[node]
        self._entries = [entry for entry in self._entries if entry[1] not in gone]
        self._positions = [position for position, _ in self._entries]

    def walk(self, key: str) -> Iterator[str]:
        """Every node once, from the key's home clockwise."""
        entries = self._entries
        if not entries:
            return
        start = bisect_left(self._positions, xxhash.xxh3_64_intdigest(key.encode()) & _MASK)
        seen: set[str] = set()
        nodes = len(self._names)
        size = len(entries)
        for step in range(size):
            node = entries[(start + step) % size][1]
            if node not in seen:
                yield node
                seen.add(node)
                if len(seen) == nodes:
                    return

    def home(self, key: str, count: int = 1) -> list[str]:
        """The first `count` distinct nodes of a key."""
        homes: list[str] = []
        for node in self.walk(key):
            homes.append(node)
            if len(homes) >= count:
                break
        return homes

    def _points(self, node: str) -> Iterator[int]:
        for number in range(self._virtual_nodes):
            digest = xxhash.xxh3_128_intdigest(f"{node}\x00{number}".encode())
            for shift in _QUARTERS:
                yield (digest >> shift) & _MASK
