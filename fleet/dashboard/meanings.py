"""What the engine's closed sets mean to a person, in one sentence each.

Codes travel through charts, tables and rows unchanged; beside each stands its sentence.
"""

REFUSALS = {
    "quota_exceeded": "the tenant used up its requests or tokens a minute",
    "overloaded": "the adaptive limit is reached: letting more in would miss deadlines",
    "queue_full": "the queue holds as much as it may",
    "deadline_unreachable": "could not be served in time, so it was refused at once",
    "deadline_exceeded": "its time ran out while it waited",
    "no_capacity": "no replica may take it: all draining, down or not registered",
    "upstream_failure": "every replica that was tried failed it",
    "model_not_found": "nothing is registered under that name",
    "invalid_request": "the request itself was wrong",
    "forbidden": "the key may not do that",
}

FLUSHES = {
    "saturated": "full: no further member fitted",
    "deadline": "a member could not wait any longer",
    "linger": "waited for expected arrivals; none came in time",
    "idle": "the device was free and waiting would not have paid",
    "drain": "the gateway is shutting down",
    "goodput": "past saturation: the most useful work for the slot",
}

MODES = {
    "idle": "nothing waits",
    "edf": "keeping up: earliest deadline first",
    "goodput": "past saturation: most goodput for each device millisecond",
}

STATUSES = {
    "healthy": "works as it should",
    "degraded": "works, with something amiss",
    "down": "does not work",
    "draining": "finishes its work and takes no more",
    "unknown": "nothing is known yet",
}
