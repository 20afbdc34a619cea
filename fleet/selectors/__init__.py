"""Every read that more than one door needs: pages, control API, commands, rollouts.

`windows` sums what the gateways recorded (counts and histograms, exactly), `usage` what the
tenants used, `presence` says which processes are alive. Ranges are half-open, [start, end),
in any time zone; rows at one-second and rolled-up resolution never overlap, so a sum needs
no case for either.
"""

from fleet.selectors.presence import Presence, last_seen, presence
from fleet.selectors.usage import UsagePoint, UsageTotals, usage_by_period, usage_totals
from fleet.selectors.windows import WindowTotals, window_points, window_rows, window_totals

__all__ = [
    "Presence",
    "UsagePoint",
    "UsageTotals",
    "WindowTotals",
    "last_seen",
    "presence",
    "usage_by_period",
    "usage_totals",
    "window_points",
    "window_rows",
    "window_totals",
]
