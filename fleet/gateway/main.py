"""Start a gateway: one process in this one, or several under a supervisor.

    run(port=8080, processes=4)      blocks until SIGTERM or SIGINT, returns the exit code

What is not said comes from Django's settings: the database as its connection names it, the
Valkey, and `HALCYON_VAR/gateway` for the kept configuration. `python -m fleet.gateway` is
what the supervisor starts; it needs nothing from the command line.
"""

import logging.config
import os
from pathlib import Path
from typing import Any

from fleet.gateway.config import GatewayConfig


def run(
    host: str = "127.0.0.1",
    port: int = 8080,
    processes: int = 1,
    *,
    database_url: str | None = None,
    valkey_url: str | None = None,
    state_dir: str | Path | None = None,
    **options: Any,
) -> int:
    """Run a gateway until it is told to stop. `options` are those of `GatewayConfig`."""
    from django.conf import settings

    from fleet.database import conninfo

    options.setdefault("secret", settings.SECRET_KEY)
    options.setdefault("metrics_networks", _networks())
    options.setdefault("warm_up_s", settings.HALCYON_WARM_UP_S)
    options.setdefault("upstream_key", os.environ.get("HALCYON_UPSTREAM_API_KEY", ""))
    config = GatewayConfig(
        host=host,
        port=port,
        processes=processes,
        database_url=conninfo() if database_url is None else database_url,
        valkey_url=settings.VALKEY_URL if valkey_url is None else valkey_url,
        state_dir=str(settings.HALCYON_VAR / "gateway" if state_dir is None else state_dir),
        **options,
    )
    if processes == 1:
        from fleet.gateway.server import serve

        return serve(config)
    from fleet.gateway.supervisor import Supervisor

    return Supervisor(config).run()


def run_child() -> int:
    """One process of several, as the supervisor asked for it."""
    from django.conf import settings

    from fleet.gateway.config import in_child
    from fleet.gateway.server import serve
    from fleet.gateway.supervisor import LIFELINE_VARIABLE

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "halcyon_site.settings")
    logging.config.dictConfig(settings.LOGGING)
    number, config = in_child()
    lifeline = os.environ.pop(LIFELINE_VARIABLE, None)
    return serve(config, number, None if lifeline is None else int(lifeline))


def _networks() -> tuple[str, ...]:
    sent = os.environ.get("HALCYON_METRICS_NETWORKS", "")
    return tuple(part.strip() for part in sent.split(",") if part.strip())
