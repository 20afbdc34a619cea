"""The ceiling of a server that streams: it widens with first bytes, not with last ones."""

from engine.actions import Dispatch, ItemResult
from engine.outcomes import Outcome
from engine.types import Protocol
from tests.engine.harness import Table, replica

TOTAL_MS, TOKENS = 20_000.0, 500


class Server:
    """Runs `places` streams at once and queues the rest inside; a first token takes `first_ms`."""

    def __init__(self, table: Table, places: int, first_ms: float) -> None:
        self.table = table
        self.places = places
        self.first_ms = first_ms
        self.waiting: list[Dispatch] = []
        self.running: list[tuple[float, Dispatch]] = []  # and when it ends
        self.most = 0

    def serve(self, seconds: float) -> None:
        """Go on for so long, in steps of a first token."""
        self.waiting += self.table.poll()
        for _ in range(round(seconds * 1000.0 / self.first_ms)):
            self._step()

    def _step(self) -> None:
        """Start what has room, end what is over."""
        self.most = max(self.most, len(self.waiting) + len(self.running))
        self.waiting += self.table.advance(self.first_ms)
        now_ms = self.table.clock.now_ms()
        while self.waiting and len(self.running) < self.places:
            dispatch = self.waiting.pop(0)
            self.table.scheduler.first_byte(dispatch.lease_id)
            self.running.append((now_ms + TOTAL_MS, dispatch))
        self.waiting += self.table.poll()
        for end_ms, dispatch in list(self.running):
            if now_ms >= end_ms:
                self.running = [each for each in self.running if each[1] is not dispatch]
                item = ItemResult(Outcome.SUCCESS, None, 64, TOKENS)
                self.waiting += self.table.finish(
                    dispatch, items=[item], first_byte_ms=self.first_ms
                )


def one_server(most: int) -> Table:
    return Table([replica("a", protocol=Protocol.OPENAI, max_concurrency=most)])


def submit(table: Table, count: int) -> None:
    for _ in range(count):
        name = table.submit(tokens=64, max_output_tokens=4000, deadline_ms=300_000.0)
        assert isinstance(name, str), name


def ceiling(table: Table) -> int:
    return table.scheduler.view()["replicas"][0]["ceiling"]


def test_long_streams_do_not_wait_for_the_end_of_others_where_the_server_has_room() -> None:
    table = one_server(256)
    server = Server(table, places=256, first_ms=50.0)
    submit(table, 64)
    server.serve(2.0)  # a tenth of a stream
    assert len(server.running) == 64


def test_a_server_that_queues_streams_inside_is_not_given_more() -> None:
    table = one_server(256)
    server = Server(table, places=8, first_ms=50.0)
    submit(table, 100)
    server.serve(100.0)
    assert server.most <= 2 * 16  # the first ceiling, before anything was known
    assert ceiling(table) <= 2 * 16


def test_a_ceiling_that_a_busy_answer_cut_widens_by_whole_windows_only() -> None:
    table = one_server(256)
    submit(table, 64)
    running = table.poll()
    refused, rest = running[0], running[1:]
    table.finish(refused, Outcome.BACKPRESSURE, retry_after_ms=1000.0)
    cut = ceiling(table)
    assert cut < 16
    table.advance(50.0)
    for dispatch in rest:
        table.scheduler.first_byte(dispatch.lease_id)
    table.poll()
    assert ceiling(table) == cut


def test_the_declared_maximum_bounds_streams_too() -> None:
    table = one_server(20)
    server = Server(table, places=256, first_ms=50.0)
    submit(table, 64)
    server.serve(2.0)
    assert server.most == 20
    assert ceiling(table) == 20
