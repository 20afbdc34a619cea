"""Decision records that gateways sampled, as many as a person can look through.

Every view carries a few finished requests, those that went wrong preferred. They are kept
here with their wall-clock time, so that the requests page has something to show and most
explanations need no question to a gateway.
"""

from collections import OrderedDict
from typing import Any

REMEMBERED = 400

Record = dict[str, Any]


class Samples:
    """The last sampled decision records of all gateways."""

    def __init__(self) -> None:
        self._records: OrderedDict[str, Record] = OrderedDict()

    def absorb(self, gateway: str, view: dict[str, Any], now_ms: float) -> int:
        """Keep the records that are new. Returns how many were."""
        fresh = 0
        for record in view.get("requests") or ():
            request_id = record.get("requestId")
            if not request_id or request_id in self._records:
                continue
            fresh += 1
            at_ms = round(now_ms - record.get("agoMs", 0.0))
            self._records[request_id] = {**record, "gateway": gateway, "atMs": at_ms}
        while len(self._records) > REMEMBERED:
            self._records.popitem(last=False)
        return fresh

    def get(self, request_id: str) -> Record | None:
        return self._records.get(request_id)

    def newest(self) -> list[Record]:
        """Every remembered record, the newest first."""
        known = list(self._records.values())
        return sorted(known, key=lambda r: (-r["atMs"], r["requestId"]))
