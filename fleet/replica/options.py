"""Every option of the replica, from the command line and the environment, checked at start.

A flag wins over its environment variable, the variable over the default. Each variable may
also come from the file that `<NAME>_FILE` names. A value out of range stops the process with
exit code 2 and a line that names the variable, the value and what was expected.

Standing alone, the defaults are those of a small model server (SLO 150 ms, batches of 8,
500 places to wait); in a fleet, those of a device behind a gateway.
"""

import argparse
import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.errors import InvalidInput
from fleet.replica.option_reader import OptionReader
from fleet.replica.runtimes import RUNTIMES

PREMIUM, STANDARD = "premium", "standard"
FLEET_PORT, STANDALONE_PORT = 9101, 8000
_NAME = re.compile(r"[A-Za-z0-9][\w.:/@-]{0,127}")


@dataclass(slots=True, frozen=True, kw_only=True)
class Options:
    """What one replica process is told."""

    model: str
    version: str
    also: tuple[tuple[str, str], ...]  # further (model, version) pairs
    gpu_memory_ratio: float | None
    runtime: str
    replica_id: str
    host: str
    port: int
    address: str | None
    standalone: bool
    register: bool
    control_url: str
    token: str
    weight: float
    accelerator: str
    max_batch_size: int
    max_batch_tokens: int
    max_concurrency: int
    max_queue: int
    slo_ms: float
    adaptive: bool
    controller_interval_s: float
    memory_threshold: float
    timeout_s: float
    heartbeat_s: float
    drain_timeout_s: float
    keep_alive_s: int
    speed: float
    jitter: float
    noise: float
    seed: int | None
    input_dim: int
    state_dir: Path
    upstream_url: str
    upstream_model: str
    upstream_key: str
    faults: bool
    json_logs: bool

    @property
    def loaded_models(self) -> list[str]:
        """What it serves, as it registers it: `name`, or `name@version` for another version."""
        further = (m if v == self.version else f"{m}@{v}" for m, v in self.also)
        return [self.model, *further]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options; `manage.py replica` and `python -m fleet.replica` share them."""
    what = parser.add_argument_group("what it serves")
    what.add_argument("--model", metavar="NAME", help="model it serves (alone: linear)")
    what.add_argument("--version", metavar="NAME", help="version of the model (alone: v1)")
    what.add_argument(
        "--also",
        metavar="NAME[@VERSION]",
        action="append",
        default=[],
        help="a further model from the same places, in this version unless told; repeatable",
    )
    what.add_argument(
        "--runtime", choices=sorted(RUNTIMES), help="what computes (simulated; alone: linear)"
    )
    where = parser.add_argument_group("where")
    where.add_argument("--host", default="127.0.0.1", help="interface to bind (127.0.0.1)")
    where.add_argument(
        "--port",
        metavar="N",
        help=f"port to bind, 0 = any free one ({FLEET_PORT}; alone: HALCYON_PORT or "
        f"{STANDALONE_PORT})",
    )
    where.add_argument("--address", metavar="URL", help="how gateways reach it (http://HOST:PORT)")
    where.add_argument("--id", metavar="ID", help="replica id, stable over restarts")
    fleet = parser.add_argument_group("in a fleet")
    fleet.add_argument("--control-url", metavar="URL", help="control API (HALCYON_CONTROL_URL)")
    fleet.add_argument("--no-register", action="store_true", help="serve, but register nowhere")
    fleet.add_argument("--heartbeat-s", metavar="S", help="seconds between heartbeats (5)")
    fleet.add_argument("--weight", metavar="W", help="share of traffic against its peers (1)")
    fleet.add_argument("--accelerator", metavar="NAME", help="hardware class (the runtime's)")
    fleet.add_argument(
        "--gpu-memory-ratio", metavar="R", help="GPU memory in use, from 0 to 1 (not said)"
    )
    limits = parser.add_argument_group("limits, which regulation moves below these")
    limits.add_argument("--max-batch-size", metavar="N", help="items a batch (32; alone: 8)")
    limits.add_argument("--max-batch-tokens", metavar="N", help="tokens a batch (16384)")
    limits.add_argument("--max-concurrency", metavar="N", help="batches at once (1; alone: cores)")
    limits.add_argument("--max-queue", metavar="N", help="places to wait (2 x at once; alone: 500)")
    limits.add_argument("--slo-ms", metavar="MS", help="p95 to keep (1000; alone: 150)")
    limits.add_argument("--static", action="store_true", help="keep the limits as they are")
    limits.add_argument("--timeout-s", metavar="S", help="longest wait of a prediction (10)")
    limits.add_argument("--drain-timeout-s", metavar="S", help="longest drain on SIGTERM (30)")
    limits.add_argument("--keep-alive-s", metavar="S", help="idle connections live this long (75)")
    run = parser.add_argument_group("the runtime's own")
    run.add_argument("--speed", metavar="X", help="simulated: times as fast (1)")
    run.add_argument("--jitter", metavar="R", help="simulated: relative spread (0.08)")
    run.add_argument("--noise", metavar="S", help="simulated: sigma of a log-normal tail (0)")
    run.add_argument("--seed", metavar="N", help="simulated: seed of the spread")
    run.add_argument("--input-dim", metavar="N", help="linear: numbers a row (128)")
    run.add_argument("--state-dir", metavar="DIR", help="linear: where weights are kept (var)")
    run.add_argument("--upstream-url", metavar="URL", help="upstream: OpenAI-compatible server")
    run.add_argument("--upstream-model", metavar="NAME", help="upstream: its name of the model")
    mode = parser.add_argument_group("mode")
    mode.add_argument("--standalone", action="store_true", help="a server of its own: /predict")
    mode.add_argument("--json-logs", action="store_true", help="one JSON object a log line")


def from_arguments(args: argparse.Namespace, environ: Mapping[str, str] | None = None) -> Options:
    """The checked options, or `InvalidInput` that names the flag or the variable."""
    read = OptionReader(args, os.environ if environ is None else environ)
    alone: bool = args.standalone
    cores = os.cpu_count() or 1
    runtime = args.runtime or ("linear" if alone else "simulated")
    model, version = args.model, args.version
    for name, value in (("--model", model), ("--version", version)):
        if value is None and not alone:
            raise InvalidInput(name, None, "say what the replica serves, or use --standalone")
    model, version = model or runtime, version or "v1"
    for name, value in (("--model", model), ("--version", version), ("--id", args.id)):
        if value is not None and not _NAME.fullmatch(value):
            raise InvalidInput(name, value, "use up to 128 letters, digits and . _ : / @ -")
    if args.also and alone:
        raise InvalidInput("--also", args.also[0], "a replica that stands alone serves one model")
    also = tuple(_further(given, version) for given in args.also)
    if len({(model, version), *also}) <= len(also):
        raise InvalidInput("--also", " ".join(args.also), "name each model once")
    port = (
        read.integer("port", "HALCYON_PORT", STANDALONE_PORT, 0, 65_535)
        if alone
        else read.integer("port", None, FLEET_PORT, 0, 65_535)
    )
    concurrency = read.integer(
        "max_concurrency", "HALCYON_MAX_WORKERS", cores if alone else 1, 1, 1024
    )
    control_url = args.control_url or read.text("HALCYON_CONTROL_URL")
    token = read.text("HALCYON_FLEET_TOKEN")
    register = not (args.no_register or alone)
    if register and not control_url.startswith(("http://", "https://")):
        raise InvalidInput(
            "HALCYON_CONTROL_URL",
            control_url,
            "say where the control API is (http://host:port), or use --no-register",
        )
    if register and not token:
        raise InvalidInput(
            "HALCYON_FLEET_TOKEN", "", "set it to a fleet token, or use --no-register"
        )
    hostname = re.sub(r"[^\w.-]", "-", socket.gethostname())[:40]
    return Options(
        model=model,
        version=version,
        also=also,
        gpu_memory_ratio=None
        if args.gpu_memory_ratio is None
        else read.number("gpu_memory_ratio", None, 0.0, 0.0, 1.0),
        runtime=runtime,
        replica_id=args.id or f"{model}-{version}-{hostname}-{port}"[:128],
        host=args.host,
        port=port,
        address=args.address,
        standalone=alone,
        register=register,
        control_url=control_url.rstrip("/"),
        token=token,
        weight=read.number("weight", None, 1.0, 0.001, 1000.0),
        accelerator=args.accelerator or "",
        max_batch_size=read.integer(
            "max_batch_size", "HALCYON_BATCH_SIZE" if alone else None, 8 if alone else 32, 1, 4096
        ),
        max_batch_tokens=read.integer("max_batch_tokens", None, 16_384, 1, 2**31 - 1),
        max_concurrency=concurrency,
        max_queue=read.integer(
            "max_queue",
            "HALCYON_MAX_QUEUE_SIZE" if alone else None,
            500 if alone else 2 * concurrency,
            2,
            1_000_000,
        ),
        slo_ms=read.number("slo_ms", "HALCYON_SLO_MS", 150.0 if alone else 1000.0, 1.0, 600_000.0),
        adaptive=not args.static,
        controller_interval_s=read.number(None, "HALCYON_CONTROLLER_INTERVAL", 2.0, 0.1, 3600.0),
        memory_threshold=read.number(None, "HALCYON_MEMORY_THRESHOLD", 85.0, 1.0, 100.0),
        timeout_s=read.number("timeout_s", None, 10.0, 0.01, 3600.0),
        heartbeat_s=read.number("heartbeat_s", None, 5.0, 0.05, 300.0),
        drain_timeout_s=read.number("drain_timeout_s", None, 30.0, 0.0, 3600.0),
        keep_alive_s=read.integer("keep_alive_s", None, 75, 1, 3600),
        speed=read.number("speed", None, 1.0, 1e-4, 1e6),
        jitter=read.number("jitter", None, 0.08, 0.0, 0.99),
        noise=read.number("noise", None, 0.0, 0.0, 2.0),
        seed=None if args.seed is None else read.integer("seed", None, 0, -(2**63), 2**63),
        input_dim=read.integer("input_dim", "HALCYON_MODEL_INPUT_DIM", 128, 1, 65_536),
        state_dir=Path(args.state_dir or read.text("HALCYON_STATE_DIR") or "var"),
        upstream_url=args.upstream_url or "",
        upstream_model=args.upstream_model or "",
        upstream_key=read.text("HALCYON_UPSTREAM_API_KEY"),
        faults=read.boolean("HALCYON_FAULTS"),
        json_logs=args.json_logs,
    )


def _further(given: str, version: str) -> tuple[str, str]:
    """The model and version that `--also` names."""
    model, _, own = given.rpartition("@") if "@" in given else (given, "", "")
    for name in (model, own or version):
        if not _NAME.fullmatch(name):
            raise InvalidInput("--also", given, "use NAME or NAME@VERSION")
    return model, own or version


def parse(argv: Sequence[str] | None = None, prog: str = "python -m fleet.replica") -> Options:
    """Options from a command line; a mistake ends the process with code 2 and one line."""
    parser = argparse.ArgumentParser(
        prog=prog, description="Serve one model version: in a fleet, or alone with --standalone."
    )
    add_arguments(parser)
    try:
        return from_arguments(parser.parse_args(argv))
    except InvalidInput as error:
        parser.error(str(error))
