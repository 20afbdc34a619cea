"""One life of a replica: bind, serve `/health`, load, register, work, drain, exit 0.

The port is bound before anything is loaded, so that a port in use is a message at once and
not a surprise after a minute of loading, and so that `/health` can say `starting`.

SIGTERM and SIGINT begin the drain: the control API and every answer say so, new work is
refused with 503, what is queued and running is finished and answered, then the process exits
with 0. A second signal, or the drain timeout, ends it at once, with 1 if work was lost.
"""

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Iterator

import structlog
import uvicorn

from engine.errors import InvalidInput
from engine.regulation.controller import RegulationConfig
from engine.regulation.fair_queue import QueueClass
from engine.regulation.gate import GateConfig
from engine.regulation.station import Station, StationConfig
from fleet.replica.app import BATCH_CLASS, ReplicaApp, State
from fleet.replica.faults import Faults
from fleet.replica.monitoring import Monitor
from fleet.replica.options import PREMIUM, STANDARD, Options
from fleet.replica.registration import Registration
from fleet.replica.regulator import Regulator
from fleet.replica.runtimes import make_runtime
from fleet.replica.runtimes.base import RuntimeSettings
from fleet.replica.sensors import MachineSensors
from fleet.replica.workplace import Order, Workplace, monotonic_ms

PREMIUM_WEIGHT, STANDARD_WEIGHT = 3.0, 1.0
PREMIUM_ROOM_RATIO = 0.4  # of the queue; standard has the rest
SAY_DRAINING_S = 2.0
BACKLOG = 2048
REGROW_TICKS = 15  # after a cut nothing grows for so many ticks of the controller: 30 s

log = structlog.get_logger("replica")


def station_config(options: Options) -> StationConfig:
    """Queues, gate and rules as the options have them."""
    if options.standalone:
        premium = max(1, round(PREMIUM_ROOM_RATIO * options.max_queue))
        classes: tuple[QueueClass, ...] = (
            QueueClass(name=PREMIUM, weight=PREMIUM_WEIGHT, capacity=premium),
            QueueClass(
                name=STANDARD, weight=STANDARD_WEIGHT, capacity=max(1, options.max_queue - premium)
            ),
        )
    else:
        classes = (QueueClass(name=BATCH_CLASS, capacity=options.max_queue),)
    return StationConfig(
        classes=classes,
        regulation=RegulationConfig(
            slo_ms=options.slo_ms,
            max_workers=options.max_concurrency,
            batch_size=options.max_batch_size,
            interval_ms=options.controller_interval_s * 1000,
            memory_ratio=options.memory_threshold / 100,
            regrow_hold_ms=REGROW_TICKS * options.controller_interval_s * 1000,
        ),
        gate=GateConfig(slo_ms=options.slo_ms),
        timeout_ms=options.timeout_s * 1000,
        merge=options.standalone,
        adaptive=options.adaptive,
    )


def runtime_settings(
    options: Options, model: str | None = None, version: str | None = None
) -> RuntimeSettings:
    return RuntimeSettings(
        model=model or options.model,
        version=version or options.version,
        speed=options.speed,
        jitter_ratio=options.jitter,
        noise_sigma=options.noise,
        seed=options.seed,
        input_dim=options.input_dim,
        threads=options.max_concurrency,
        state_dir=options.state_dir,
        upstream_url=options.upstream_url,
        upstream_model=options.upstream_model,
        upstream_key=options.upstream_key,
    )


class _Uvicorn(uvicorn.Server):
    """Uvicorn without signal handlers of its own: the drain comes first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Replica:
    """One replica process."""

    def __init__(self, options: Options) -> None:
        self.options = options
        station: Station[Order] = Station(station_config(options), monotonic_ms())
        self.workplace = Workplace(
            station,
            make_runtime(options.runtime, runtime_settings(options)),
            Faults(enabled=options.faults),
            also={
                key: make_runtime(options.runtime, runtime_settings(options, *key))
                for key in options.also
            },
        )
        sensors = MachineSensors()
        self.monitor = Monitor(self.workplace)
        self.regulator = Regulator(self.workplace, self.monitor, sensors)
        self.app = ReplicaApp(options, self.workplace, self.monitor, sensors)
        self._stop = asyncio.Event()
        self._stops = 0
        self._exit_code = 0

    async def run(self) -> int:
        """Live, and return the exit code."""
        options = self.options
        listener = _bind(options.host, options.port)
        port = listener.getsockname()[1]
        address = options.address or f"http://{_reachable(options.host)}:{port}"
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)
        server = _Uvicorn(
            uvicorn.Config(
                self.app,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                backlog=BACKLOG,
                timeout_keep_alive=options.keep_alive_s,
                timeout_graceful_shutdown=2,
            )
        )
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        working = asyncio.create_task(self._work(address))
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not self._stop.is_set():
            self._exit_code = 1  # loading failed
        working.cancel()
        registration = (await asyncio.gather(working, return_exceptions=True))[0]
        if isinstance(registration, Exception):
            log.error("failed", error=str(registration))
        if self._stop.is_set():
            await self._drain(address)
        server.should_exit = True
        await serving
        self.workplace.faults.clear()
        await self.workplace.close()
        log.info("stopped", exit_code=self._exit_code)
        return self._exit_code

    async def _work(self, address: str) -> None:
        options = self.options
        log.info("starting", address=address, replica=options.replica_id, runtime=options.runtime)
        await self.workplace.load()
        self.app.state = State.READY
        log.info("ready", address=address, model=options.model, version=options.version)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.regulator.run())
            if options.register:
                tasks.create_task(self._registration(address).run())

    def _registration(self, address: str) -> Registration:
        return Registration(
            self.options,
            self.workplace,
            address=address,
            started_at=self.app.started_at,
            draining=lambda: self.workplace.draining,
        )

    def _signalled(self) -> None:
        self._stops += 1
        self._stop.set()
        if self._stops > 1:
            self.workplace.abandon()

    async def _drain(self, address: str) -> None:
        """Refuse new work, say so, finish the rest."""
        self.app.state = State.DRAINING
        self.workplace.draining = True
        station = self.workplace.station
        log.info("draining", in_flight=station.limit.in_use, queue=len(station.queue))
        if self.options.register:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SAY_DRAINING_S):
                    await self._registration(address).say_now()
        try:
            async with asyncio.timeout(self.options.drain_timeout_s):
                await self.workplace.idle()
        except TimeoutError:
            log.warning("drain timed out", in_flight=station.limit.in_use)
            self.workplace.abandon()
            self._exit_code = 1


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise InvalidInput(
            "--port", port, f"cannot be bound on {host} ({error.strerror}); choose another, or 0"
        ) from None
    return listener


def _reachable(host: str) -> str:
    """An address of this machine that others can reach, for a wildcard the one it goes out by."""
    if host not in ("0.0.0.0", "::"):
        return f"[{host}]" if ":" in host else host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent: this only asks the routing table
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()


def configure_logs(*, as_json: bool) -> None:
    """Log lines on stderr: for people, or one JSON object each."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def run(options: Options) -> int:
    """Run a replica until it is told to stop; return the exit code."""
    configure_logs(as_json=options.json_logs)
    try:
        import uvloop
    except ImportError:
        return asyncio.run(_life(options))
    return uvloop.run(_life(options))


async def _life(options: Options) -> int:
    try:
        return await Replica(options).run()
    except InvalidInput as error:
        print(f"replica: {error}", file=sys.stderr)
        return 2
