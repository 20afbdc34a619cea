"""Why a replica gets no traffic now: a closed set, the same in views, rows and tests.

Three kinds. *Out*: only an event can bring it back. *Timed*: time alone will, at an instant
that the replica knows. *Busy*: the end of a lease will. The first reason that applies is
given, in the order of this list, so that a draining replica never reads as merely full.
"""

from enum import StrEnum


class WhyNot(StrEnum):
    DRAINING = "draining"
    NOT_READY = "not_ready"
    WEDGED = "wedged"  # silent for several deadlines in a row; waits for its probe
    BREAKER_OPEN = "breaker_open"  # failed too much; waits for its probe
    BACKPRESSURE = "backpressure"  # it said busy; waits until it asked to be tried again
    PROBING = "probing"  # half open, every probe permit is out
    CEILING = "ceiling"  # as many leases out as it takes at a time

    @property
    def is_out(self) -> bool:
        """True where only an event brings it back."""
        return self is WhyNot.DRAINING or self is WhyNot.NOT_READY

    @property
    def is_timed(self) -> bool:
        """True where time alone brings it back."""
        return self is WhyNot.BACKPRESSURE or self is WhyNot.BREAKER_OPEN or self is WhyNot.WEDGED
