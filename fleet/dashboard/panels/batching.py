"""Which batches leave, how full, and why: the queues and the reasons of their flushes."""

from typing import Any

from fleet.dashboard.format import count, ms, number
from fleet.dashboard.meanings import FLUSHES
from fleet.live.combine import totals_by_key
from fleet.live.state import LiveState

Row = dict[str, Any]


def queue_rows(state: LiveState, *, limit: int | None = None) -> list[Row]:
    """The fullest queues first."""
    ranked = sorted(state["queues"], key=lambda q: (-q["queued"], q["model"], q["version"]))
    return [
        {
            "id": f"{queue['model']}/{queue['version']}",
            "model": queue["model"],
            "version": queue["version"],
            "queued": count(queue["queued"]),
            "work": number(queue["queuedWork"]),
            "oldest": ms(queue["oldestMs"]),
            "batch": number(queue["meanBatch"]),
            "mode": queue["mode"],
            "slot": ms(queue["slotMs"]),
            "theta": number(queue["theta"]),
            "spark": queue["queued"],
        }
        for queue in ranked[:limit]
    ]


def flush_bars(state: LiveState) -> list[Row]:
    """Why batches left, over all queues since their gateways started."""
    reasons = totals_by_key(state["queues"], "flushReasons")
    total = sum(reasons.values())
    ranked = sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0]))
    return [
        {
            "id": reason,
            "reason": reason,
            "batches": count(n),
            "share": round(n / total, 3),
            "meaning": FLUSHES.get(reason, ""),
        }
        for reason, n in ranked
        if n > 0
    ]


def mean_batch(state: LiveState) -> float | None:
    """Members of an average batch, weighted by batches."""
    weighted = [
        (queue["meanBatch"], sum(queue["flushReasons"].values()))
        for queue in state["queues"]
        if queue["meanBatch"] is not None
    ]
    batches = sum(n for _, n in weighted)
    return sum(size * n for size, n in weighted) / batches if batches else None
