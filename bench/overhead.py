"""What the gateway itself costs a request, beside a bare echo on the same server.

CPU (user + system of the process, from the kernel's books) divided by the requests that wrk
counted, with everything on: keys, quotas shared through Valkey, adaptive limit, planner,
batches of 16, routing, decision records, evidence written to PostgreSQL each second. Replicas
cost nothing (`overhead_replica`). The echo (`overhead_echo`) decodes and encodes the same
JSON. Both run in turns, so that what else the machine does hits both; the table shows the
median round and the best one.
"""

import argparse
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench.overhead_report import make_report
from bench.overhead_rounds import Figures, Server, write_script
from bench.overhead_scene import python, reloads, running, standing
from bench.overhead_stand import MODEL
from bench.ports import free_ports
from bench.progress import Progress
from bench.report import Report
from bench.servers import gateway_command, wait_until_healthy
from engine.errors import InvalidInput

NAME = "overhead"
HELP = "CPU of the gateway per request, beside a bare uvicorn echo"

_CONNECTIONS = 64  # of the rounds that compare fleets
_WARM_S = 2.0  # the cost model learns, caches fill


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options beyond the common ones."""
    parser.add_argument("--seconds", type=int, default=4, help="length of a round (4)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each kind (5)")
    parser.add_argument(
        "--connections", default="16,64,256", help="wrk connections, comma-separated (16,64,256)"
    )


def run(args: argparse.Namespace, progress: Progress) -> Report:
    """Measure and judge."""
    if shutil.which("wrk") is None:
        raise InvalidInput("wrk", None, "is not installed: apt-get install wrk (or brew)")
    try:
        connections = [int(part) for part in args.connections.split(",")]
    except ValueError:
        raise InvalidInput("connections", args.connections, "must be numbers, as 16,64") from None
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="halcyon-bench-")))
        echo_port, gateway_port, *many = free_ports(302)
        few, rest = many[:3], many[3:]
        script = write_script(directory)
        stack.enter_context(running(python("bench.overhead_replica", *many)))
        process = stack.enter_context(running(python("bench.overhead_echo", echo_port)))
        echo = Server(process, echo_port, script)
        stand = stack.enter_context(standing(directory, few))
        command = gateway_command(gateway_port, directory)
        process = stack.enter_context(running(command, stand.environment))
        gateway = Server(process, gateway_port, script, batches=True)
        wait_until_healthy(gateway.url, len(few), MODEL)
        with progress.task("measuring", total=(len(connections) + 3) * 2 * args.rounds) as task:

            def rounds(at: int) -> tuple[Figures, Figures]:
                theirs, ours = Figures([]), Figures([])
                for _ in range(args.rounds):
                    for figures, server in ((theirs, echo), (ours, gateway)):
                        task.say(f"{at} connections")
                        figures.rounds.append(server.load(at, args.seconds))
                        task.advance()
                return theirs, ours

            gateway.load(_CONNECTIONS, _WARM_S)
            measured = {at: rounds(at) for at in connections}
            fleets = {"3 serve": rounds(_CONNECTIONS)[1]}
            for name, words, ports, serving in (
                ("3 serve, 297 beside them", "beside", rest, few),
                ("300 serve", "ports", many, many),
            ):
                stand.say(words, *ports)
                wait_until_healthy(gateway.url, len(serving), MODEL, total=len(many))
                gateway.load(_CONNECTIONS, _WARM_S)
                fleets[name] = rounds(_CONNECTIONS)[1]
            task.say("reloading 10,000 tenants")
            seen = reloads(directory, stand)
    return make_report(NAME, measured, fleets, seen)
