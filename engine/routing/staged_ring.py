"""Changing the ring without a storm: newcomers in groups, leavers after a grace.

Each node that joins takes keys from all others, and each of those keys arrives somewhere
cold. A fleet doubled at once is a fleet with half of its caches empty at once; a replica
that flaps moves its keys twice a minute. So

    a stage adds at most a quarter of the ring (at least one node), then 10 s of quiet
    a node that vanished stays on the ring for 30 s: its keys spill, and come home with it

The first nodes ever seen all go on at once: nothing is warm yet.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

from engine.errors import require_range
from engine.routing.hash_ring import HashRing


@dataclass(slots=True, frozen=True, kw_only=True)
class RingConfig:
    virtual_nodes: int = 150
    group_ratio: float = 0.25
    cooldown_ms: float = 10_000.0
    grace_ms: float = 30_000.0

    def __post_init__(self) -> None:
        require_range("virtual_nodes", self.virtual_nodes, 1, 10_000)
        require_range("group_ratio", self.group_ratio, 0.01, 1.0)
        require_range("cooldown_ms", self.cooldown_ms, 0.0, unit="ms")
        require_range("grace_ms", self.grace_ms, 0.0, unit="ms")


class StagedRing:
    """A ring that follows the wanted membership at its own pace."""

    __slots__ = ("_config", "_gone_ms", "_next_ms", "_ring", "_wanted", "stages")

    def __init__(self, config: RingConfig) -> None:
        self._config = config
        self._ring = HashRing(virtual_nodes=config.virtual_nodes)
        self._wanted: dict[str, None] = {}
        self._gone_ms: dict[str, float] = {}
        self._next_ms: float | None = None  # None: nothing is pending
        self.stages = 0

    def want(self, nodes: Iterable[str], now_ms: float) -> None:
        """These should be on the ring. Nothing moves yet."""
        wanted = dict.fromkeys(nodes)
        if wanted == self._wanted:
            return
        self._wanted = wanted
        ring = self._ring
        self._gone_ms = {
            node: self._gone_ms.get(node, now_ms) for node in ring.nodes if node not in wanted
        }
        if self._next_ms is None:
            self._next_ms = now_ms

    def current(self, now_ms: float) -> HashRing:
        """The ring to use now; takes the next stage where one is due."""
        if self._next_ms is not None and now_ms >= self._next_ms:
            self._stage(now_ms)
        return self._ring

    @property
    def pending(self) -> int:
        """How many nodes wait to join."""
        return sum(1 for node in self._wanted if node not in self._ring)

    def _stage(self, now_ms: float) -> None:
        config = self._config
        ring = self._ring
        size = len(ring)
        joining = [node for node in self._wanted if node not in ring]
        if size > 0:
            joining = joining[: max(1, ceil(size * config.group_ratio))]
        leaving = [node for node, at in self._gone_ms.items() if now_ms - at >= config.grace_ms]
        ring.add(joining)
        ring.remove(leaving)
        for node in leaving:
            del self._gone_ms[node]
        if joining or leaving:
            self.stages += 1
            self._next_ms = now_ms + config.cooldown_ms
        else:
            self._next_ms = None
        if not joining and not leaving and self._gone_ms:
            self._next_ms = min(self._gone_ms.values()) + config.grace_ms
