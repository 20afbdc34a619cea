"""Servers, settings, disk and clock: what the processes stand on."""

import shutil
from collections.abc import Iterator

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

from fleet.doctor.finding import Finding

OLDEST_POSTGRES = 150_000
OLDEST_REDIS = 7
TIMEOUT_S = 2.0
LEAST_FREE_BYTES = 1 << 30
CLOCK_SKEW_S = 2.0
TRIGGERED_TABLES = (
    "fleet_model",
    "fleet_modelversion",
    "fleet_replica",
    "fleet_tenant",
    "fleet_apikey",
    "fleet_trafficsplit",
)


def database() -> Iterator[Finding]:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_setting('server_version_num')::int, version()")
            number, text = cursor.fetchone()
    except DatabaseError as error:
        yield Finding(
            "database",
            "down",
            str(error).strip().splitlines()[0],
            "Gateways serve on from their last snapshot; nothing can be changed or recorded.",
            "Run `manage.py up`, or start the server that DATABASE_URL names.",
        )
        return
    if number < OLDEST_POSTGRES:
        yield Finding(
            "database",
            "degraded",
            f"{text.split(' on ')[0]} is older than PostgreSQL 15",
            "Migrations or queries may fail.",
            "Upgrade the server that DATABASE_URL names.",
        )
    else:
        yield Finding("database", "healthy", text.split(" on ")[0])


def migrations() -> Iterator[Finding]:
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if plan:
        first = ", ".join(f"{migration.app_label}.{migration.name}" for migration, _ in plan[:3])
        yield Finding(
            "migrations",
            "down",
            f"{len(plan)} are not applied: {first}",
            "Pages, commands and gateways ask for columns that do not exist.",
            "Run `manage.py migrate`.",
        )
    else:
        yield Finding("migrations", "healthy", "all applied")


def triggers() -> Iterator[Finding]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.relname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
            " WHERE t.tgname LIKE 'pgtrigger_notify_update%%' AND t.tgenabled <> 'D'"
        )
        there = {name for (name,) in cursor.fetchall()}
    missing = [table for table in TRIGGERED_TABLES if table not in there]
    if missing:
        yield Finding(
            "triggers",
            "degraded",
            f"changes of {', '.join(missing)} are not announced",
            "Gateways learn of changes by their poll, after 15 s instead of 1 s.",
            "Run `manage.py pgtrigger install` and `manage.py pgtrigger enable`.",
        )
    else:
        yield Finding("triggers", "healthy", "every change of configuration is announced")


def clock() -> Iterator[Finding]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        skew_s = abs((timezone.now() - cursor.fetchone()[0]).total_seconds())
    if skew_s > CLOCK_SKEW_S:
        yield Finding(
            "clock",
            "degraded",
            f"this machine and the database differ by {skew_s:.1f} s",
            "Ages and expiries are wrong by that; requests and rollouts are not affected.",
            "Synchronise both with NTP.",
        )
    else:
        yield Finding("clock", "healthy", f"within {skew_s:.1f} s of the database")


def broker() -> Iterator[Finding]:
    client = redis.Redis.from_url(
        settings.VALKEY_URL, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S
    )
    try:
        info = client.info("server")
    except redis.RedisError as error:
        yield Finding(
            "broker",
            "down",
            str(error),
            "Dashboards stand still, Celery does no work, shared quotas are split evenly. "
            "Inference goes on.",
            "Run `manage.py up`, or start the server that VALKEY_URL names.",
        )
        return
    finally:
        client.close()
    version = str(info.get("valkey_version") or info.get("redis_version"))
    name = "Valkey" if "valkey_version" in info else "Redis"
    if int(version.split(".")[0]) < OLDEST_REDIS:
        yield Finding(
            "broker",
            "degraded",
            f"{name} {version} is older than 7",
            "Commands that quotas and the live feed use may be missing.",
            "Upgrade the server that VALKEY_URL names.",
        )
    else:
        yield Finding("broker", "healthy", f"{name} {version}")


def settings_are_safe() -> Iterator[Finding]:
    wrong = []
    if settings.DEBUG:
        wrong.append("HALCYON_DEBUG is on")
    if "*" in settings.ALLOWED_HOSTS:
        wrong.append("HALCYON_ALLOWED_HOSTS is *")
    if any(network.endswith("/0") for network in settings.HALCYON_REPLICA_NETWORKS):
        wrong.append("HALCYON_REPLICA_NETWORKS allows every address")
    if wrong:
        yield Finding(
            "settings",
            "degraded",
            "; ".join(wrong),
            "Error pages show settings and source, or strangers can point gateways anywhere.",
            "Set them for production: docs/reference/settings.md.",
        )
    else:
        yield Finding("settings", "healthy", "debug off, hosts and replica networks limited")


def disk() -> Iterator[Finding]:
    place = settings.HALCYON_VAR
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if free < LEAST_FREE_BYTES:
        yield Finding(
            "disk",
            "degraded",
            f"{free / (1 << 20):.0f} MiB are free at {place}",
            "The embedded database stops when the disk is full; gateways cannot keep a spool.",
            "Make room, or move HALCYON_VAR.",
        )
    else:
        yield Finding("disk", "healthy", f"{free / (1 << 30):.0f} GiB free at {place}")
