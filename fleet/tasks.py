"""What Celery runs for the fleet. The schedule is `settings.CELERY_BEAT_SCHEDULE`."""

import socket

from celery import shared_task

from fleet.services import note_alive, upkeep


@shared_task
def beat_heartbeat() -> None:
    """Beat sent it, a worker ran it: seeing it proves that both live."""
    note_alive("beat", worker=socket.gethostname())


@shared_task
def sweep_replicas() -> list[str]:
    return upkeep.sweep_replicas()


@shared_task
def roll_up_windows() -> int:
    return upkeep.roll_up_windows()


@shared_task
def forget_old_rows() -> dict[str, int]:
    return upkeep.forget_old_rows()
