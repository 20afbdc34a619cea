"""Members of a batch that failed whole, which may only ride with their own half.

A batch that fails whole may hold one poisonous request. Its halves are tried apart, once:
mixing them with strangers would spread the poison, and retrying the whole would repeat it.
Halves leave before anything else, for their time is already half spent.
"""

from engine.batching.form import Draft
from engine.batching.former import Device, Queued


class Halves:
    """Queued entries by their split group."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[int, list[Queued]] = {}

    def put(self, entry: Queued) -> None:
        assert entry.split_group is not None
        entry.slot = self
        self._groups.setdefault(entry.split_group, []).append(entry)

    def form(self, device: Device, now_ms: float) -> Draft | None:
        """The first group of which this device can take somebody, or None."""
        if not self._groups:
            return None
        self.compact()
        for members in self._groups.values():
            draft = Draft(device, now_ms)
            for entry in sorted(members, key=lambda member: member.deadline_ms):
                draft.add(entry)
            if draft.members:
                return draft
        return None

    def entries(self) -> list[Queued]:
        return [entry for group in self._groups.values() for entry in group if entry.slot is self]

    def compact(self) -> None:
        """Drop who left, and groups that are empty."""
        for group, members in list(self._groups.items()):
            waiting = [entry for entry in members if entry.slot is self]
            if waiting:
                self._groups[group] = waiting
            else:
                del self._groups[group]
