"""The checks of the system page: each says what holds, and where it does not, cause,
consequence and remedy.

They look at what a web process can see: the database and its migrations, the broker, beat's
and the workers' last sign of life, the gateways, and the versions in use. None of them
raises: a check that cannot be made is a finding.
"""

import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Literal

from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from fleet.dashboard.format import plural, seconds
from fleet.live.scene import Scene
from fleet.selectors import presence

Word = Literal["healthy", "degraded", "down", "unknown"]

BEAT_LATE_S = 30.0  # six of beat's own ticks
PACKAGES = ("django", "channels", "daphne", "psycopg", "celery", "numpy", "plotly", "redis")


@dataclass(slots=True, frozen=True)
class Check:
    name: str
    word: Word
    finding: str
    consequence: str = ""
    remedy: str = ""


def run(scene: Scene) -> list[Check]:
    """Every check, in the order in which things depend on each other."""
    return list(_run(scene))


def _run(scene: Scene) -> Iterator[Check]:
    database = _database()
    yield database
    if database.word == "healthy":
        yield _guarded("Migrations", _migrations)
        yield _guarded("Beat", _beat)
    yield _broker(scene)
    yield _gateways(scene)
    yield _replicas(scene)


def _guarded(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except DatabaseError as error:
        said = str(error).splitlines()[0]
        return Check(name, "unknown", f"could not be checked: {said}", "", "manage.py doctor")


def _database() -> Check:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_setting('server_version'), pg_postmaster_start_time()")
            server, since = cursor.fetchone()
    except DatabaseError as error:
        return Check(
            "PostgreSQL",
            "down",
            str(error).splitlines()[0],
            "Gateways serve on from their last snapshot; nothing can be changed.",
            "Start the server that DATABASE_URL names, or unset it for the embedded one.",
        )
    return Check("PostgreSQL", "healthy", f"version {server}, up since {since:%F %H:%M} UTC")


def _migrations() -> Check:
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if plan:
        names = ", ".join(f"{migration.app_label}.{migration.name}" for migration, _ in plan[:3])
        return Check(
            "Migrations",
            "down",
            f"{plural(len(plan), 'migration')} not applied: {names}",
            "Pages and gateways may ask for columns that do not exist.",
            "manage.py migrate",
        )
    return Check("Migrations", "healthy", "all applied")


def _beat() -> Check:
    beats = presence("beat")
    if not beats:
        return Check(
            "Beat",
            "unknown",
            "was never heard of",
            "Rollouts hold, silent replicas stay listed, windows are not rolled up.",
            "celery -A halcyon_site worker --beat",
        )
    youngest = min(beats, key=lambda beat: beat.age_s)
    if youngest.age_s > BEAT_LATE_S:
        return Check(
            "Beat",
            "down",
            f"last tick {seconds(youngest.age_s)} ago",
            "Rollouts hold where they are; abort works without it.",
            "Start a worker and beat: celery -A halcyon_site worker --beat",
        )
    return Check("Beat", "healthy", f"last tick {seconds(youngest.age_s)} ago")


def _broker(scene: Scene) -> Check:
    if scene.broker_failing_since_ms is not None:
        since = (scene.at_ms - scene.broker_failing_since_ms) / 1000
        return Check(
            "Broker",
            "down",
            f"not reachable for {seconds(since)}: {scene.broker_error}",
            "Dashboards stand still; Celery does no work. Inference is not affected.",
            "Start the server that VALKEY_URL names.",
        )
    return Check("Broker", "healthy", "this web process is joined to the live feed")


def _gateways(scene: Scene) -> Check:
    gateways = scene.state["gateways"]
    if not gateways:
        return Check(
            "Gateways",
            "unknown",
            "none has spoken since this web process started",
            "Nothing serves, or nothing is told.",
            "manage.py gateway",
        )
    lost = [gateway["id"] for gateway in gateways if gateway["status"] == "down"]
    amiss = [f"{g['id']}: {', '.join(g['degraded'])}" for g in gateways if g["degraded"]]
    if lost:
        return Check(
            "Gateways",
            "down" if len(lost) == len(gateways) else "degraded",
            f"silent: {', '.join(lost)}",
            "Requests in flight there were lost; load balancers send new ones elsewhere.",
            "Look at its log; restart it. It needs nothing but Postgres to begin with.",
        )
    if amiss:
        return Check("Gateways", "degraded", "; ".join(amiss), "", "manage.py doctor")
    if scene.state["converged"] is False:
        return Check("Gateways", "degraded", "they work from different snapshots")
    return Check("Gateways", "healthy", f"{plural(len(gateways), 'gateway')} on one snapshot")


def _replicas(scene: Scene) -> Check:
    replicas = scene.state["replicas"]
    if not replicas:
        return Check(
            "Replicas",
            "unknown",
            "no gateway knows of any",
            "Every request is refused as no capacity.",
            "manage.py replica --model MODEL --version VERSION",
        )
    down = [replica["replicaId"] for replica in replicas if replica["status"] == "down"]
    if down:
        shown = ", ".join(down[:5]) + (" …" if len(down) > 5 else "")
        word: Word = "down" if len(down) == len(replicas) else "degraded"
        return Check("Replicas", word, f"{len(down)} of {len(replicas)} down: {shown}")
    return Check("Replicas", "healthy", f"{plural(len(replicas), 'replica')}, none down")


def versions() -> list[tuple[str, str]]:
    """What this web process is made of."""
    return [("Python", platform.python_version()), *((name, version(name)) for name in PACKAGES)]
