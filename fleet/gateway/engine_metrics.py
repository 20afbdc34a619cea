"""What inference servers publish of themselves: how many wait inside, how full the KV cache is.

vLLM, SGLang and llama.cpp answer `GET /metrics` in Prometheus' text format. Three figures of
the hundreds there matter to routing: requests running, requests waiting, and the share of
the KV cache in use. They are found by searching the page for three names; a real parser
would cost the serving loop milliseconds for each of these pages (80 kB and more).

    waiting  -> the queue that the router adds to what is in flight there
    KV share -> the memory part of the health score, and residency for affinity

Read every two seconds, a few replicas at a time, never on the request's path. A server
without such a page (404, or none of the names on it) is asked again only once a minute. A
page that goes silent takes its queue back: an old figure must not keep traffic away.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from engine.scheduler import Scheduler
from engine.types import Protocol, ReplicaSpec
from fleet.gateway.pace import Rest
from fleet.gateway.transports.connection import Exchange
from fleet.gateway.transports.http_client import HttpClient

PERIOD_S = 2.0
WITHOUT_PAGE_S = 60.0
STEP_S = 0.2
MAX_PER_STEP = 8
TIMEOUT_S = 2.0
MAX_PAGE_BYTES = 4 * 1024 * 1024
RUNNING = (
    b"vllm:num_requests_running",
    b"sglang:num_running_reqs",
    b"llamacpp:requests_processing",
)
WAITING = (b"vllm:num_requests_waiting", b"sglang:num_queue_reqs", b"llamacpp:requests_deferred")
CACHE = (
    b"vllm:kv_cache_usage_perc",
    b"vllm:gpu_cache_usage_perc",  # its name before vLLM 0.10
    b"sglang:token_usage",
    b"llamacpp:kv_cache_usage_ratio",
)


@dataclass(slots=True, frozen=True, kw_only=True)
class EngineLoad:
    """One reading. None: the page does not say."""

    running: int | None
    waiting: int | None
    cache_ratio: float | None


def read_page(page: bytes) -> EngineLoad:
    """Search a page in Prometheus' text format. Engines of one server add up."""
    running, waiting, cache = _values(page, RUNNING), _values(page, WAITING), _values(page, CACHE)
    return EngineLoad(
        running=int(sum(running)) if running else None,
        waiting=int(sum(waiting)) if waiting else None,
        cache_ratio=min(max(*cache, 0.0), 1.0) if cache else None,
    )


def _values(page: bytes, names: tuple[bytes, ...]) -> list[float]:
    """The samples of the first of `names` that the page has."""
    for name in names:
        found: list[float] = []
        place = page.find(name)
        while place >= 0:
            after = place + len(name)
            if (place == 0 or page[place - 1 : place] == b"\n") and page[after : after + 1] in (
                b"{",
                b" ",
            ):
                end = page.find(b"\n", after)
                line = page[after : end if end >= 0 else len(page)]
                value = _number(line.rpartition(b"}")[2])
                if value is not None:
                    found.append(value)
            place = page.find(name, after)
        if found:
            return found
    return []


def _number(text: bytes) -> float | None:
    """The value in `value [timestamp]`; None where it is no finite number."""
    words = text.split(None, 1)
    try:
        value = float(words[0])
    except (IndexError, ValueError):
        return None
    return value if 0.0 <= value < 1e12 else None


class _Page:
    """The page of one replica."""

    __slots__ = ("exchange", "load", "next_s", "spec")

    def __init__(self, spec: ReplicaSpec) -> None:
        self.spec = spec
        self.next_s = 0.0
        self.load: EngineLoad | None = None
        self.exchange: Exchange | None = None


class EngineMetrics:
    """Reads the pages of the snapshot's OpenAI-compatible replicas; tells the scheduler."""

    def __init__(self, scheduler: Scheduler, client: HttpClient) -> None:
        self._scheduler = scheduler
        self._client = client
        self._pages: dict[str, _Page] = {}
        self._rest = Rest(STEP_S)
        self.read = 0

    def follow(self, replicas: Mapping[str, ReplicaSpec]) -> None:
        """Read these from now on."""
        pages: dict[str, _Page] = {}
        for replica_id, spec in replicas.items():
            if spec.protocol is not Protocol.OPENAI:
                continue
            page = self._pages.pop(replica_id, None)
            if page is None or page.spec.address != spec.address:
                page = _Page(spec)
            page.spec = spec
            pages[replica_id] = page
        for gone in self._pages.values():
            if gone.exchange is not None:
                gone.exchange.cancel()
        self._pages = pages
        self._rest.nudge()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            now_s, horizon_s = time.monotonic(), self._rest.horizon_s()
            pages = self._pages.values()
            due = [page for page in pages if page.exchange is None and page.next_s <= horizon_s]
            for page in due[:MAX_PER_STEP]:
                page.next_s = now_s + PERIOD_S
                self._ask(page, now_s)
            await self._rest.until(min((page.next_s for page in pages), default=now_s + PERIOD_S))

    async def close(self) -> None:
        """Let go of every connection."""
        await self._client.close()

    def _ask(self, page: _Page, now_s: float) -> None:
        try:
            page.exchange = self._client.request(
                page.spec.address,
                "GET",
                "/metrics",
                now_s + TIMEOUT_S,
                lambda status, _headers, body: self._answered(page, status, body),
                lambda _why: self._silent(page, PERIOD_S),
            )
        except ValueError:
            self._silent(page, WITHOUT_PAGE_S)

    def _answered(self, page: _Page, status: int, body: bytes) -> None:
        if status != 200 or len(body) > MAX_PAGE_BYTES:
            self._silent(page, WITHOUT_PAGE_S)
            return
        load = read_page(body)
        if load.waiting is None and load.cache_ratio is None:
            self._silent(page, WITHOUT_PAGE_S)
            return
        page.exchange = None
        page.load = load
        self.read += 1
        self._scheduler.replica_reported(
            page.spec.replica_id, queued=load.waiting, gpu_memory_ratio=load.cache_ratio
        )

    def _silent(self, page: _Page, wait_s: float) -> None:
        page.exchange = None
        page.next_s = time.monotonic() + wait_s
        if page.load is not None:
            page.load = None
            self._scheduler.replica_reported(page.spec.replica_id, queued=0)
