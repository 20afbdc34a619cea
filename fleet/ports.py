"""Is a port free, and if not, who holds it? Asked before a server is started, so that the
answer is a sentence and not a traceback from the middle of one."""

import socket

import psutil


def is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def holder(port: int) -> str | None:
    """ "name (pid n)" of the process that listens there, where the system says."""
    try:
        for connection in psutil.net_connections(kind="tcp"):
            if (
                connection.status == psutil.CONN_LISTEN
                and getattr(connection.laddr, "port", None) == port
            ):
                if connection.pid is None:
                    return None
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except psutil.Error:
        return None
    return None


def complaint(host: str, port: int, remedy: str) -> str | None:
    """What to tell the user, or None where the port is free."""
    if is_free(host, port):
        return None
    who = holder(port)
    return f"port {port} on {host} is in use{f' by {who}' if who else ''}; {remedy}"
