"""Everything a panel may look at in one tick, as one value.

Panels are pure functions of a scene: the first paint and the websocket call the same ones,
and a test builds a scene by hand.
"""

from dataclasses import dataclass

from fleet.live.facts import Facts
from fleet.live.feed import Feed
from fleet.live.rings import Rings
from fleet.live.samples import Samples
from fleet.live.state import LiveState


@dataclass(slots=True, frozen=True, kw_only=True)
class Scene:
    """One second of the fleet. Shared by every viewer: read, never written."""

    at_ms: int
    tick: int
    state: LiveState
    rings: Rings
    feed: Feed
    samples: Samples
    facts: Facts
    broker_failing_since_ms: int | None = None
    broker_error: str = ""
