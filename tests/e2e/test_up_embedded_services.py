"""The embedded PostgreSQL and Valkey: they survive what happens to machines and people."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from halcyon_site.embedded import AlreadyOwned, EmbeddedServices, postgres, valkey
from halcyon_site.embedded.places import SOCKET_PATH_LIMIT, places

pytestmark = [pytest.mark.xdist_group("embedded")]


@pytest.fixture
def var() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="halcyon-embedded-"))
    yield directory / "var"
    EmbeddedServices(directory / "var").stop()
    shutil.rmtree(directory)


def remember(services: EmbeddedServices, value: str) -> None:
    with psycopg.connect(services.places.database_url, autocommit=True) as connection:
        connection.execute("create table if not exists kept (value text)")
        connection.execute("insert into kept values (%s)", [value])


def remembered(services: EmbeddedServices) -> list[str]:
    with psycopg.connect(services.places.database_url) as connection:
        return [row[0] for row in connection.execute("select value from kept order by 1")]


def test_data_survives_a_stop_and_a_start(var: Path) -> None:
    services = EmbeddedServices(var)
    with services.owned():
        remember(services, "a")
        redis.Redis(unix_socket_path=str(services.places.valkey_socket)).set("kept", "b")
    assert services.status() == {"postgres": False, "valkey": False}
    with services.owned():
        assert remembered(services) == ["a"]


def test_starting_twice_adopts_what_runs(var: Path) -> None:
    services = EmbeddedServices(var)
    services.start()
    first = postgres.running(services.places)
    EmbeddedServices(var).start()
    assert postgres.running(services.places) == first


def test_servers_whose_owner_was_killed_are_adopted_and_stopped_by_the_next(var: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from halcyon_site.embedded import *\n"
        "with EmbeddedServices(Path(sys.argv[1])).owned(): print('up', flush=True); time.sleep(600)"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", script, str(var)], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == "up\n"
    services = EmbeddedServices(var)
    with pytest.raises(AlreadyOwned, match=str(owner.pid)), services.lock():
        pass
    owner.kill()
    owner.wait()
    owner.stdout.close()
    assert services.status() == {"postgres": True, "valkey": True}
    with services.owned():
        remember(services, "after")
    assert services.status() == {"postgres": False, "valkey": False}


def test_a_killed_postgres_comes_back_with_its_data(var: Path) -> None:
    services = EmbeddedServices(var)
    services.start()
    remember(services, "a")
    process = postgres.running(services.places)
    assert process is not None
    process.kill()
    server = valkey.running(services.places)
    assert server is not None
    server.kill()
    services.start()
    assert remembered(services) == ["a"]
    assert valkey.answers(services.places)


def test_a_server_that_hangs_is_replaced(var: Path) -> None:
    services = EmbeddedServices(var)
    services.start()
    hung = valkey.running(services.places)
    assert hung is not None
    hung.send_signal(signal.SIGSTOP)
    services.start()
    fresh = valkey.running(services.places)
    assert fresh is not None
    assert fresh.pid != hung.pid
    assert valkey.answers(services.places)


def test_a_pid_file_that_names_a_stranger_is_not_believed(var: Path) -> None:
    services = EmbeddedServices(var)
    services.start()
    services.stop()
    pid_file = services.places.postgres_data / "postmaster.pid"
    pid_file.write_text(f"{os.getpid()}\n{services.places.postgres_data}\n")
    assert postgres.running(services.places) is None
    services.start()
    assert postgres.answers(services.places)


def test_an_initialisation_that_was_cut_off_is_begun_again(var: Path) -> None:
    data = var / "postgres"
    data.mkdir(parents=True)
    (data / "half").write_text("written")
    (data / "base").mkdir()
    services = EmbeddedServices(var)
    services.start()
    assert postgres.answers(services.places)


def test_a_path_too_long_for_a_socket_still_works(var: Path) -> None:
    deep = var / ("d" * 60) / ("e" * 60)
    found = places(deep)
    assert len(str(found.valkey_socket)) <= SOCKET_PATH_LIMIT
    services = EmbeddedServices(deep)
    with services.owned():
        remember(services, "a")
        assert remembered(services) == ["a"]
    shutil.rmtree(found.postgres_socket_dir, ignore_errors=True)
    shutil.rmtree(found.valkey_socket.parent, ignore_errors=True)


def test_no_other_account_can_open_the_sockets(var: Path) -> None:
    services = EmbeddedServices(var)
    services.start()
    assert services.places.postgres_socket_dir.stat().st_mode & 0o077 == 0
    assert services.places.valkey_socket.stat().st_mode & 0o077 == 0
