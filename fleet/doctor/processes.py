"""Do the processes run? Asked by their heartbeats in the database and over HTTP."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from django.conf import settings
from django.utils import timezone

from fleet.doctor.finding import Finding
from fleet.models import Replica
from fleet.selectors import last_seen, presence

BEAT_LATE_S = 30.0
GATEWAY_LATE_S = 30.0
TIMEOUT_S = 2.0
ASKED_AT_ONCE = 16
NAMED_AT_MOST = 5


def gateway() -> Iterator[Finding]:
    url = settings.HALCYON_GATEWAY_URL
    status, body = ask(f"{url}/readyz")
    if status is None:
        yield Finding(
            "gateway",
            "down",
            f"{url} does not answer: {body}",
            "Nobody is served there.",
            "Start one with `manage.py gateway`, or set HALCYON_GATEWAY_URL to where it is.",
        )
    elif status != 200:
        yield Finding(
            "gateway",
            "down",
            f"{url} says {_word(body, 'status')}",
            "Load balancers send it nothing.",
            "If it drains, that is meant. Otherwise it has never seen the database: repair that.",
        )
    elif degraded := _degraded(body):
        yield Finding(
            "gateway",
            "degraded",
            f"{url} serves without {degraded}",
            "Inference goes on; what is named works from what was known last.",
            "Repair the server behind it; the gateway notices by itself within seconds.",
        )
    else:
        yield Finding("gateway", "healthy", f"{url} is ready")


def web() -> Iterator[Finding]:
    url = settings.HALCYON_WEB_URL
    status, body = ask(f"{url}/readyz")
    if status == 200:
        yield Finding("web", "healthy", f"{url} is ready")
    elif status is None:
        yield Finding(
            "web",
            "down",
            f"{url} does not answer: {body}",
            "No dashboard, no control API; new replicas cannot register. Inference goes on.",
            "Start it with `manage.py web`, or set HALCYON_WEB_URL to where it is.",
        )
    else:
        yield Finding(
            "web",
            "down",
            f"{url} says {_word(body, 'database')}",
            "Pages and the control API fail.",
            "Repair its database.",
        )


def beat() -> Iterator[Finding]:
    seen = last_seen("beat")
    if seen is not None and seen.age_s <= BEAT_LATE_S:
        yield Finding("beat", "healthy", f"last tick {seen.age_s:.0f} s ago")
        return
    cause = "was never heard of" if seen is None else f"last tick {seen.age_s:.0f} s ago"
    yield Finding(
        "beat",
        "down",
        cause,
        "Rollouts hold where they are, silent replicas stay listed, windows are not rolled up.",
        "Start `celery -A halcyon_site beat` and `celery -A halcyon_site worker`.",
    )


def gateways() -> Iterator[Finding]:
    known = presence("gateway:")
    late = [gateway for gateway in known if gateway.age_s > GATEWAY_LATE_S]
    if late:
        names = ", ".join(f"{g.name} ({g.age_s:.0f} s)" for g in late[:NAMED_AT_MOST])
        yield Finding(
            "gateways",
            "degraded",
            f"{len(late)} of {len(known)} have not written lately: {names}",
            "They are gone, or cannot reach the database and keep their records for later.",
            "Look at their logs. One that is gone for good is forgotten after a day.",
        )
    elif known:
        yield Finding("gateways", "healthy", f"{len(known)} record what they serve")


def replicas() -> Iterator[Finding]:
    rows = list(Replica.objects.all())
    if not rows:
        yield Finding(
            "replicas",
            "down",
            "none is registered",
            "Every request is refused: no capacity.",
            "Start one with `manage.py replica`, or write one down with `replicas register`.",
        )
        return
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        answers = dict(zip(rows, pool.map(_reachable, rows), strict=True))
    silent = [row.pk for row, answer in answers.items() if not answer]
    if silent:
        yield Finding(
            "replicas",
            "down" if len(silent) == len(rows) else "degraded",
            f"{len(silent)} of {len(rows)} do not answer: {', '.join(silent[:NAMED_AT_MOST])}",
            "Gateways leave them out; the others carry their share while they can.",
            "Look at their logs; remove one that is gone: `manage.py replicas remove ID`.",
        )
    else:
        yield Finding("replicas", "healthy", f"all {len(rows)} answer")
    draining = [row.pk for row in rows if row.draining]
    if draining:
        yield Finding(
            "draining",
            "degraded",
            f"{', '.join(draining[:NAMED_AT_MOST])} get no new work",
            "Capacity is smaller by them.",
            "When you are done: `manage.py replicas undrain ID`.",
        )
    forgotten_s = settings.HALCYON_REPLICA_SILENT_S
    quiet = [
        row.pk
        for row in rows
        if row.heartbeat_at is not None
        and (timezone.now() - row.heartbeat_at).total_seconds() > forgotten_s
        and answers[row]
    ]
    if quiet:
        yield Finding(
            "registration",
            "degraded",
            f"{', '.join(quiet[:NAMED_AT_MOST])} serve, but have stopped registering",
            "A change of their limits is not noticed, and they are forgotten after a day.",
            "Check HALCYON_CONTROL_URL and the fleet token in their logs.",
        )


def _reachable(replica: Replica) -> bool:
    path = "/v1/models" if replica.protocol == "openai" else "/healthz"
    return ask(f"{replica.address}{path}")[0] is not None


def ask(url: str) -> tuple[int | None, str]:
    """Status and body; None and the reason where nobody answered."""
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            return answer.status, answer.read(65_536).decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(65_536).decode("utf-8", "replace")
    except (OSError, ValueError) as error:
        return None, str(getattr(error, "reason", error))


def _word(body: str, name: str) -> str:
    try:
        return str(json.loads(body)[name])
    except (ValueError, KeyError, TypeError):
        return "that it is not ready"


def _degraded(body: str) -> str:
    try:
        return ", ".join(json.loads(body).get("degraded") or ())
    except (ValueError, AttributeError):
        return ""
