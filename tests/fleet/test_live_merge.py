"""Many gateways, one state."""

from typing import Any

from fleet.live.merge import FEED_LENGTH, STALE_AFTER_S, AgedView, merge
from tests.browser.stage import replica, view


def aged(gateway: str, body: dict[str, Any], *, age_s: float = 0.2, seq: int = 7) -> AgedView:
    return AgedView(gateway=gateway, seq=seq, age_s=age_s, view=body)


def said(second: int = 240, **changes: Any) -> dict[str, Any]:
    return view(second) | changes


def test_without_any_gateway_the_state_is_empty_and_invents_no_zero() -> None:
    state = merge([])
    assert state["status"] == "empty"
    assert state["traffic"] is None
    assert state["admission"] is None
    assert state["conservation"] is None
    assert state["gateways"] == []
    assert state["ageS"] is None


def test_rates_counts_and_queues_of_two_gateways_add_up() -> None:
    one, two = said(240), said(241)
    state = merge([aged("a", one), aged("b", two)])
    assert state["traffic"] is not None
    assert state["conservation"] is not None
    total = one["traffic"]["offeredPerS"] + two["traffic"]["offeredPerS"]
    assert state["traffic"]["offeredPerS"] == total
    assert (
        state["conservation"]["served"]
        == one["conservation"]["served"] + two["conservation"]["served"]
    )
    assert state["queues"][0]["queued"] == one["queues"][0]["queued"] + two["queues"][0]["queued"]
    assert sum(state["queues"][0]["flushReasons"].values()) == sum(
        sum(body["queues"][0]["flushReasons"].values()) for body in (one, two)
    )


def test_refusals_of_one_gateway_alone_are_kept() -> None:
    one = said()
    one["traffic"] = one["traffic"] | {"refusedPerS": {"quota_exceeded": 2.0}}
    two = said()
    two["traffic"] = two["traffic"] | {"refusedPerS": {"no_capacity": 3.0}}
    state = merge([aged("a", one), aged("b", two)])
    assert state["traffic"] is not None
    assert state["traffic"]["refusedPerS"] == {"quota_exceeded": 2.0, "no_capacity": 3.0}


def test_the_quantile_shown_is_the_worst_gateways_and_never_a_mean() -> None:
    one, two = said(), said()
    one["traffic"] = one["traffic"] | {"p95Ms": 200.0}
    two["traffic"] = two["traffic"] | {"p95Ms": 900.0}
    state = merge([aged("a", one), aged("b", two)])
    assert state["traffic"] is not None
    assert state["traffic"]["p95Ms"] == 900.0


def test_a_quantile_that_nobody_knows_stays_unknown() -> None:
    body = said()
    body["traffic"] = body["traffic"] | {"p95Ms": None, "goodputRatio": None}
    state = merge([aged("a", body)])
    assert state["traffic"] is not None
    assert state["traffic"]["p95Ms"] is None
    assert state["traffic"]["goodputRatio"] is None


def test_a_silent_gateway_is_down_and_leaves_the_sums() -> None:
    live, lost = said(240), said(241)
    state = merge([aged("a", live), aged("b", lost, age_s=STALE_AFTER_S + 0.1)])
    assert state["status"] == "live"
    assert state["traffic"] is not None
    assert state["traffic"]["offeredPerS"] == live["traffic"]["offeredPerS"]
    assert {g["id"]: g["status"] for g in state["gateways"]} == {"a": "healthy", "b": "down"}


def test_when_all_are_silent_the_last_numbers_stay_and_the_state_is_stale() -> None:
    body = said()
    state = merge([aged("a", body, age_s=60.0)])
    assert state["status"] == "stale"
    assert state["ageS"] == 60.0
    assert state["traffic"] is not None
    assert state["traffic"]["offeredPerS"] == body["traffic"]["offeredPerS"]


def test_a_breaker_open_at_one_gateway_shows_as_open_with_that_gateways_reason() -> None:
    opened = {"state": "open", "trips": 3, "reopensInMs": 900.0, "faultRatio": 0.5}
    one = said(replicas=[replica("r", "m", "v1", inFlight=2, batches=10)])
    two = said(
        replicas=[
            replica(
                "r",
                "m",
                "v1",
                inFlight=1,
                batches=30,
                status="down",
                breaker=opened,
                why="breaker_open",
            )
        ]
    )
    for order in ((one, two), (two, one)):
        (merged,) = merge([aged("a", order[0]), aged("b", order[1])])["replicas"]
        assert merged["breaker"]["state"] == "open"
        assert merged["status"] == "down"
        assert merged["why"] == "breaker_open"
        assert merged["inFlight"] == 3
        assert merged["batches"] == 40


def test_merging_changes_no_gateways_own_view() -> None:
    one = said(replicas=[replica("r", "m", "v1", inFlight=2)])
    two = said(replicas=[replica("r", "m", "v1", inFlight=5)])
    merge([aged("a", one), aged("b", two)])
    merge([aged("a", one), aged("b", two)])
    assert one["replicas"][0]["inFlight"] == 2
    assert two["replicas"][0]["inFlight"] == 5


def test_gateways_on_different_snapshots_have_not_converged() -> None:
    state = merge([aged("a", said(revision=4)), aged("b", said(revision=5))])
    assert state["converged"] is False
    assert state["revision"] == 4


def test_books_balance_only_if_every_gateways_do() -> None:
    broken = said()
    broken["conservation"] = broken["conservation"] | {"balanced": False}
    state = merge([aged("a", said()), aged("b", broken)])
    assert state["conservation"] is not None
    assert state["conservation"]["balanced"] is False


def test_the_split_shown_is_that_of_the_newest_snapshot() -> None:
    old, new = said(revision=4), said(revision=5)
    new["models"] = [dict(new["models"][0], split=dict(new["models"][0]["split"], percent=60.0))]
    state = merge([aged("a", new), aged("b", old)])
    assert state["models"][0]["split"] is not None
    assert state["models"][0]["split"]["percent"] == 60.0


def test_bucket_levels_of_gateways_add_up_and_no_bucket_is_no_level() -> None:
    state = merge([aged("a", said()), aged("b", said())])
    by_name = {tenant["tenant"]: tenant for tenant in state["tenants"]}
    assert by_name["acme"]["bucketBurst"] == 1_000_000.0
    assert by_name["umbrella"]["bucketLevel"] is None


def test_events_come_newest_first_and_are_bounded() -> None:
    events = [
        {"seq": n, "atMs": 1000.0 * n, "kind": "limit", "subject": "m", "text": "", "numbers": {}}
        for n in range(FEED_LENGTH * 2)
    ]
    state = merge([aged("a", said(events=events))])
    ages = [event["ageMs"] for event in state["events"]]
    assert ages == sorted(ages)
    assert len(ages) == FEED_LENGTH


def test_a_gateway_has_everything_in_flight_and_not_only_what_its_tightest_model_has() -> None:
    body = said()
    body["conservation"] = body["conservation"] | {"queued": 30, "running": 12}
    body["admission"] = body["admission"] | {"inFlight": 2}
    (gateway,) = merge([aged("a", body)])["gateways"]
    assert gateway["inFlight"] == 42
