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

HEALTH = Table(
    name="health",
    caption="Health score by part",
    columns=(
        Column(key="part", title="Part"),
        Column(key="value", title="Health", kind="bar"),
        Column(key="weight", title="Weight", kind="number"),
    ),
    empty="No gateway has judged its health yet.",
)

CHANCES = Table(
    name="chances",
    caption="The replicas of this version as routing compares them",
    columns=(
        Column(key="id", title="Replica", href="/fleet/{id}/"),
        Column(key="score", title="Score", kind="number"),
        Column(key="in_flight", title="In flight", unit="/ ceiling", kind="number"),
        Column(key="latency", title="Peak EWMA", unit="ms", kind="number"),
        Column(key="chance", title="Chance", kind="bar", hint="to be chosen for the next batch"),
        Column(key="why", title="Why", wide_only=True),
    ),
    empty="No gateway sees it yet.",
)

COSTS = Table(
    name="costs",
    caption="Fitted cost of a batch by version and accelerator",
    columns=(
        Column(key="version", title="Version"),
        Column(key="accelerator", title="Accelerator"),
        Column(key="fixed", title="Fixed", unit="ms", kind="number"),
        Column(key="per_work", title="Per 1 000 work", unit="ms", kind="number"),
        Column(key="full", title="Batch of 1 000", unit="ms", kind="number"),
        Column(key="deviation", title="Error ±", unit="ms", kind="number"),
        Column(key="samples", title="Batches", kind="number"),
        Column(key="unit", title="Work is", wide_only=True),
    ),
    empty="Waiting for data: no batch of this model has ended yet.",
    command=COMMAND_WITHOUT_TRAFFIC,
)

TENANTS = Table(
    name="tenants",
    caption="Tenants",
    columns=(
        Column(key="status", title="Status", kind="status"),
        Column(key="id", title="Tenant", href="/tenants/{id}/"),
        Column(key="rate", title="Requests", unit="/s", kind="number"),
        Column(key="tokens", title="Tokens", unit="/s", kind="number"),
        Column(key="in_flight", title="In flight", kind="number"),
        Column(key="level", title="Bucket", kind="bar", hint="what is left of its token quota"),
        Column(key="refused", title="Refused", kind="number", hint="since the gateways started"),
        Column(key="most", title="Mostly as", wide_only=True),
        Column(key="spark", title="Rate, 60 s", kind="spark", wide_only=True),
    ),
    empty="Waiting for data: no tenant is defined, or none matches.",
    command="manage.py tenant create NAME",
)

TENANT_REFUSALS = Table(
    name="tenant_refusals",
    caption="Why this tenant's requests were refused",
    columns=(
        Column(key="code", title="Reason", below="meaning"),
        Column(key="count", title="Refused", kind="number"),
        Column(key="share", title="Share", kind="bar"),
    ),
    empty="Nothing of this tenant was refused since the gateways started.",
)

REQUESTS = Table(
    name="requests",
    caption="Sampled requests, the newest first",
    columns=(
        Column(key="at", title="At", kind="time"),
        Column(key="id", title="Request", href="/requests/{id}/"),
        Column(key="kind", title="Ended", kind="badge"),
        Column(key="verdict", title="As"),
        Column(key="tenant", title="Tenant", href="/tenants/{tenant}/"),
        MODEL,
        Column(key="version", title="Version", wide_only=True),
        Column(key="replica", title="Replica", href="/fleet/{replica}/", wide_only=True),
        Column(key="queued", title="Queued", unit="ms", kind="number", wide_only=True),
        Column(key="total", title="Total", unit="ms", kind="number"),
        Column(key="deadline", title="Deadline", unit="ms", kind="number", wide_only=True),
        Column(key="attempts", title="Attempts", kind="number", wide_only=True),
    ),
    empty="Waiting for data: no sampled request matches.",
    command=COMMAND_WITHOUT_TRAFFIC,
)

GATEWAYS = Table(
    name="gateways",
    caption="Gateways",
    columns=(
        Column(key="status", title="Status", kind="status"),
        Column(key="id", title="Gateway", kind="code"),
        Column(key="heard", title="Heard", kind="number"),
        Column(key="offered", title="Offered", unit="/s", kind="number"),
        Column(key="in_flight", title="In flight", kind="number"),
        Column(key="lag", title="Loop lag", unit="ms", kind="number"),
        Column(key="revision", title="Revision", kind="number", wide_only=True),
        Column(key="confirmed", title="Confirmed", kind="number", wide_only=True),
        Column(key="uptime", title="Up for", kind="number", wide_only=True),
        Column(key="degraded", title="Amiss", wide_only=True),
    ),
    empty="Waiting for data: no gateway has spoken since this web process started.",
    command="manage.py gateway",
)
