"""Run as a script: rollouts under way on a real PostgreSQL, and ticks of the worker's judge.

Prints JSON: one object a tick. `judge_ms` is the engine's part of it; `cpu_ms` this process's,
which the database's own is not part of; `wall_ms` all of it, the commits included.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

INTERVAL_S = 30
HISTORY_WINDOWS = 60
TICKS = 4
LOOK_BACK_S = 180
POLICY = {"steps": [5, 50, 100], "intervalS": INTERVAL_S, "healthyChecksToAdvance": 1000}
FAR = timedelta(days=1)


def prepare(rollouts: int) -> Any:
    """So many rollouts, each with an hour's judged windows in its state; the first of them."""
    from django.core.management import call_command
    from django.db import connection

    from rollouts import services
    from rollouts.evaluation import evaluate
    from rollouts.models import Rollout
    from tests.rollouts.scene import START, fleet, traffic

    call_command("migrate", verbosity=0)
    names = [f"m{number:03d}" for number in range(rollouts)]
    for name in names:
        fleet("v1", "v2", model=name)
    traffic(START - timedelta(seconds=LOOK_BACK_S), LOOK_BACK_S, model=names[0], per_s=20)
    for name in names:
        services.start(name, "v2", policy=POLICY, actor="bench", reason="a tick", now=START)
    first = Rollout.objects.get(model=names[0])
    seconds = (HISTORY_WINDOWS + TICKS + 1) * INTERVAL_S
    traffic(
        first.window_start, seconds, model=names[0], canary="v2", percent=5.0, per_s=20, gateways=2
    )
    for _ in range(HISTORY_WINDOWS):
        first.refresh_from_db()
        if evaluate(first.pk, now=first.due_at) is None:
            raise RuntimeError("a window of the history was not judged")
    first.refresh_from_db()
    Rollout.objects.exclude(pk=first.pk).update(
        state=first.state, window_start=first.window_start, due_at=first.due_at
    )
    with connection.cursor() as cursor:
        columns = _columns(cursor)
        for name in names[1:]:
            cursor.execute(
                f"INSERT INTO fleet_windowstat (model, {columns}) SELECT %s, {columns}"
                " FROM fleet_windowstat WHERE model = %s AND window_start >= %s",
                [name, names[0], first.window_start - timedelta(seconds=LOOK_BACK_S)],
            )
        cursor.execute("ANALYZE")
    return first


def _columns(cursor: Any) -> str:
    cursor.execute(
        "SELECT column_name FROM information_schema.columns"
        " WHERE table_name = 'fleet_windowstat' AND column_name NOT IN ('id', 'model')"
    )
    return ", ".join(name for (name,) in cursor.fetchall())


@contextmanager
def judging_timed() -> Iterator[list[float]]:
    """The engine's part: processor time of each call of the judge."""
    from rollouts import evaluation

    took: list[float] = []
    real = evaluation.judge

    def timed(*arguments: Any) -> Any:
        started_s = time.process_time()
        try:
            return real(*arguments)
        finally:
            took.append(time.process_time() - started_s)

    evaluation.judge = timed
    try:
        yield took
    finally:
        evaluation.judge = real


def tick(now: Any) -> dict[str, object]:
    from rollouts.evaluation import evaluate_due

    with judging_timed() as judged:
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        outcomes = evaluate_due(now)
        wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    if errors := [outcome.error for outcome in outcomes if outcome.error]:
        raise RuntimeError(errors[0])
    return {
        "due": sum(outcome.decisions for outcome in outcomes),
        "wall_ms": round(wall_s * 1000.0, 1),
        "cpu_ms": round(cpu_s * 1000.0, 1),
        "judge_ms": round(sum(judged) * 1000.0, 1),
    }


def main() -> None:
    import django

    django.setup()
    from django.conf import settings

    from rollouts.models import Rollout

    parser = argparse.ArgumentParser()
    parser.add_argument("--rollouts", type=int, required=True)
    rollouts = parser.parse_args().rollouts
    first = prepare(rollouts)
    now = first.due_at
    found = []
    for _ in range(TICKS - 1):
        found.append(tick(now))
        now += timedelta(seconds=INTERVAL_S)
    beat_s = settings.CELERY_BEAT_SCHEDULE["judge rollouts"]["schedule"]
    usual = max(1, round(rollouts * beat_s / INTERVAL_S))
    others = Rollout.objects.order_by("pk").values_list("pk", flat=True)[usual:]
    Rollout.objects.filter(pk__in=list(others)).update(due_at=now + FAR)
    found.append(tick(now))
    print(json.dumps(found))


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "halcyon_site.settings")
    main()
