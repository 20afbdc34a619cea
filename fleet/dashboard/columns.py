"""Every live table of the dashboard: its columns, its empty state, the command for data."""

from fleet.dashboard.panels.shell import COMMAND_WITHOUT_TRAFFIC
from fleet.dashboard.tables import Column, Table

MODEL = Column(key="model", title="Model", href="/models/{model}/")
VERSION = Column(key="version", title="Version", href="/models/{model}/#{version}")

REFUSALS = Table(
    name="refusals",
    caption="Why work was refused, over the last 10 s",
    columns=(
        Column(
            key="code",
            title="Reason",
            below="meaning",
            hint="the same code is in the API's answer",
        ),
        Column(key="rate", title="Refused", unit="/s", kind="number"),
        Column(key="share", title="Share", kind="bar"),
    ),
    empty="Nothing was refused in the last 10 s.",
)

QUEUES = Table(
    name="queues",
    caption="Queues and batches by model version",
    columns=(
        MODEL,
        Column(key="version", title="Version"),
        Column(
            key="mode", title="Mode", kind="badge", hint="idle, edf, or goodput past saturation"
        ),
        Column(key="queued", title="Queued", kind="number"),
        Column(key="oldest", title="Oldest", unit="ms", kind="number"),
        Column(key="batch", title="Mean batch", kind="number"),
        Column(key="slot", title="Slot", unit="ms", kind="number", wide_only=True),
        Column(key="spark", title="60 s", kind="spark", wide_only=True),
    ),
    empty="Waiting for data: no model version has a queue yet.",
    command="manage.py replicas apply FILE",
)

FLUSHES = Table(
    name="flushes",
    caption="Why batches left, since the gateways started",
    columns=(
        Column(key="reason", title="Reason", below="meaning"),
        Column(key="batches", title="Batches", kind="number"),
        Column(key="share", title="Share", kind="bar"),
    ),
    empty="Waiting for data: no batch has left yet.",
    command=COMMAND_WITHOUT_TRAFFIC,
)

VERSIONS = Table(
    name="versions",
    caption="Model versions: share, rate, errors, duration",
    columns=(
        Column(key="status", title="Status", kind="status"),
        MODEL,
        VERSION,
        Column(key="arm", title="Arm", kind="badge"),
        Column(key="share", title="Share", kind="bar"),
        Column(key="ready", title="Ready", kind="number", hint="replicas that may take work now"),
        Column(key="rate", title="Rate", unit="/s", kind="number"),
        Column(key="errors", title="Errors", unit="%", kind="number"),
        Column(key="p50", title="p50", unit="ms", kind="number", wide_only=True),
        Column(key="p95", title="p95", unit="ms", kind="number"),
        Column(key="p99", title="p99", unit="ms", kind="number", wide_only=True),
        Column(key="slo", title="SLO", unit="ms", kind="number", wide_only=True),
        Column(key="spark", title="Rate, 60 s", kind="spark", wide_only=True),
    ),
    empty="Waiting for data: no model is defined.",
    command="manage.py replicas apply FILE",
)

SERVICE = Table(
    name="versions",
    caption="Versions in service",
    columns=[c for c in VERSIONS.columns if c.key not in ("p50", "p99", "slo")],
    empty=VERSIONS.empty,
    command=VERSIONS.command,
)

REPLICA_COLUMNS = (
    Column(key="status", title="Status", kind="status"),
    Column(key="id", title="Replica", href="/fleet/{id}/"),
    MODEL,
    Column(key="version", title="Version"),
    Column(key="in_flight", title="In flight", unit="/ ceiling", kind="number"),
    Column(
        key="score",
        title="Load score",
        kind="number",
        hint="(in flight + queue + 1) x peak latency / weight: the lower draws more",
        wide_only=True,
    ),
    Column(key="p95", title="p95", unit="ms", kind="number"),
    Column(key="errors", title="Errors", unit="%", kind="number"),
    Column(key="breaker", title="Breaker", kind="badge"),
    Column(key="spark", title="p95, 60 s", kind="spark", wide_only=True),
    Column(key="why", title="Why no traffic", wide_only=True),
)

ATTENTION = Table(
    name="attention",
    caption="Replicas, the least healthy first",
    columns=[column for column in REPLICA_COLUMNS if column.key not in ("score", "spark")],
    empty="Waiting for data: no replica is registered.",
    command="manage.py replica --model MODEL --version VERSION",
)

REPLICAS = Table(
    name="replicas",
    caption="Replicas",
    columns=REPLICA_COLUMNS,
    empty="No replica matches. Register one, or widen the filter.",
    command="manage.py replica --model MODEL --version VERSION",
)
