"""`manage.py up`: everything on this machine, until Ctrl-C."""

import asyncio
import contextlib
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from django.db import connections

from engine.errors import require_positive
from fleet import fleet_file
from fleet.fleet_file import FleetFile
from fleet.management.command import FleetCommand
from halcyon_site.embedded import AlreadyOwned, EmbeddedServices, ServiceDidNotStart
from halcyon_site.supervisor import screen as screens
from halcyon_site.supervisor.leftovers import end_leftovers
from halcyon_site.supervisor.plan import DEFAULT_BASE, Ports, complaints, plans
from halcyon_site.supervisor.seeding import Seeded, people, seed
from halcyon_site.supervisor.supervisor import DidNotStart, Supervisor
from halcyon_site.supervisor.traffic import Traffic

LEAST_SUCCESS = 0.99
SHOW_EVERY_S = 0.5
ENDS = (signal.SIGTERM, signal.SIGHUP)  # beside Ctrl-C: told to, or the terminal is gone


class Command(FleetCommand):
    help = (
        "Run everything on this machine: PostgreSQL and Valkey (unless DATABASE_URL and "
        "VALKEY_URL name others), gateway, web, worker, beat and the file's replicas."
    )

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--fleet",
            type=Path,
            default=settings.BASE_DIR / "fleet" / "demo.yaml",
            metavar="FILE",
            help="what to serve (fleet/demo.yaml)",
        )
        parser.add_argument(
            "--port-base",
            type=int,
            default=DEFAULT_BASE,
            metavar="B",
            help=f"web on B, gateway on B+80, replicas from B+1101 ({DEFAULT_BASE})",
        )
        parser.add_argument("--no-load", action="store_true", help="send no light traffic")
        parser.add_argument(
            "--for", type=float, metavar="S", dest="run_for", help="end by itself after S seconds"
        )

    def act(
        self, fleet: Path, port_base: int, no_load: bool, run_for: float | None, **_: Any
    ) -> None:
        began_s = time.monotonic()
        if run_for is not None:
            require_positive("--for", run_for, unit="s")
        words = fleet_file.read(fleet)
        ports = Ports(base=port_base)
        services = EmbeddedServices(
            settings.HALCYON_VAR,
            with_postgres=settings.HALCYON_EMBEDDED_POSTGRES,
            with_valkey=settings.HALCYON_EMBEDDED_VALKEY,
        )
        for number in ENDS:
            signal.signal(number, _interrupt)
        self.screen = screens.Screen(sys.stdout, quiet=self.as_json)
        try:
            with services.lock():
                code = self._own(services, words, ports, no_load, run_for, began_s)
        except (AlreadyOwned, ServiceDidNotStart) as error:
            raise CommandError(str(error)) from None
        except KeyboardInterrupt:
            raise CommandError("stopped before everything was up", returncode=130) from None
        sys.exit(code)

    def _own(
        self,
        services: EmbeddedServices,
        words: FleetFile,
        ports: Ports,
        no_load: bool,
        run_for: float | None,
        began_s: float,
    ) -> int:
        var = settings.HALCYON_VAR
        leftovers = end_leftovers(var)
        if leftovers:
            self.screen.say(f"ended {len(leftovers)} processes that an earlier run left behind")
        made = plans(words, ports, "", var, settings.BASE_DIR)
        if taken := complaints(made):
            raise CommandError("\n".join(taken))
        try:
            self.screen.say("starting PostgreSQL and Valkey")
            services.start()
            seeded = seed(words, ports)
            connections.close_all()
            made = plans(words, ports, seeded.fleet_token, var, settings.BASE_DIR)
            supervisor = Supervisor(
                made,
                services,
                var=var,
                gateway_url=ports.gateway_url,
                replicas={replica.id for replica in words.replicas if replica.is_local},
            )
            wanted = words.load and not no_load
            traffic = Traffic(words, ports.gateway_url, seeded.keys) if wanted else None
            return asyncio.run(
                self._supervise(supervisor, traffic, words, seeded, ports, run_for, began_s)
            )
        finally:
            self.screen.say("stopping")
            services.stop()

    async def _supervise(
        self,
        supervisor: Supervisor,
        traffic: Traffic | None,
        words: FleetFile,
        seeded: Seeded,
        ports: Ports,
        run_for: float | None,
        began_s: float,
    ) -> int:
        stop = asyncio.Event()
        for number in (signal.SIGINT, *ENDS):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        showing = asyncio.create_task(self._show(supervisor, traffic))
        loading: asyncio.Task[None] | None = None
        error: str | None = None
        started_s = ran_s = 0.0
        ok = False
        with ThreadPoolExecutor(1) as pool:
            passwords = pool.submit(people, words, settings.HALCYON_VAR)
            try:
                starting = asyncio.create_task(supervisor.start())
                stopped = asyncio.create_task(stop.wait())
                await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
                if not starting.done():
                    starting.cancel()
                    error = "stopped before everything was up"
                else:
                    await starting
                    started_s = time.monotonic() - began_s
                    accounts = await asyncio.wrap_future(passwords)
                    self._greet(ports, accounts, seeded, words, started_s)
                    self.serving = True
                    if traffic is not None:
                        loading = asyncio.create_task(traffic.run())
                    since_s = time.monotonic()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(run_for):
                            await stop.wait()
                    ran_s = time.monotonic() - since_s
                    ok = _is_fine(supervisor, traffic)
            except DidNotStart as failure:
                error = str(failure)
            finally:
                for task in filter(None, (loading, showing)):
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
                self.screen.close()
                document = screens.summary(
                    supervisor,
                    traffic,
                    ok=ok,
                    started_s=started_s,
                    ran_s=ran_s,
                    ports=ports,
                    keys=seeded.keys,
                    error=error,
                )
                await supervisor.stop()
        if self.as_json:
            self.print_json(document)
        elif error:
            self.stderr.write(error)
        else:
            self.screen.say(screens.traffic_line(traffic))
        return 0 if ok or (error is None and run_for is None) else 1

    serving = False

    def _greet(
        self,
        ports: Ports,
        accounts: dict[str, str | None],
        seeded: Seeded,
        words: FleetFile,
        started_s: float,
    ) -> None:
        self.screen.close()
        model = next(iter(words.models), None)
        table, lines = screens.welcome(ports, accounts, seeded.keys, model)
        self.screen.console.print(table)
        for line in lines:
            self.screen.say(line)
        self.screen.say(f"up after {started_s:.1f} s; logs are in {settings.HALCYON_VAR}/log")

    async def _show(self, supervisor: Supervisor, traffic: Traffic | None) -> None:
        while True:
            self.screen.show(supervisor, traffic, serving=self.serving)
            await asyncio.sleep(SHOW_EVERY_S)


def _is_fine(supervisor: Supervisor, traffic: Traffic | None) -> bool:
    if not supervisor.healthy:
        return False
    if traffic is None:
        return True
    ratio = traffic.tally.success_ratio
    return ratio is not None and ratio >= LEAST_SUCCESS


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
