"""A round: wrk against one server for some seconds, and what the server's process used."""

import json
import statistics
import subprocess
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.overhead_stand import KEY, MODEL

_BODY = {
    "model": MODEL,
    "input": "Tell me a short story about a halcyon bird that nests on the winter sea.",
    "deadlineMs": 2000,
    "maxOutputTokens": 64,
}


@dataclass(slots=True)
class Round:
    """One run of wrk against one server."""

    requests: int
    cpu_us: float
    per_s: float
    errors: int
    batch: float | None = None  # requests a batch


@dataclass(slots=True)
class Figures:
    """What a server cost at one number of connections."""

    rounds: list[Round]

    @property
    def median_us(self) -> float:
        return statistics.median(each.cpu_us for each in self.rounds)

    @property
    def best_us(self) -> float:
        return min(each.cpu_us for each in self.rounds)

    @property
    def per_s(self) -> float:
        return statistics.median(each.per_s for each in self.rounds)

    @property
    def batch(self) -> float | None:
        known = [each.batch for each in self.rounds if each.batch is not None]
        return statistics.median(known) if known else None

    @property
    def errors(self) -> int:
        return sum(each.errors for each in self.rounds)


def write_script(directory: Path) -> Path:
    """What tells wrk the request, and has it print a line that can be read."""
    path = directory / "infer.lua"
    path.write_text(
        'wrk.method = "POST"\n'
        'wrk.headers["content-type"] = "application/json"\n'
        f'wrk.headers["x-api-key"] = "{KEY}"\n'
        f"wrk.body = [[{json.dumps(_BODY)}]]\n"
        "done = function(summary, latency, requests)\n"
        "  local e = summary.errors\n"
        '  io.write(string.format("\\nRESULT %d %d %d\\n", summary.requests, summary.duration,'
        " e.status + e.connect + e.read + e.write + e.timeout))\n"
        "end\n"
    )
    return path


class Server:
    """A server under load. `batches`: it is a gateway, and says how many it sent."""

    def __init__(
        self, process: psutil.Process, port: int, script: Path, *, batches: bool = False
    ) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._process = process
        self._script = script
        self._says_batches = batches

    def load(self, connections: int, seconds: float) -> Round:
        """Let wrk ask as fast as it is answered."""
        batches = self._batches() if self._says_batches else 0
        before = self._process.cpu_times()
        out = subprocess.run(
            [
                *("wrk", "-t1", f"-c{connections}", f"-d{seconds:.0f}s", "-s", str(self._script)),
                f"{self.url}/v1/infer",
            ],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        after = self._process.cpu_times()
        line = next(line for line in out.splitlines() if line.startswith("RESULT"))
        requests, micros, errors = (int(word) for word in line.split()[1:])
        cpu_s = after.user + after.system - before.user - before.system
        sent = self._batches() - batches if self._says_batches else 0
        return Round(
            requests=requests,
            cpu_us=cpu_s * 1e6 / max(requests, 1),
            per_s=requests * 1e6 / max(micros, 1),
            errors=errors,
            batch=requests / sent if sent else None,
        )

    def _batches(self) -> int:
        with urllib.request.urlopen(f"{self.url}/v1/control/state", timeout=10.0) as answer:
            return sum(int(replica["batches"]) for replica in json.load(answer)["replicas"])
