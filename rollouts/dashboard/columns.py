"""The live tables of the rollout pages."""

from fleet.dashboard.tables import Column, Table

COMMAND = "manage.py rollout start MODEL VERSION --reason WHY"

ROLLOUTS = Table(
    name="rollouts",
    caption="Rollouts under way",
    columns=(
        Column(key="status", title="Status", kind="status"),
        Column(key="model", title="Model", href="/rollouts/{id}/"),
        Column(key="change", title="From → to"),
        Column(key="phase", title="Phase", kind="badge"),
        Column(key="share", title="Canary has", kind="bar"),
        Column(key="step", title="Step", kind="number"),
        Column(key="verdict", title="Last decision", below="text"),
        Column(key="judged", title="Judged", kind="time"),
        Column(key="started", title="Started", kind="time", wide_only=True),
        Column(key="by", title="By", wide_only=True),
    ),
    empty="No rollout is under way.",
    command=COMMAND,
)

GUARDS = Table(
    name="guards",
    caption="The comparisons of the last verdict",
    columns=(
        Column(key="guard", title="Guard", below="follows"),
        Column(key="now", title="Now", kind="number"),
        Column(key="limit", title="Limit", kind="number"),
        Column(key="near", title="How near", kind="bar"),
    ),
    empty="Waiting for the first window that compared anything.",
)

DECISIONS = Table(
    name="decisions",
    caption="Every judged window, the newest first",
    columns=(
        Column(key="at", title="At", kind="time"),
        Column(key="seq", title="Window", href="/rollouts/{rollout}/{seq}/"),
        Column(key="weight", title="Share", unit="%", kind="number"),
        Column(key="act", title="Verdict", kind="badge"),
        Column(key="reason", title="Reason", below="text"),
        Column(key="canary", title="Canary", unit="ended", kind="number"),
        Column(key="baseline", title="Baseline", unit="ended", kind="number"),
        Column(key="slow", title="Slow canary", unit="/ timed", kind="number", wide_only=True),
        Column(
            key="slow_baseline",
            title="Slow baseline",
            unit="/ timed",
            kind="number",
            wide_only=True,
        ),
        Column(key="latency", title="Latency", unit="log E", kind="number", wide_only=True),
        Column(key="failures", title="Failures", unit="log E", kind="number", wide_only=True),
    ),
    empty="No window is judged yet. The first one is due when the countdown ends.",
)
