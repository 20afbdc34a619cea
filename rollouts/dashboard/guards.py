"""The comparisons behind a verdict, one row each: now, its limit, how near, what follows."""

from math import sqrt
from typing import Any

from engine.rollout.counts import WindowCounts
from engine.rollout.validity import SRM_WINDOWS, SRM_Z, share_is_off
from fleet.dashboard.format import percent
from rollouts.dashboard.reading import Dossier

Row = dict[str, Any]


def guards(dossier: Dossier) -> list[Row]:
    """Each comparison of the last verdict: now, threshold, how near, what follows."""
    numbers = dossier.numbers
    rows = []
    for key, name, follows in (
        ("latency", "slower than tolerated", "rollback"),
        ("failures", "fails more often", "rollback"),
        ("misses", "misses more deadlines", "rollback"),
        ("promotion", "not slower by the margin", "may be promoted"),
    ):
        shown, limit = numbers.get(f"{key}LogE"), numbers.get(f"{key}Limit")
        if limit is None:
            continue
        near = None if shown is None else min(max(shown / limit, 0.0), 1.0)
        rows.append(
            {
                "id": key,
                "guard": name,
                "now": "not asked yet" if shown is None else f"{shown:.2f}",
                "limit": f"{limit:.2f}",
                "near": 0.0 if near is None else round(near, 3),
                "follows": follows,
            }
        )
    over = numbers.get("overSloRatio")
    if over is not None:
        rows.append(
            {
                "id": "slo",
                "guard": "canary requests over the objective",
                "now": f"{percent(over)} %",
                "limit": "5 %",
                "near": round(min(over / 0.05, 1.0), 3),
                "follows": "holds",
            }
        )
    carried = numbers.get("largestRatio")
    if carried is not None:
        wanted = next_step(dossier)
        rows.append(
            {
                "id": "capacity",
                "guard": "share its replicas can carry",
                "now": f"{percent(carried, digits=0)} %",
                "limit": f"{wanted:g} %",
                "near": round(min(carried / max(wanted / 100.0, 1e-9), 1.0), 3),
                "follows": "below the next step: holds",
            }
        )
    return rows + sample_ratio(dossier)


def sample_ratio(dossier: Dossier) -> list[Row]:
    """The share of sessions that landed on the canary beside the configured one, as the judge
    compares them; no row where nobody counted sessions, or where too few came to tell."""
    last = dossier.last
    if last is None:
        return []
    counts, ratio = WindowCounts.from_json(last.counts), last.percent_before / 100.0
    off = share_is_off(counts, ratio)
    canary, baseline = counts.canary_sessions, counts.baseline_sessions
    if off is None or canary is None or baseline is None:
        return []
    total = canary + baseline
    spread = SRM_Z * sqrt(ratio * (1.0 - ratio) / total)
    return [
        {
            "id": "sample",
            "guard": "sample ratio: sessions on the canary",
            "now": f"{percent(canary / total)} %",
            "limit": f"{percent(ratio)} ± {percent(spread)} %",
            "near": 1.0 if off else round(min(abs(canary / total - ratio) / spread, 1.0), 3),
            "follows": f"off in {SRM_WINDOWS} windows in a row: holds",
        }
    ]


def next_step(dossier: Dossier) -> float:
    """The share in per cent that an advance would lead to."""
    last = dossier.last
    steps, step = dossier.steps, dossier.rollout.step if last is None else last.step
    return steps[min(step + 1, len(steps) - 1)] if steps else 100.0
