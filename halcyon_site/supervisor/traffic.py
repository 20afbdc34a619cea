"""The light load: a few requests a second, so that the dashboard has something to show."""

import asyncio
import zlib

from fleet.fleet_file import FleetFile
from fleet.fleet_file.words import LoadWords
from fleet.loadtest.loops import open_loop
from fleet.loadtest.pattern import Pattern
from fleet.loadtest.sender import Sender
from fleet.loadtest.tally import Tally
from fleet.loadtest.workload import Deadlines, Workload

RELAXED = "1500:0.7,4000:0.3"


class Traffic:
    """Sends what the fleet file asks for, until cancelled; `tally` says what came of it."""

    def __init__(self, fleet: FleetFile, gateway_url: str, keys: dict[str, str]) -> None:
        self._fleet = fleet
        self._url = gateway_url
        self._keys = keys
        self.tally = Tally()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for words in self._fleet.load:
                group.create_task(self._send(words))

    async def _send(self, words: LoadWords) -> None:
        seed = zlib.crc32(f"{words.model}/{words.tenant}".encode())
        embeds = any(
            replica.model == words.model and replica.runtime == "embedding"
            for replica in self._fleet.replicas
        )
        workload = Workload(words.model, Deadlines.parse(RELAXED), seed=seed, sentences=embeds)
        pattern = Pattern("steady", words.rate_per_s, float("inf"))
        async with Sender(self._url, self._keys[f"{words.tenant}/{words.key}"]) as sender:
            await open_loop(sender, workload, self.tally.record, pattern, seed=seed)
