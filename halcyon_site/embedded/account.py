"""Which account the embedded PostgreSQL runs under. PostgreSQL refuses to run as root.

As an ordinary user: that user. As root (a container): the owner of an existing data
directory, else the account `pgserver`, created if the system can, else `nobody`.

That account must be able to *walk through* the folders above the data directory and the
binaries, so as root the missing execute-for-others bits are added to them: nothing else,
in particular no read permission, so that a home folder still cannot be listed.
"""

import os
import pwd
import stat
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ACCOUNT = "pgserver"


@dataclass(slots=True, frozen=True)
class Account:
    """Numeric ids for `subprocess`, or None where the current user is fine."""

    uid: int | None
    gid: int | None

    def popen_arguments(self) -> dict[str, Any]:
        if self.uid is None:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def own(self, path: Path) -> None:
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid)


def account_for(data: Path) -> Account:
    if os.geteuid() != 0:
        return Account(None, None)
    if (data / "PG_VERSION").exists():
        owner = data.stat()
        if owner.st_uid != 0:
            return Account(owner.st_uid, owner.st_gid)
    with suppress(OSError):
        subprocess.run(
            ["useradd", "--system", "--shell", "/usr/sbin/nologin", ACCOUNT],
            check=False,
            capture_output=True,
        )
    for name in (ACCOUNT, "nobody"):
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            return Account(entry.pw_uid, entry.pw_gid)
    return Account(65_534, 65_534)


def open_the_way(path: Path) -> None:
    """Let every account pass through (not list) the folders above `path`."""
    if os.geteuid() != 0:
        return
    for folder in path.resolve().parents:
        mode = stat.S_IMODE(folder.stat().st_mode)
        if not mode & stat.S_IXOTH:
            with suppress(OSError):
                folder.chmod(mode | stat.S_IXOTH)
