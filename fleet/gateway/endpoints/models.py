"""`GET /v1/models` and `/v1/models/{model}`, in the shape that OpenAI clients list and retrieve."""

from typing import Any

import msgspec

from engine.errors import RefusalCode
from fleet.gateway.auth import authenticate
from fleet.gateway.call import Call
from fleet.gateway.errors import Problem
from fleet.gateway.process import Process
from fleet.gateway.routing_table import parameter
from fleet.gateway.snapshot import Snapshot

ONE = "/v1/models/{model}"


class ModelsEndpoint:
    """Lists the models of the snapshot with their versions."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def begin(self, call: Call) -> None:
        """All of them, at once."""
        snapshot = self._process.require_configuration()
        authenticate(call, snapshot)
        data = [_entry(snapshot, name) for name in sorted(snapshot.fleet.models)]
        call.answer(200, msgspec.json.encode({"object": "list", "data": data}))

    def one(self, call: Call) -> None:
        """The one that the path names. Raises `Problem`."""
        snapshot = self._process.require_configuration()
        authenticate(call, snapshot)
        name = parameter(ONE, call.path)
        if name not in snapshot.fleet.models:
            raise Problem(
                RefusalCode.MODEL_NOT_FOUND,
                f"no model named {name[:256]!r}",
                details={"field": "model", "known": sorted(snapshot.fleet.models)[:8]},
            )
        call.answer(200, msgspec.json.encode(_entry(snapshot, name)))


def _entry(snapshot: Snapshot, name: str) -> dict[str, Any]:
    spec = snapshot.fleet.models[name]
    return {
        "id": name,
        "object": "model",
        "created": int(snapshot.created_at.get(name, 0.0)),
        "owned_by": "halcyon",
        "versions": sorted(spec.versions),
        "baseline": None if spec.split is None else spec.split.baseline,
    }
