"""A free device and few requests: go now, or wait for those who are about to come?

In a steady stream of arrivals waiting gains nothing: it delays those who wait by as much as
it saves those who join. It pays where a crowd is on its way, and a crowd is announced: the
clients that a batch has just answered. If they send again within a few milliseconds (closed
loop), a batch of one sent to the first of them costs all the others a whole run. So

    wait  when  (clients expected back) x (run of the batch)  >  (entries waiting) x (time left)

where the time left is until they should be back, or, once they are late, until they are given
up. The wait ends with the last of them, so it is rarely longer than it has to be. Counting the
time until they are given up from the beginning (their delay and three deviations, a millisecond
at least) let half a batch leave without the other half where a run takes a millisecond.
How many come back, and how fast, is learned: arrivals within `_HORIZON_MS` of a finished
batch are counted against its answers, less the arrivals that come anyway (measured in quiet
moments). In open loop that ratio is about 0 and nothing ever waits.
"""

from collections import deque

_HORIZON_MS = 12.0  # clients that come back later than this are not waited for
_MEMORY = 0.9  # of the learned ratio, a batch
_LEAST_RATIO = 0.3  # below it the loop is open: the rest is chance
_LEAST_RETURNS = 0.5
_DELAY_DEVIATIONS = 3.0
_LEAST_HORIZON_MS = 1.0


class Finish:
    """A batch that ended: when, how many it answered, how many arrivals it explains."""

    __slots__ = ("answered", "at_ms", "returned")

    def __init__(self, at_ms: float, answered: int) -> None:
        self.at_ms = at_ms
        self.answered = answered
        self.returned = 0


class Patience:
    """Expects the return of clients that were just answered."""

    __slots__ = (
        "_answered",
        "_delay_ms",
        "_open",
        "_quiet_arrivals",
        "_quiet_from_ms",
        "_quiet_ms",
        "_returned",
        "_spread_ms",
        "_unfilled",
    )

    def __init__(self) -> None:
        self._open: deque[Finish] = deque()
        self._unfilled: deque[Finish] = deque()  # those whose clients are not all back
        self._answered = 0.0
        self._returned = 0.0
        self._delay_ms = _HORIZON_MS / 3.0
        self._spread_ms = _HORIZON_MS / 6.0
        self._quiet_ms = 0.0
        self._quiet_arrivals = 0.0
        self._quiet_from_ms: float | None = None

    def arrived(self, now_ms: float) -> None:
        """A request came in."""
        window = self._open
        if not window:
            self._quiet_arrivals += 1.0
            return
        self._settle(now_ms)
        unfilled = self._unfilled
        if unfilled:
            finish = unfilled[0]
            finish.returned += 1
            if finish.returned >= finish.answered:
                unfilled.popleft()
            error_ms = now_ms - finish.at_ms - self._delay_ms
            self._delay_ms += 0.05 * error_ms
            self._spread_ms += 0.05 * (abs(error_ms) - self._spread_ms)
            return
        if not window:
            self._quiet_arrivals += 1.0

    def finished(self, answered: int, now_ms: float) -> None:
        """A batch answered so many clients."""
        self._settle(now_ms)
        if self._quiet_from_ms is not None and not self._open:
            self._quiet_ms += now_ms - self._quiet_from_ms
        if answered > 0:
            finish = Finish(now_ms, answered)
            self._open.append(finish)
            self._unfilled.append(finish)

    @property
    def return_ratio(self) -> float:
        """The share of answered clients that come back at once; 0 where unknown."""
        ratio = self._returned / self._answered if self._answered > 0.0 else 0.0
        return min(max(ratio, 0.0), 1.0)

    def wait_until_ms(
        self, waiting: int, run_ms: float, latest_ms: float, now_ms: float
    ) -> float | None:
        """Until when to wait for those expected back, or None where it would not pay."""
        self._settle(now_ms)
        ratio = self.return_ratio
        if not self._open or ratio < _LEAST_RATIO:
            return None
        horizon_ms = self._delay_ms + _DELAY_DEVIATIONS * self._spread_ms
        horizon_ms = min(max(horizon_ms, _LEAST_HORIZON_MS), _HORIZON_MS)
        until_ms = min(self._open[-1].at_ms + horizon_ms, latest_ms)
        if until_ms <= now_ms:
            return None
        back_ms = self._open[-1].at_ms + self._delay_ms + self._spread_ms
        left_ms = (back_ms if now_ms < back_ms < until_ms else until_ms) - now_ms
        worth_it = max(waiting * left_ms / run_ms, _LEAST_RETURNS)
        expected = 0.0
        for finish in reversed(self._open):
            if finish.at_ms + horizon_ms <= now_ms:
                break
            expected += max(0.0, ratio * finish.answered - finish.returned)
            if expected > worth_it:
                return until_ms
        return None

    def _settle(self, now_ms: float) -> None:
        """Learn from the batches whose clients had their time to come back."""
        window = self._open
        while window and now_ms - window[0].at_ms > _HORIZON_MS:
            finish = window.popleft()
            if self._unfilled and self._unfilled[0] is finish:
                self._unfilled.popleft()
            anyway = 0.0
            if self._quiet_ms > 0.0:
                anyway = _HORIZON_MS * self._quiet_arrivals / self._quiet_ms
            keep = _MEMORY
            self._answered = keep * self._answered + finish.answered
            self._returned = keep * self._returned + max(0.0, finish.returned - anyway)
            self._quiet_ms *= 0.98
            self._quiet_arrivals *= 0.98
            if not window:
                self._quiet_from_ms = finish.at_ms + _HORIZON_MS
