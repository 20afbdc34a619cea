"""Failure injection over HTTP: see what is in force, inject one, end them all.

Changing anything needs `HALCYON_FAULTS=1` at the start of the process; without it, 403.
"""

import msgspec

from engine.errors import InvalidInput
from fleet.replica.asgi import Receive, Reply, Scope, bad_request, read_body
from fleet.replica.faults import Faults, require_enabled
from fleet.replica.wire import SimulateRequest


class Simulations:
    """The endpoints of `/simulate`."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.routes = {
            ("GET", "/simulate"): self.show,
            ("POST", "/simulate"): self.start,
            ("DELETE", "/simulate"): self.end,
        }

    async def show(self, scope: Scope, receive: Receive) -> Reply:
        return Reply(200, {"enabled": self.faults.enabled, "faults": self.faults.in_force()})

    async def start(self, scope: Scope, receive: Receive) -> Reply:
        self._require_enabled()
        try:
            request = msgspec.json.decode(await read_body(receive), type=SimulateRequest)
            return Reply(200, {"faults": self.faults.start(request)})
        except InvalidInput as error:
            raise Reply(400, bad_request(error.field, str(error))) from None
        except msgspec.MsgspecError as error:
            raise Reply(400, bad_request("body", str(error))) from None

    async def end(self, scope: Scope, receive: Receive) -> Reply:
        self._require_enabled()
        self.faults.clear()
        return Reply(200, {"faults": {}})

    def _require_enabled(self) -> None:
        try:
            require_enabled(self.faults)
        except InvalidInput as error:
            raise Reply(403, {"error": "forbidden", "message": str(error)}) from None
