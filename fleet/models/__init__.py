"""What exists: one module a concept.

catalog (Model, ModelVersion) <- split (TrafficSplit), replica (Replica);
tenant (Tenant, ApiKey); evidence (WindowStat, UsageMinute, RecorderBatch);
access (AccessToken); heartbeat (Heartbeat). `notify` holds the triggers that announce
every change of configuration to the gateways.
"""

from fleet.models.access import AccessToken
from fleet.models.catalog import Model, ModelVersion
from fleet.models.evidence import RecorderBatch, UsageMinute, WindowStat
from fleet.models.heartbeat import Heartbeat
from fleet.models.replica import Replica
from fleet.models.split import TrafficSplit
from fleet.models.tenant import ApiKey, Tenant

__all__ = [
    "AccessToken",
    "ApiKey",
    "Heartbeat",
    "Model",
    "ModelVersion",
    "RecorderBatch",
    "Replica",
    "Tenant",
    "TrafficSplit",
    "UsageMinute",
    "WindowStat",
]
