"""A tenant's use over time, minute by minute, as it was recorded."""

from functools import cache

from fleet.dashboard.charts.skeleton import BASELINE, GOOD, Chart, area, line, time_chart
from fleet.dashboard.charts.traffic import REFUSED_SHADES
from fleet.dashboard.format import words

EMPTY = "Waiting for data: this tenant sent nothing in this range"
COMMAND = "manage.py loadtest --key hk_..."


@cache
def requests() -> Chart:
    return time_chart(
        "usage",
        "Requests",
        "/min",
        [
            area("served", "served", GOOD),
            *(
                area(f"refused.{code}", f"refused: {words(code)}", shade)
                for code, shade in REFUSED_SHADES.items()
            ),
        ],
        empty=EMPTY,
        command=COMMAND,
        height=210,
    )


@cache
def tokens() -> Chart:
    return time_chart(
        "tokens",
        "Tokens",
        "/min",
        [
            line("prompt", "prompt", BASELINE),
            line("completion", "completion", "var(--q99)"),
        ],
        empty=EMPTY,
        command=COMMAND,
        height=210,
    )
