"""May the evidence be believed at all?

Sample ratio: the share of sessions that landed on the canary is compared with the configured
one. A mismatch means that the split is broken (stale gateways, sticky caches, a crash that
drops one arm's requests before they are counted), and then every comparison is between
different populations. Sessions are independent, requests are not (a session that sends a
thousand requests is one draw), so the exact test is on sessions, p < 1e-3; on requests only
a gross mismatch counts. It must persist for three windows: the same sessions come back in
every window, so windows are not independent draws either.

A/A: the baseline's even seconds are compared with its odd ones, by the same e-process that
judges the canary. Identical halves that differ mean that the noise is faster or stranger
than assumed, and no latency verdict is safe. A window of one second is all even or all odd:
such windows are taken in pairs.
"""

from math import log, sqrt

from engine.rollout.counts import WindowCounts
from engine.rollout.eprocess import Floats
from engine.rollout.noise import NoisePrior
from engine.rollout.regression import judged

SRM_Z = 3.29  # two-sided p = 1e-3
SRM_WINDOWS = 3
_SRM_FACTOR = 3.0
_SRM_EXPECTED = 10.0
AA_LOG_LIMIT = log(1000.0)
AA_RATIOS = (0.4, 0.6, 1.6, 2.5)


def share_is_off(counts: WindowCounts, ratio: float) -> bool | None:
    """Whether this window's realised share contradicts `ratio`; None where it cannot tell."""
    if not 0.0 < ratio < 1.0:
        return None
    known = False
    canary, baseline = counts.canary_sessions, counts.baseline_sessions
    if canary is not None and baseline is not None:
        total = canary + baseline
        if total * min(ratio, 1.0 - ratio) >= _SRM_EXPECTED:
            known = True
            z = (canary - total * ratio) / sqrt(total * ratio * (1.0 - ratio))
            if abs(z) > SRM_Z:
                return True
    sent, kept = counts.canary_requests, counts.baseline_requests
    if sent is not None and kept is not None:
        total = sent + kept
        if total * min(ratio, 1.0 - ratio) >= _SRM_EXPECTED:
            known = True
            odds = (sent + 1.0) / (kept + 1.0) * (1.0 - ratio) / ratio
            if odds > _SRM_FACTOR or odds < 1.0 / _SRM_FACTOR:
                return True
    return False if known else None


def halves_differ(
    half_slow: Floats, half: Floats, slow: Floats, total: Floats, prior: NoisePrior
) -> float:
    """log E that the baseline's halves differ, given the counts of one half and of both."""
    if not ((half > 0) & (half < total)).any():
        half_slow, half, slow, total = (_in_pairs(x) for x in (half_slow, half, slow, total))
    return judged(half_slow, slow - half_slow, half, total - half, AA_RATIOS, prior).log_e


def _in_pairs(counts: Floats) -> Floats:
    """Neighbours put together; one that is left over at the end is left out."""
    result: Floats = counts[: len(counts) // 2 * 2].reshape(-1, 2).sum(axis=1)
    return result
