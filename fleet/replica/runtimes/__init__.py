"""The runtimes by name. A new one is one file here and one line below.

They are imported when asked for, so that nobody pays for a library that is not used.
"""

import importlib

from engine.errors import UnknownName
from fleet.replica.runtimes.base import Runtime, RuntimeSettings

RUNTIMES: dict[str, str] = {
    "simulated": "fleet.replica.runtimes.simulated:SimulatedRuntime",
    "linear": "fleet.replica.runtimes.linear:LinearRuntime",
    "embedding": "fleet.replica.runtimes.embedding:EmbeddingRuntime",
    "upstream": "fleet.replica.runtimes.upstream:UpstreamRuntime",
}


def make_runtime(name: str, settings: RuntimeSettings) -> Runtime:
    """The runtime called `name`, not loaded yet."""
    place = RUNTIMES.get(name)
    if place is None:
        raise UnknownName("runtime", name, RUNTIMES)
    module, _, attribute = place.partition(":")
    runtime: Runtime = getattr(importlib.import_module(module), attribute)(settings)
    return runtime
