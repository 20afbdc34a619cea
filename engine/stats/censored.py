"""Quantiles of a duration some of which were cut short: how long would they have taken?

A request that ran out of time after 120 ms would have taken longer, nobody knows how much.
Leaving it out makes the fleet look fast exactly when it is not; counting it as 120 ms does
too; counting it as infinite makes one impatient client an outage. The Kaplan-Meier estimate
uses what is known: walking up the durations, the share still running falls by

    1 - ended / at risk

at each duration at which something ended, where whoever was cut short is at risk up to that
moment and not beyond. Source: Kaplan, Meier, JASA 53 (1958).
"""

from collections.abc import Iterator

from engine.stats.histogram import LogHistogram, bucket_of, value_of


def censored_quantile(ended: LogHistogram, cut_short: LogHistogram, q: float) -> float | None:
    """The quantile `q` of the full durations, in the unit of the histograms.

    None where so many were cut short that it lies beyond everything that was seen to end.
    """
    for bucket, running in _running(ended, cut_short):
        if running <= 1.0 - q + 1e-12:
            return value_of(bucket)
    return None


def censored_share_above(ended: LogHistogram, cut_short: LogHistogram, value: float) -> float:
    """The share of the full durations that are longer than `value`."""
    last = bucket_of(value)
    share = 1.0
    for bucket, running in _running(ended, cut_short):
        if bucket > last:
            break
        share = running
    return share


def _running(ended: LogHistogram, cut_short: LogHistogram) -> Iterator[tuple[int, float]]:
    """The share still running after each bucket in which something ended."""
    ends = ended.to_sparse()
    cuts = cut_short.to_sparse()
    at_risk = ended.count + cut_short.count
    running = 1.0
    for bucket in sorted(ends.keys() | cuts.keys()):
        ending = ends.get(bucket, 0)
        if ending:
            running *= 1.0 - ending / at_risk
            yield bucket, running
        at_risk -= ending + cuts.get(bucket, 0)
