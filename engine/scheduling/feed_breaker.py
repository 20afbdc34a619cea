"""What breakers did, as lines of the decision feed: opened, opened again, closed; panic.

Read off the end of each attempt, which is the only thing that moves a breaker for a reason an
operator should see. That its pause is over is no decision, and a replica that came back
under its name starts afresh: the feed stays silent on both.
"""

from engine.routing.breaker import BreakerState
from engine.routing.replica_state import ReplicaState
from engine.scheduling.state import State


def tell(
    state: State, replica: ReplicaState, was: BreakerState, panicked: bool, now_ms: float
) -> None:
    """Compare `replica` with what it was before the attempt's end."""
    breaker = replica.breaker
    if breaker.state is not was:
        numbers: dict[str, object] = {
            "model": replica.spec.model,
            "trips": breaker.trips,
            "faultRatio": breaker.fault_ratio(now_ms),
        }
        if breaker.state is BreakerState.CLOSED:
            text = "breaker closed: it serves again"
        else:
            pause_ms = breaker.open_until_ms - now_ms
            numbers["pauseMs"] = pause_ms
            again = "" if was is BreakerState.CLOSED else " again"
            text = f"breaker opened{again} ({breaker.cause}), next try in {pause_ms:.0f} ms"
        state.event("breaker", replica.spec.replica_id, text, numbers)
    panic = replica.surroundings.panic
    if panic is not panicked:
        text = (
            "panic: most replicas have tripped, none is ejected"
            if panic
            else "panic is over: tripped replicas are ejected again"
        )
        subject = f"{replica.spec.model}/{replica.spec.version}"
        state.event("breaker", subject, text, {"panic": panic})
