"""Where the embedded services live: addresses that follow from the directory alone.

`settings.py` computes the same addresses that `up` starts the servers at, so a second
terminal (`manage.py doctor`, a test's child process) finds them without a discovery file.
Both servers listen on Unix sockets only: no port to collide with, no door to the network.

A Unix socket's path may have about 107 bytes. Where `var/` lies deeper than that, the
sockets move to a directory in the temporary folder whose name is a hash of the path.
"""

import hashlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

SOCKET_PATH_LIMIT = 100
DATABASE_NAME = "halcyon"
DATABASE_PORT = 5432  # part of the socket's file name; nothing listens on TCP


@dataclass(slots=True, frozen=True)
class Places:
    """The paths and URLs that belong to one `var/` directory."""

    var: Path

    @property
    def postgres_data(self) -> Path:
        return self.var / "postgres"

    @property
    def postgres_log(self) -> Path:
        return self.var / "log" / "postgres.log"

    @property
    def postgres_socket_dir(self) -> Path:
        return self._socket_dir(self.postgres_data, f".s.PGSQL.{DATABASE_PORT}", "pg")

    @property
    def valkey_data(self) -> Path:
        return self.var / "valkey"

    @property
    def valkey_log(self) -> Path:
        return self.var / "log" / "valkey.log"

    @property
    def valkey_socket(self) -> Path:
        name = "valkey.sock"
        return self._socket_dir(self.valkey_data, name, "valkey") / name

    @property
    def lock(self) -> Path:
        return self.var / "up.lock"

    @property
    def database_url(self) -> str:
        return self.database_url_of(DATABASE_NAME)

    def database_url_of(self, name: str) -> str:
        host = quote(str(self.postgres_socket_dir), safe="/")
        return f"postgresql://postgres@/{name}?host={host}&port={DATABASE_PORT}"

    @property
    def valkey_url(self) -> str:
        return f"unix://{self.valkey_socket}"

    def _socket_dir(self, preferred: Path, socket_name: str, kind: str) -> Path:
        if len(str(preferred / socket_name).encode()) <= SOCKET_PATH_LIMIT:
            return preferred
        digest = hashlib.sha256(str(self.var).encode()).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"halcyon-{kind}-{digest}"


def places(var: Path) -> Places:
    return Places(var.expanduser().resolve())
