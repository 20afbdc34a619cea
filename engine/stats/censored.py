"""Quantiles of a duration some of which were cut short: how long would they have taken?

A request that ran out of time after 120 ms would have taken longer, nobody knows how much.
Leaving it out makes the fleet look fast exactly when it is not; counting it as 120 ms does
too; counting it as infinite makes one impatient client an outage. The Kaplan-Meier estimate
uses what is known: walking up the durations, the share still running falls by

    1 - ended / at risk

at each duration at which something ended, where whoever was cut short is at risk up to that
moment and not beyond. Source: Kaplan, Meier, JASA 53 (1958).
"""

from engine.stats.histogram import LogHistogram, value_of


def censored_quantile(ended: LogHistogram, cut_short: LogHistogram, q: float) -> float | None:
    """The quantile `q` of the full durations, in the unit of the histograms.

    None where so many were cut short that it lies beyond everything that was seen to end.
    """
    ends = ended.to_sparse()
    cuts = cut_short.to_sparse()
    at_risk = ended.count + cut_short.count
    running = 1.0
    for bucket in sorted(ends.keys() | cuts.keys()):
        ending = ends.get(bucket, 0)
        if ending:
            running *= 1.0 - ending / at_risk
            if running <= 1.0 - q + 1e-12:
                return value_of(bucket)
        at_risk -= ending + cuts.get(bucket, 0)
    return None
