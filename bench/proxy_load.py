"""Rounds of load against one server: whole answers by wrk, streams by a small reader.

What a round costs is what the kernel says of the server's process tree, before and after.
"""

import asyncio
import json
import re
import subprocess
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import uvloop

from bench.peers import Process

_PATH = "/v1/chat/completions"
_MESSAGES = [
    {"role": "system", "content": "You answer in one short sentence."},
    {"role": "user", "content": "Where does a halcyon bird nest in the middle of winter?"},
]
_SENT = re.compile(rb'"content": ?"(\d+) "')
_READ_S = 30.0


@dataclass(slots=True, frozen=True, kw_only=True)
class Round:
    """What one round found. Times in us; None where nothing could be measured."""

    count: int  # requests, or events of streams
    errors: int
    per_s: float
    cpu_us: float | None  # per request or event; None for the upstream itself
    p50_us: float | None
    p99_us: float | None


def write_script(folder: Path, key: str) -> Path:
    """wrk's script: a chat completion that does not stream."""
    path = folder / f"chat-{key[:8]}.lua"
    body = json.dumps({"model": "tiny", "messages": _MESSAGES, "max_tokens": 16})
    path.write_text(
        'wrk.method = "POST"\n'
        'wrk.headers["content-type"] = "application/json"\n'
        f'wrk.headers["authorization"] = "Bearer {key}"\n'
        f"wrk.body = [[{body}]]\n"
        "done = function(summary, latency, requests)\n"
        "  local e = summary.errors\n"
        '  io.write(string.format("\\nRESULT %d %d %d %d %d\\n", summary.requests,'
        " summary.duration, e.status + e.connect + e.read + e.write + e.timeout,"
        " latency:percentile(50), latency:percentile(99)))\n"
        "end\n"
    )
    return path


def whole(server: Process, script: Path, connections: int, seconds: int) -> Round:
    """wrk in a closed loop."""
    before_s = server.cpu_s()
    out = subprocess.run(
        [
            *("wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s"),
            *("-s", str(script), server.url + _PATH),
        ],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    cpu_s = server.cpu_s() - before_s
    line = next((line for line in out.splitlines() if line.startswith("RESULT")), None)
    if line is None:  # it takes no connections any more
        return Round(count=0, errors=1, per_s=0.0, cpu_us=None, p50_us=None, p99_us=None)
    count, micros, errors, p50, p99 = (int(word) for word in line.split()[1:])
    good = count - errors
    return Round(
        count=count,
        errors=errors,
        per_s=good * 1e6 / max(micros, 1),
        cpu_us=cpu_s * 1e6 / good if good > 0 else None,
        p50_us=float(p50) if good > 0 else None,
        p99_us=float(p99) if good > 0 else None,
    )


def set_pace(upstream: Process, pace: str) -> None:
    """The streams of an `instant_server` beat in "step", or "free" of each other."""
    request = urllib.request.Request(f"{upstream.url}/pace/{pace}", data=b"")
    with urllib.request.urlopen(request, timeout=10.0):
        pass


def streams(server: Process, key: str, at_once: int, events: int) -> Round:
    """`at_once` streams side by side; how long their events travelled."""
    travelled_us: list[float] = []
    before_s, began = server.cpu_s(), time.monotonic()
    errors = uvloop.run(_read_all(server, key, at_once, events, travelled_us))
    cpu_s, took_s = server.cpu_s() - before_s, time.monotonic() - began
    travelled_us.sort()
    count = len(travelled_us)
    return Round(
        count=count,
        errors=errors,
        per_s=count / took_s,
        cpu_us=cpu_s * 1e6 / count if count else None,
        p50_us=travelled_us[count // 2] if count else None,
        p99_us=travelled_us[int(count * 0.99)] if count else None,
    )


async def _read_all(
    server: Process, key: str, at_once: int, events: int, travelled_us: list[float]
) -> int:
    readers = (_read(server, key, events, travelled_us) for _ in range(at_once))
    ends = await asyncio.gather(*readers, return_exceptions=True)
    return sum(1 for end in ends if end is not True)


async def _read(server: Process, key: str, events: int, travelled_us: list[float]) -> bool:
    """One stream on a connection of its own. True: it came whole."""
    body = json.dumps(
        {"model": "tiny", "messages": _MESSAGES, "max_tokens": events, "stream": True}
    ).encode()
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(
            b"POST %b HTTP/1.1\r\nhost: %b\r\ncontent-type: application/json\r\n"
            b"authorization: Bearer %b\r\ncontent-length: %d\r\n\r\n%b"
            % (_PATH.encode(), host.encode(), key.encode(), len(body), body)
        )
        seen, rest = 0, b""
        async with asyncio.timeout(_READ_S):
            while data := await reader.read(65536):
                now_ns = time.monotonic_ns()
                *whole_events, rest = (rest + data).split(b"\n\n")
                for event in whole_events:
                    if (sent := _SENT.search(event)) is not None:
                        travelled_us.append((now_ns - int(sent[1])) / 1000.0)
                        seen += 1
                    elif b"[DONE]" in event:
                        return seen == events
        return False
    finally:
        writer.close()
