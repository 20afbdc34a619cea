"""One PostgreSQL and one Valkey for the whole run, started by the first test that asks.

`embedded_services` starts them; pytest-django's database fixtures depend on it, so `db` and
`transactional_db` work as usual, with a database a worker. `scratch_database` is for tests
that start processes: a migrated database of their own, named by an environment to pass on.

The process that began the run holds a lock in the directory. A later run that finds such a
directory without its lock ends the servers in it and removes it: a killed run leaves
nothing behind for long.
"""

import fcntl
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psycopg
import pytest
from django.conf import settings
from django.db import connection
from hypothesis import settings as hypothesis_settings

from halcyon_site.embedded import EmbeddedServices

# no deadline an example: a busy machine is not a fault
hypothesis_settings.register_profile("halcyon", deadline=None, max_examples=60)
hypothesis_settings.load_profile("halcyon")

_owner_lock: IO[str] | None = None


def _var() -> Path:
    return Path(os.environ["HALCYON_TEST_VAR"])


def _is_owner() -> bool:
    return os.environ.get("HALCYON_TEST_OWNER") == str(os.getpid())


def _services(var: Path) -> EmbeddedServices:
    return EmbeddedServices(
        var,
        durable=False,
        with_postgres=settings.HALCYON_EMBEDDED_POSTGRES,
        with_valkey=settings.HALCYON_EMBEDDED_VALKEY,
    )


def pytest_configure(config: pytest.Config) -> None:
    global _owner_lock
    if _is_owner() and _owner_lock is None:
        _owner_lock = (_var() / "owner.lock").open("w")
        fcntl.flock(_owner_lock, fcntl.LOCK_EX)
        for left_behind in Path(tempfile.gettempdir()).glob("halcyon-test-*"):
            _remove_if_ownerless(left_behind)


def pytest_unconfigure(config: pytest.Config) -> None:
    if _is_owner():
        _services(_var()).stop()
        shutil.rmtree(_var(), ignore_errors=True)
        if _owner_lock is not None:
            _owner_lock.close()


def _remove_if_ownerless(directory: Path) -> None:
    lock = directory / "owner.lock"
    with suppress(OSError), lock.open("r+") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _services(directory).stop()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def embedded_services() -> None:
    """Have both servers running. Workers take turns: the first starts, the rest find them."""
    with (_var() / "start.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        _services(_var()).start()


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    embedded_services: None, django_db_modify_db_settings_parallel_suffix: None
) -> None:
    """pytest-django's hook: runs before it creates the test database."""


@pytest.fixture(scope="session")
def valkey_url(embedded_services: None) -> str:
    return str(settings.VALKEY_URL)


@dataclass(frozen=True)
class ScratchDatabase:
    """A migrated database for child processes. `environment` is what they inherit."""

    url: str
    environment: dict[str, str]


@pytest.fixture(scope="session")
def template_database(django_db_setup: None, django_db_blocker: object) -> Iterator[str]:
    """The migrated test database. pytest-django makes it only for a run in which some test
    asks for `db`; for the others it is made here."""
    with django_db_blocker.unblock():  # type: ignore[attr-defined]
        name = str(connection.settings_dict["NAME"])
        made_here = name != connection.creation._get_test_db_name()
        if made_here:
            connection.creation.create_test_db(verbosity=0, autoclobber=True)
        yield str(connection.settings_dict["NAME"])
        if made_here:
            connection.creation.destroy_test_db(name, verbosity=0)


@pytest.fixture
def scratch_database(
    template_database: str, django_db_blocker: object
) -> Iterator[ScratchDatabase]:
    """A fresh copy of the migrated test database, dropped afterwards.

    The test database is only a template here and nothing may be connected to it, so do not
    combine this with `db` in one test: speak to the copy through `url`.
    """
    with _copied(template_database, django_db_blocker) as database:
        yield database


@pytest.fixture(scope="module")
def module_database(template_database: str, django_db_blocker: object) -> Iterator[ScratchDatabase]:
    """The same for a whole module whose tests share one process before it."""
    with _copied(template_database, django_db_blocker) as database:
        yield database


@pytest.fixture(scope="session")
def session_database(
    template_database: str, django_db_blocker: object
) -> Iterator[ScratchDatabase]:
    """The same for the whole run: for what is dear to fill and whose readers share it."""
    with _copied(template_database, django_db_blocker) as database:
        yield database


@contextmanager
def _copied(template: str, django_db_blocker: object) -> Iterator[ScratchDatabase]:
    with django_db_blocker.unblock():  # type: ignore[attr-defined]
        connection.close()
    name = f"scratch_{uuid.uuid4().hex[:12]}"
    maintenance = _url_of("postgres")
    with psycopg.connect(maintenance, autocommit=True) as server:
        server.execute(f'create database "{name}" template "{template}"')
    url = _url_of(name)
    try:
        yield ScratchDatabase(
            url,
            {
                **os.environ,
                "DJANGO_SETTINGS_MODULE": "halcyon_site.settings",
                "DATABASE_URL": url,
                "VALKEY_URL": str(settings.VALKEY_URL),
                "PYTHONUNBUFFERED": "1",
            },
        )
    finally:
        with psycopg.connect(maintenance, autocommit=True) as server:
            server.execute(f'drop database if exists "{name}" with (force)')


def _url_of(database: str) -> str:
    """The run's DATABASE_URL with another database's name."""
    base, _, rest = str(settings.DATABASE_URL).partition("?")
    root = base.rsplit("/", 1)[0]
    return f"{root}/{database}" + (f"?{rest}" if rest else "")
