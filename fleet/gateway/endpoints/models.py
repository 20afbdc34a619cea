"""`GET /v1/models`: what this key may name, in the shape that OpenAI clients list."""

import msgspec

from fleet.gateway.auth import authenticate
from fleet.gateway.call import Call
from fleet.gateway.process import Process


class ModelsEndpoint:
    """Lists the models of the snapshot with their versions."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def begin(self, call: Call) -> None:
        """Answer at once."""
        snapshot = self._process.require_configuration()
        authenticate(call, snapshot)
        data = [
            {
                "id": name,
                "object": "model",
                "created": int(snapshot.created_at.get(name, 0.0)),
                "owned_by": "halcyon",
                "versions": sorted(spec.versions),
                "baseline": None if spec.split is None else spec.split.baseline,
            }
            for name, spec in sorted(snapshot.fleet.models.items())
        ]
        call.answer(200, msgspec.json.encode({"object": "list", "data": data}))
