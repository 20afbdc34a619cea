"""When a window begins, when it can be judged, and when somebody should worry.

A changed split reaches every gateway within a second, and requests that were under way then
end a little later: evidence begins `SETTLE_S` after a change. Gateways write each second's
window about a second after it closed: a window is judged `LATENESS_S` after its end. What
arrives later still is not counted, in any window. All instants are whole seconds, because
the gateways' windows are.
"""

from datetime import UTC, datetime, timedelta

SETTLE_S = 2.0
LATENESS_S = 2.0
OVERDUE_S = 10.0


def first_window(changed_at: datetime) -> datetime:
    """Where evidence begins after the split changed."""
    return _ceiling(changed_at + timedelta(seconds=SETTLE_S))


def due_at(window_start: datetime, interval_s: float) -> datetime:
    """When the window that begins there can be judged."""
    return window_start + timedelta(seconds=interval_s + LATENESS_S)


def window_end(window_start: datetime, interval_s: float) -> datetime:
    return window_start + timedelta(seconds=interval_s)


def overdue_s(due: datetime | None, interval_s: float, now: datetime) -> float | None:
    """By how much the next verdict is late, in seconds; None while it is not."""
    if due is None:
        return None
    late_s = (now - due).total_seconds()
    return late_s if late_s > max(OVERDUE_S, interval_s) else None


def _ceiling(moment: datetime) -> datetime:
    whole = moment.astimezone(UTC).replace(microsecond=0)
    return whole if whole == moment else whole + timedelta(seconds=1)
