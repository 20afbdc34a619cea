"""The System page shows the doctor's findings and never waits for a slow one."""

import threading
from collections.abc import Callable

from fleet.dashboard.checkup import Checkup, Seen
from fleet.doctor import Finding

WELL = Finding("database", "healthy", "PostgreSQL 18")


def ended(checkup: Checkup) -> Seen:
    checkup.patience_s = 30.0
    return checkup.look()


def test_a_page_does_not_wait_for_an_examination_that_hangs() -> None:
    go_on = threading.Event()
    asked: list[int] = []

    def slow() -> list[Finding]:
        asked.append(1)
        go_on.wait(30)
        return [WELL]

    checkup = Checkup(slow, patience_s=0.0)
    first, second = checkup.look(), checkup.look()
    go_on.set()
    assert first == second == Seen([], None, True)
    after = ended(checkup)
    assert after.findings == [WELL]
    assert after.at_ms is not None
    assert not after.under_way
    assert len(asked) == 1


def test_an_examination_that_breaks_is_itself_a_finding() -> None:
    def broken() -> list[Finding]:
        raise RuntimeError("no such table")

    (finding,) = ended(Checkup(broken)).findings
    assert finding.word == "unknown"
    assert "no such table" in finding.cause


def test_pages_in_quick_succession_share_one_examination() -> None:
    asked: list[int] = []
    examine: Callable[[], list[Finding]] = lambda: asked.append(1) or [WELL]  # noqa: E731
    checkup = Checkup(examine, patience_s=30.0)
    assert checkup.look().at_ms == checkup.look().at_ms
    assert asked == [1]
