"""What a replica's configuration means to whoever forms its batches.

A replica of the batch protocol takes as many items and tokens as it declares. A server with
continuous batching takes one request a dispatch, and judges the prompt's length itself.
"""

import math

from engine.batching.former import Device, ServiceModel
from engine.types import Protocol, ReplicaSpec


def places_of(spec: ReplicaSpec) -> int:
    """How many items one dispatch may carry."""
    return 1 if spec.protocol is Protocol.OPENAI else spec.max_batch_size


def device_of(spec: ReplicaSpec, cost: ServiceModel) -> Device:
    """The replica as a former sees it."""
    streams = spec.protocol is Protocol.OPENAI
    return Device(
        replica_id=spec.replica_id,
        cost=cost,
        max_batch_size=places_of(spec),
        max_batch_work=math.inf if streams else float(spec.max_batch_tokens),
    )
