"""What operators and machines ask of a gateway: state, metrics, health, the contract.

`/v1/control/...` and `/metrics` speak of all tenants. They answer to this machine
(a loopback peer that is no proxy's) and to operators' access tokens, to nobody else;
`HALCYON_METRICS_NETWORKS` lets a scraper in.
"""

import asyncio
import hashlib
import ipaddress
from collections.abc import Sequence
from typing import Any

import msgspec

from fleet.gateway import metrics
from fleet.gateway.call import Call
from fleet.gateway.errors import Problem
from fleet.gateway.identity import process_of
from fleet.gateway.openapi import document
from fleet.gateway.process import Process
from fleet.gateway.routing_table import parameter
from fleet.gateway.siblings import Siblings
from fleet.live.merge import AgedView, merge

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
EXPLAIN = "/v1/control/requests/{id}"
_PROXIED = (b"x-forwarded-for", b"forwarded", b"x-real-ip")


class OperatorEndpoints:
    """The endpoints that look at the whole process, or at all of them."""

    def __init__(
        self, process: Process, siblings: Siblings, metrics_networks: Sequence[Network] = ()
    ) -> None:
        self._process = process
        self._siblings = siblings
        self._networks = metrics_networks
        self._document = msgspec.json.encode(document())

    async def state(self, call: Call) -> None:
        """The live state of this gateway's processes, merged."""
        self._require_operator(call, ())
        views = await self._siblings.ask_all({"op": "view"})
        aged = [
            AgedView(gateway=view["gateway"]["id"], seq=0, age_s=0.0, view=view) for view in views
        ]
        merged = await asyncio.to_thread(merge, aged)
        call.answer(200, msgspec.json.encode(merged))

    async def explain(self, call: Call) -> None:
        """The decision record of a recent request of any tenant. Raises `Problem`."""
        self._require_operator(call, ())
        request_id = parameter(EXPLAIN, call.path)
        number = process_of(request_id)
        record = None
        if number is not None:
            record = await self._siblings.ask(number, {"op": "explain", "id": request_id})
        if record is None:
            raise Problem(
                "not_found",
                f"no decision record of request {request_id[:64]!r}: this gateway remembers"
                " recent requests of its own only",
                details={"field": "id"},
            )
        call.answer(200, msgspec.json.encode(record))

    async def metrics(self, call: Call) -> None:
        """Prometheus' exposition."""
        self._require_operator(call, self._networks)
        parts = await self._siblings.ask_all({"op": "metrics"})
        body = await asyncio.to_thread(metrics.render, parts)
        call.answer(200, body, media=metrics.CONTENT_TYPE)

    def healthz(self, call: Call) -> None:
        """Alive: the event loop turns."""
        call.answer(200, b'{"status":"ok"}')

    def readyz(self, call: Call) -> None:
        """Whether a load balancer should send work here, and what is lame."""
        process = self._process
        ready = process.ready()
        why = "draining" if process.draining else "ready" if ready else "no configuration yet"
        body = {
            "ready": ready,
            "status": why,
            "limits": "degraded" if "limits" in process.degraded else "ok",
            "degraded": dict(sorted(process.degraded.items())),
            "snapshotRevision": process.snapshot.revision,
            "snapshotAgeS": process.snapshot_age_s(),
            "snapshotStale": process.snapshot.stale,
        }
        call.answer(200 if ready else 503, msgspec.json.encode(body))

    def openapi(self, call: Call) -> None:
        """The contract of the data plane."""
        call.answer(200, self._document)

    def _require_operator(self, call: Call, networks: Sequence[Network]) -> None:
        if self._is_near(call, networks):
            return
        scheme, _, token = call.headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() == b"bearer":
            digest = hashlib.sha256(token.strip()).digest()
            if digest in self._process.snapshot.operators:
                return
        raise Problem(
            "forbidden",
            "this speaks of all tenants: send an operator's access token as Authorization: Bearer",
        )

    def _is_near(self, call: Call, networks: Sequence[Network]) -> bool:
        if call.peer is None or any(name in call.headers for name in _PROXIED):
            return False
        address = ipaddress.ip_address(call.peer)
        return address.is_loopback or any(address in network for network in networks)


def answer_sibling(process: Process, question: Any) -> Any:
    """What one process tells another."""
    match question["op"]:
        case "explain":
            return process.scheduler.explain(question["id"])
        case "view":
            return process.view()
        case "metrics":
            return metrics.numbers(process)
    return None
