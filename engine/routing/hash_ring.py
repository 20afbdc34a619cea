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

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np
import xxhash

from engine.errors import require_range

_MASK = (1 << 32) - 1


class HashRing:
    """Nodes on a ring. `walk(key)` names them from the key's home on, each once."""

    __slots__ = ("_names", "_owners", "_points", "_positions", "_virtual_nodes")

    def __init__(self, nodes: Iterable[str] = (), *, virtual_nodes: int = 150) -> None:
        self._virtual_nodes = int(require_range("virtual_nodes", virtual_nodes, 1, 10_000))
        self._points: dict[str, bytes] = {}  # by node, as uint32
        self._names: list[str] = []
        self._positions = array("I")
        self._owners = array("I")  # of each position, an index into `_names`
        self.add(nodes)

    def __len__(self) -> int:
        return len(self._points)

    def __contains__(self, node: str) -> bool:
        return node in self._points

    @property
    def nodes(self) -> list[str]:
        """The names on the ring, sorted."""
        return list(self._names)

    def add(self, nodes: Iterable[str]) -> None:
        """Put nodes on the ring; those already there stay where they are."""
        fresh = [node for node in nodes if node not in self._points]
        self._points.update((node, self._hash(node)) for node in fresh)
        if fresh:
            self._arrange()

    def remove(self, nodes: Iterable[str]) -> None:
        """Take nodes off the ring; their keys go to the next node clockwise."""
        gone = [node for node in nodes if self._points.pop(node, None) is not None]
        if gone:
            self._arrange()

    def walk(self, key: str) -> Iterator[str]:
        """Every node once, from the key's home clockwise."""
        positions = self._positions
        size = len(positions)
        at = bisect_left(positions, xxhash.xxh3_64_intdigest(key.encode()) & _MASK)
        owners = self._owners
        names = self._names
        seen: set[int] = set()
        for step in range(size):
            owner = owners[(at + step) % size]
            if owner not in seen:
                yield names[owner]
                seen.add(owner)
                if len(seen) == len(names):
                    return

    def home(self, key: str, count: int = 1) -> list[str]:
        """The first `count` distinct nodes of a key."""
        return list(islice(self.walk(key), count))

    def _hash(self, node: str) -> bytes:
        return b"".join(
            xxhash.xxh3_128_digest(f"{node}\x00{number}".encode())
            for number in range(self._virtual_nodes)
        )

    def _arrange(self) -> None:
        names = sorted(self._points)
        points = np.frombuffer(b"".join(self._points[name] for name in names), dtype=">u4")
        owners = np.repeat(np.arange(len(names), dtype=np.uint32), self._virtual_nodes * 4)
        order = np.lexsort((owners, points))
        self._names = names
        self._positions = array("I", points[order].astype(np.uint32).tobytes())
        self._owners = array("I", owners[order].tobytes())
