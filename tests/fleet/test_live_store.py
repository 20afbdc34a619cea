"""What a web process remembers of gateways, by an injected clock."""

from fleet.live.feed import REMEMBERED, Feed
from fleet.live.rings import ROW_POINTS, SECONDS, Rings
from fleet.live.samples import Samples
from fleet.live.store import FORGET_AFTER_S, LiveStore
from tests.browser.stage import view


class Hand:
    """A clock moved by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_before_anybody_speaks_the_state_is_empty() -> None:
    assert LiveStore(Hand()).state()["status"] == "empty"


def test_a_view_grows_old_then_stale_then_is_forgotten() -> None:
    hand = Hand()
    store = LiveStore(hand)
    store.put("a", 1, view(1))
    assert store.state()["status"] == "live"
    hand.now_s += 4
    assert store.state()["status"] == "stale"
    hand.now_s += FORGET_AFTER_S
    assert store.state()["status"] == "empty"


def test_a_gateway_that_says_farewell_is_not_lost_but_gone() -> None:
    store = LiveStore(Hand())
    store.put("a", 1, view(1))
    store.put("b", 1, view(1))
    store.forget("b")
    assert [gateway["id"] for gateway in store.state()["gateways"]] == ["a"]


def test_readers_of_the_same_moment_share_one_merge() -> None:
    hand = Hand()
    store = LiveStore(hand)
    store.put("a", 1, view(1))
    first = store.state()
    assert store.state() is first
    store.put("a", 2, view(2))
    assert store.state() is not first


def test_an_event_repeated_in_every_view_is_one_line_at_one_time() -> None:
    feed = Feed()
    event = {"seq": 5, "kind": "limit", "subject": "m", "text": "t", "numbers": {}}
    assert feed.absorb("a", {"events": [event | {"atMs": 1000.0}]}, now_ms=50_000.0) == 1
    assert feed.absorb("a", {"events": [event | {"atMs": 2000.0}]}, now_ms=51_000.0) == 0
    (line,) = feed.newest()
    assert line["atMs"] == 49_000


def test_a_restarted_gateway_counts_its_events_anew() -> None:
    feed = Feed()
    event = {"seq": 1, "atMs": 0.0, "kind": "limit", "subject": "m", "text": "t", "numbers": {}}
    feed.absorb("a", {"events": [event], "gateway": {"startedAt": "08:00"}}, 1000.0)
    feed.absorb("a", {"events": [event], "gateway": {"startedAt": "09:00"}}, 2000.0)
    assert len(feed.newest()) == 2


def test_the_feed_is_bounded() -> None:
    feed = Feed()
    for seq in range(REMEMBERED * 2):
        event = {
            "seq": seq,
            "atMs": 0.0,
            "kind": "limit",
            "subject": "m",
            "text": "",
            "numbers": {},
        }
        feed.absorb("a", {"events": [event]}, float(seq))
    lines = feed.newest(limit=REMEMBERED * 2)
    assert len(lines) == REMEMBERED
    assert lines[0]["atMs"] == REMEMBERED * 2 - 1


def test_rings_hold_five_minutes_and_drop_rows_that_left() -> None:
    store, rings = LiveStore(Hand()), Rings()
    for second in range(SECONDS + 20):
        store.put("a", second, view(second))
        rings.add(second * 1000, store.state())
    assert len(rings) == SECONDS
    assert rings.times_ms[0] == 20_000
    assert len(rings.row("replica", "llama-a100-1")) == ROW_POINTS
    store.put("a", 999, view(999) | {"replicas": []})
    rings.add(999_000, store.state())
    assert rings.row("replica", "llama-a100-1") == []


def test_a_silent_second_leaves_no_point() -> None:
    hand = Hand()
    store, rings = LiveStore(hand), Rings()
    store.put("a", 1, view(1))
    rings.add(1000, store.state())
    hand.now_s += 10
    rings.add(11_000, store.state())
    assert list(rings.times_ms) == [1000]


def test_a_sampled_record_is_kept_once_with_its_time() -> None:
    samples = Samples()
    record = {"requestId": "0x1", "agoMs": 500.0, "stages": []}
    samples.absorb("a", {"requests": [record]}, 10_000.0)
    samples.absorb("a", {"requests": [record | {"agoMs": 1500.0}]}, 11_000.0)
    (kept,) = samples.newest()
    assert kept["atMs"] == 9500
    assert kept["gateway"] == "a"
