"""What a gateway is started with. `manage.py gateway` and the tests fill it in."""

import ipaddress
import os
from pathlib import Path

import msgspec

from engine.errors import InvalidInput, require_positive, require_range


class GatewayConfig(msgspec.Struct, kw_only=True, frozen=True):
    """One gateway: its address, its neighbours and its limits.

    `grace_s` is how long it still refuses politely after SIGTERM, so that load balancers
    notice; `drain_s` how long it waits at most for what it holds. `idle_s` closes silent
    keep-alive connections, `poll_s` is the net under LISTEN. Timings of a replica younger than
    `warm_up_s` are nobody's evidence. `state_dir` keeps the last configuration and the spool.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    processes: int = 1
    database_url: str = ""
    valkey_url: str = ""
    state_dir: str = "var/gateway"
    private_dir: str = ""  # of the siblings' sockets; made by the supervisor
    body_limit: int = 2 * 1024 * 1024
    grace_s: float = 0.5
    drain_s: float = 30.0
    idle_s: float = 75.0
    poll_s: float = 15.0
    warm_up_s: float = 30.0
    metrics_networks: tuple[str, ...] = ()
    upstream_key: str = ""  # bearer key that OpenAI-compatible replicas ask for
    secret: str = ""  # salts the size lottery; the same for all processes of a fleet

    def __post_init__(self) -> None:
        require_range("port", self.port, 1, 65_535)
        require_range("processes", self.processes, 1, 256)
        require_range("body_limit", self.body_limit, 1024, unit="bytes")
        require_range("grace_s", self.grace_s, 0.0, unit="s")
        require_range("drain_s", self.drain_s, 0.0, unit="s")
        require_positive("idle_s", self.idle_s, unit="s")
        require_positive("poll_s", self.poll_s, unit="s")
        require_range("warm_up_s", self.warm_up_s, 0.0, unit="s")
        if not self.database_url:
            raise InvalidInput("database_url", self.database_url, "must name a PostgreSQL")
        for network in self.metrics_networks:
            try:
                ipaddress.ip_network(network)
            except ValueError as error:
                raise InvalidInput("metrics_networks", network, str(error)) from None

    @property
    def snapshot_path(self) -> Path:
        return Path(self.state_dir) / f"snapshot-{self.port}.msgpack"

    @property
    def spool_path(self) -> Path:
        return Path(self.state_dir) / "spool"


CHILD_VARIABLE = "HALCYON_GATEWAY_CHILD"


def to_child(config: GatewayConfig, process: int) -> dict[str, str]:
    """The environment of a child process."""
    body = msgspec.json.encode([process, config]).decode()
    return {**os.environ, CHILD_VARIABLE: body}


def in_child() -> tuple[int, GatewayConfig]:
    """What the supervisor told this child."""
    return msgspec.json.decode(os.environ[CHILD_VARIABLE], type=tuple[int, GatewayConfig])
