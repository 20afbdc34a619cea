"""How long a reload of the configuration takes, and how long it ever holds up the event loop.

    python -m bench.overhead_reload STATE_DIRECTORY ROUNDS

runs a gateway's parts on a loop that looks at the clock every millisecond. Prints `ready`,
then for each change that arrives one line of JSON: `reload_ms` from the first query to the
swap, and `pause_ms`, the longest that the loop was late meanwhile, in wall time and in CPU
time of the loop's thread (the difference is the machine's other work).
"""

import asyncio
import json
import sys
import time

import uvloop

LOOK_S = 0.001


async def watch(state_dir: str, rounds: int) -> None:
    """Start the parts, then report `rounds` reloads."""
    from django.conf import settings

    from fleet.database import conninfo
    from fleet.gateway.config import GatewayConfig
    from fleet.gateway.gateway import Gateway
    from fleet.gateway.server import SWITCH_INTERVAL_S

    sys.setswitchinterval(SWITCH_INTERVAL_S)
    config = GatewayConfig(
        database_url=conninfo(), valkey_url=settings.VALKEY_URL, state_dir=state_dir
    )
    gateway = Gateway(config)
    await gateway.start()
    gateway.garbage.start()
    listener, process = gateway.listener, gateway.process
    while process.snapshot.stale or len(process.probed) < len(process.snapshot.fleet.replicas):
        await asyncio.sleep(LOOK_S)  # its first seconds are not a reload's
    print("ready", flush=True)
    for _ in range(rounds):
        revision = process.snapshot.revision
        wall_s = cpu_s = 0.0
        at_s, spent_s = time.monotonic(), time.thread_time()
        while process.snapshot.revision == revision:
            await asyncio.sleep(LOOK_S)
            now_s, now_spent_s = time.monotonic(), time.thread_time()
            wall_s, cpu_s = max(wall_s, now_s - at_s - LOOK_S), max(cpu_s, now_spent_s - spent_s)
            at_s, spent_s = now_s, now_spent_s
        print(
            json.dumps(
                {
                    "reload_ms": (listener.last_reload_s or 0.0) * 1000.0,
                    "pause_ms": wall_s * 1000.0,
                    "pause_cpu_ms": cpu_s * 1000.0,
                    "tenants": len(process.snapshot.fleet.tenants),
                }
            ),
            flush=True,
        )
    await gateway.stop()


if __name__ == "__main__":
    uvloop.run(watch(sys.argv[1], int(sys.argv[2])))
