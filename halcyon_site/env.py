"""Typed reading of environment variables: each `NAME` may also come from the file `NAME_FILE`.

The file form is how container secrets arrive. A value that does not parse stops the process
with the variable's name, the value and what was expected; it is never silently replaced by
the default.
"""

import os
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

TRUE = frozenset({"1", "true", "yes", "on"})
FALSE = frozenset({"0", "false", "no", "off", ""})


def text(name: str, default: str = "") -> str:
    """The variable, else the content of the file that `NAME_FILE` names, else the default."""
    value = os.environ.get(name)
    if value is not None:
        return value
    path = os.environ.get(f"{name}_FILE")
    if not path:
        return default
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ImproperlyConfigured(f"{name}_FILE={path!r}: cannot be read ({error})") from error


def boolean(name: str, default: bool = False) -> bool:
    raw = text(name, "1" if default else "0").strip().lower()
    if raw in TRUE:
        return True
    if raw in FALSE:
        return False
    raise ImproperlyConfigured(f"{name}={raw!r}: use one of 1, true, yes, on, 0, false, no, off")


def integer(name: str, default: int, *, low: int = 0, high: int = 2**31) -> int:
    raw = text(name, str(default)).strip()
    try:
        value = int(raw)
    except ValueError:
        raise ImproperlyConfigured(f"{name}={raw!r}: use a whole number") from None
    if not low <= value <= high:
        raise ImproperlyConfigured(f"{name}={value}: use a number from {low} to {high}")
    return value


def number(name: str, default: float, *, low: float = 0.0, high: float = 1e12) -> float:
    raw = text(name, str(default)).strip()
    try:
        value = float(raw)
    except ValueError:
        raise ImproperlyConfigured(f"{name}={raw!r}: use a number") from None
    if not low <= value <= high:
        raise ImproperlyConfigured(f"{name}={value:g}: use a number from {low:g} to {high:g}")
    return value


def items(name: str, default: str = "") -> list[str]:
    """A comma-separated list; empty members are dropped."""
    return [part.strip() for part in text(name, default).split(",") if part.strip()]


def database(url: str) -> dict[str, object]:
    """Django's database settings from `postgresql://user:password@host:port/name?option=value`.

    `?host=/path` names a directory with a Unix socket, as libpq has it.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"postgresql", "postgres"}:
        raise ImproperlyConfigured(
            f"DATABASE_URL has the scheme {parts.scheme!r}: use postgresql://user:password@host/name"
        )
    options = dict(parse_qsl(parts.query))
    host = options.pop("host", "") or unquote(parts.hostname or "")
    name = unquote(parts.path.lstrip("/"))
    if not name:
        raise ImproperlyConfigured("DATABASE_URL names no database: append /name")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": name,
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": host,
        "PORT": str(parts.port or ""),
        "CONN_MAX_AGE": 0,
        "OPTIONS": options,
    }


def celery_broker(valkey_url: str) -> str:
    """Celery's spelling of a Redis-protocol address (Unix sockets have one of their own)."""
    if valkey_url.startswith("unix://"):
        return "redis+socket://" + valkey_url.removeprefix("unix://")
    if valkey_url.startswith(("valkey://", "valkeys://")):
        return "redis" + valkey_url.removeprefix("valkey")
    return valkey_url


def redis_client(valkey_url: str) -> str:
    """The same address as redis-py spells it."""
    if valkey_url.startswith(("valkey://", "valkeys://")):
        return "redis" + valkey_url.removeprefix("valkey")
    if valkey_url.startswith(("redis://", "rediss://", "unix://")):
        return valkey_url
    raise ImproperlyConfigured(
        f"VALKEY_URL={valkey_url!r}: use redis://host:6379/0, valkey://host:6379/0 or unix:///path"
    )
