"""The few devices that decide whether a request is hopeless.

A request is hopeless only if the device that is done soonest is too late. Asking every
replica would make each arrival O(replicas), so the candidates are found once per plan: the
quickest for a small batch, the quickest for a large one, and those with the widest limits.
"""

from collections.abc import Sequence

from engine.batching.former import Device

_SMALL_WORK = 16.0
_LARGE_WORK = 4096.0


def scouts(devices: Sequence[Device]) -> list[Device]:
    """At most four devices, usually one, such that the best for any request is among them."""
    if not devices:
        return []
    chosen = [
        min(devices, key=lambda device: device.cost.predict_ms(work, 1, work))
        for work in (_SMALL_WORK, _LARGE_WORK)
    ]
    widest = max(device.max_batch_size for device in devices)
    deepest = max(device.max_batch_work for device in devices)
    if all(device.max_batch_size < widest for device in chosen):
        chosen.append(next(device for device in devices if device.max_batch_size == widest))
    if all(device.max_batch_work < deepest for device in chosen):
        chosen.append(next(device for device in devices if device.max_batch_work == deepest))
    unique = {device.replica_id: device for device in chosen}
    return list(unique.values())
