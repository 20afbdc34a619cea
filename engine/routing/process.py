"""Is it still the same process that answers under this name?

A replica registers again and again under one id: as a heartbeat, with a new weight, or after
a restart. Only the last is news for what was learned. It shows in a new address, a new
version, or a start later than the one known by more than 2 s (reported ages are taken at
slightly different moments). What breaks without it: a replica that was restarted because it
was broken waits out the backoff of the process that died.
"""

from engine.types import ReplicaSpec

_SAME_PROCESS_MS = 2_000.0


class Process:
    """When the process behind a replica started, as far as anybody said."""

    __slots__ = ("_age_known", "_identity", "started_ms")

    def __init__(self, spec: ReplicaSpec, now_ms: float) -> None:
        self.started_ms = now_ms - 1000.0 * (spec.age_s or 0.0)
        self._age_known = spec.age_s is not None
        self._identity = (spec.address, spec.version)

    def is_replaced(self, spec: ReplicaSpec, now_ms: float) -> bool:
        """Take in a new registration; True where another process stands behind it."""
        identity = (spec.address, spec.version)
        replaced = identity != self._identity
        self._identity = identity
        if spec.age_s is not None:
            started_ms = now_ms - 1000.0 * spec.age_s
            replaced = replaced or started_ms > self.started_ms + _SAME_PROCESS_MS
            if replaced or not self._age_known:
                self.started_ms = started_ms
            self._age_known = True
        elif replaced:
            self.started_ms = now_ms
        return replaced
