"""`GET /v1/requests/{id}/explain`: the whole decision record of a recent request.

Only the tenant that sent it may read it; to others it does not exist. The id says which
process of this gateway remembers it.
"""

from typing import Any

import msgspec

from fleet.gateway.auth import authenticate
from fleet.gateway.call import Call
from fleet.gateway.errors import Problem
from fleet.gateway.identity import process_of
from fleet.gateway.process import Process
from fleet.gateway.routing_table import parameter
from fleet.gateway.siblings import Siblings

PATH = "/v1/requests/{id}/explain"


class ExplainEndpoint:
    """Asks the process that took the request."""

    def __init__(self, process: Process, siblings: Siblings) -> None:
        self._process = process
        self._siblings = siblings

    async def begin(self, call: Call) -> None:
        """Answer with the record. Raises `Problem`."""
        entry = authenticate(call, self._process.require_configuration())
        request_id = parameter(PATH, call.path)
        number = process_of(request_id)
        record: dict[str, Any] | None = None
        if number is not None:
            record = await self._siblings.ask(number, {"op": "explain", "id": request_id})
        if record is None or record.get("tenant") != entry.tenant:
            raise Problem(
                "not_found",
                f"no decision record of request {request_id[:64]!r}: only recent requests of"
                " this gateway and of your own tenant are remembered",
                details={"field": "id"},
            )
        call.answer(200, msgspec.json.encode(record))
