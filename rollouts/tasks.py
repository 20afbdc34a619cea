"""What Celery runs for rollouts. The schedule is `settings.CELERY_BEAT_SCHEDULE`.

A tick that waited in the queue is dropped when it expires; one that runs twice, or beside
another, judges each window once (`evaluation`).
"""

import logging

from celery import shared_task

from fleet.services import note_alive
from rollouts.evaluation import evaluate_due as judge_due

log = logging.getLogger(__name__)


@shared_task(name="rollouts.tasks.evaluate_due")
def evaluate_due() -> int:
    """Judge every window that is due. Returns how many decisions were made."""
    outcomes = judge_due()
    note_alive(
        "rollouts",
        judged=sum(outcome.decisions for outcome in outcomes),
        errors=[f"{o.rollout}: {o.error}" for o in outcomes if o.error],
    )
    return sum(outcome.decisions for outcome in outcomes)
