"""The replica's HTTP: plain ASGI, one method an endpoint.

    POST /execute          a batch from a gateway
    POST /predict          one request, where the replica stands alone
    GET  /health           starting, ready or draining, and what it can take now
    GET  /readyz           the same, as 200 or 503: what gateways probe
    GET  /metrics          JSON, or Prometheus text where that is what is accepted
    GET  /metrics/history  one snapshot a second, five minutes
    GET  /controller       the limits in force and the last move
    GET, POST, DELETE /simulate   the failures in force; inject one; end them

Each answer to `/execute` carries the limits as they are now, so that the gateway's ceiling
follows the regulation: `x-halcyon-max-concurrency`, `x-halcyon-max-batch-size`,
`x-halcyon-queue`. Busy is 503 with a computed `Retry-After`; a client that leaves takes its
work with it.
"""

import asyncio
import time
import uuid
from enum import StrEnum
from typing import Any

import msgspec

from engine.errors import Refusal
from fleet.replica.asgi import (
    ClientGone,
    Headers,
    Receive,
    Reply,
    Router,
    Scope,
    bad_request,
    disconnected,
    error_reply,
    header,
    read_body,
)
from fleet.replica.monitoring import Monitor
from fleet.replica.options import PREMIUM, STANDARD, Options
from fleet.replica.runtimes.base import BAD_INPUT, Failed, Item, ItemOutcome, Runtime, RuntimeBusy
from fleet.replica.sensors import Sensors
from fleet.replica.simulations import Simulations
from fleet.replica.wire import (
    JSON,
    ExecuteAnswer,
    ExecuteItem,
    ExecuteRequest,
    ExecuteResult,
    PredictRequest,
    decode_batch,
    media_of,
)
from fleet.replica.workplace import Order, Refused, TimedOut, Workplace

BATCH_CLASS = "batch"
PROMETHEUS = b"text/plain; version=0.0.4; charset=utf-8"


class State(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


class ReplicaApp(Router):
    """The ASGI application of one replica."""

    def __init__(
        self, options: Options, workplace: Workplace, monitor: Monitor, sensors: Sensors
    ) -> None:
        super().__init__()
        self.options = options
        self.workplace = workplace
        self.monitor = monitor
        self.sensors = sensors
        self.state = State.STARTING
        self.started_at = time.time()
        self.routes = {
            ("POST", "/execute"): self.execute,
            ("GET", "/health"): self.health,
            ("GET", "/readyz"): self.readyz,
            ("GET", "/metrics"): self.metrics,
            ("GET", "/metrics/history"): self.history,
            ("GET", "/controller"): self.controller,
            **Simulations(workplace.faults).routes,
        }
        if options.standalone:
            del self.routes["POST", "/execute"]
            self.routes["POST", "/predict"] = self.predict

    # -- inference --------------------------------------------------------------------------

    async def execute(self, scope: Scope, receive: Receive) -> Reply:
        """A batch: place it, wait for it, answer item by item."""
        media = media_of(header(scope, b"content-type"))
        if media is None:
            message = "content-type: use application/json or application/msgpack"
            raise error_reply(415, "invalid_request", message)
        try:
            batch = decode_batch(await read_body(receive), media)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise error_reply(400, "invalid_request", str(error), media=media) from None
        if not 0 < len(batch.items) <= self.options.max_batch_size:
            message = f"items: {len(batch.items)} of them, from 1 to {self.options.max_batch_size}"
            raise error_reply(400, "invalid_request", message, media=media)
        runtime = self._runtime_of(batch, media)
        results: dict[int, ExecuteResult] = {}
        wanted: list[tuple[int, Item]] = []
        for index, item in enumerate(batch.items):
            why = runtime.check(item.input)
            if why is not None:
                failed = ExecuteResult(item.request_id, error=f"input {why}", status=BAD_INPUT)
                results[index] = failed
            else:
                expires_ms = self.workplace.clock_ms() + item.deadline_ms
                wanted.append(
                    (
                        index,
                        Item(item.input, item.max_output_tokens, item.prompt_tokens, expires_ms),
                    )
                )
        execution_ms = 0.0
        if wanted:
            longest_ms = max(batch.items[index].deadline_ms for index, _ in wanted)
            order = await self._done(
                [item for _, item in wanted],
                BATCH_CLASS,
                max(longest_ms, 1.0),
                receive,
                media,
                runtime,
            )
            execution_ms = order.execution_ms
            for (index, _), outcome in zip(wanted, order.future.result(), strict=True):
                results[index] = _result(batch.items[index], outcome)
        answer = ExecuteAnswer(
            batch_id=batch.batch_id,
            execution_ms=round(execution_ms, 3),
            queued=len(self.workplace.station.queue),
            results=[results[index] for index in range(len(batch.items))],
        )
        return Reply(200, answer, media, self._limits())

    async def predict(self, scope: Scope, receive: Receive) -> Reply:
        """One request, with the classes and refusals of a server of its own."""
        if media_of(header(scope, b"content-type")) != JSON:
            raise Reply(415, bad_request("content-type", "use application/json"))
        try:
            request = msgspec.json.decode(await read_body(receive), type=PredictRequest)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise Reply(400, bad_request("body", str(error))) from None
        if request.priority not in (PREMIUM, STANDARD):
            raise Reply(400, bad_request("priority", f"use {PREMIUM} or {STANDARD}"))
        why = self.workplace.runtime.check(request.input)
        if why is not None:
            raise Reply(400, bad_request("input", why))
        order = await self._done([Item(request.input)], request.priority, None, receive, JSON)
        outcome = order.future.result()[0]
        if isinstance(outcome, Failed):
            raise Reply(outcome.status, {"error": "inference_failed", "message": outcome.error})
        return Reply(
            200,
            {
                "request_id": uuid.uuid4().hex,
                "output": outcome.output,
                "queue_wait_ms": round(order.queue_wait_ms, 3),
                "inference_ms": round(order.execution_ms, 3),
            },
        )

    def _runtime_of(self, batch: ExecuteRequest, media: bytes) -> Runtime:
        """Whose batch it is. A replica that serves one model is never asked for another one."""
        place, options = self.workplace, self.options
        named = (batch.model, batch.version)
        if not place.also or named in (("", ""), (options.model, options.version)):
            return place.runtime
        if (runtime := place.also.get(named)) is None:
            served = ", ".join(options.loaded_models)
            message = f"{batch.model} {batch.version}: not loaded here; loaded: {served}"
            raise error_reply(500, "model_not_loaded", message, media=media)
        return runtime

    async def _done(
        self,
        items: list[Item],
        priority: str,
        timeout_ms: float | None,
        receive: Receive,
        media: bytes,
        runtime: Runtime | None = None,
    ) -> Order:
        """Place an order and wait for its end, or for its client to leave."""
        if self.state is State.STARTING:
            raise self._busy("the replica is starting", 1000.0, media)
        try:
            order = self.workplace.place(
                items, priority=priority, timeout_ms=timeout_ms, runtime=runtime
            )
        except Refused as refused:
            raise self._refused(refused.refusal, media) from None
        except RuntimeBusy as busy:
            raise self._busy(str(busy), busy.retry_after_s * 1000, media) from None
        leaving = asyncio.ensure_future(disconnected(receive))
        try:
            waited: set[asyncio.Future[Any]] = {order.future, leaving}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            if not order.future.done():
                self.workplace.cancel(order)
        if order.future.cancelled():
            raise ClientGone
        error = order.future.exception()
        if error is None:
            return order
        if isinstance(error, TimedOut):
            if self.options.standalone:
                raise Reply(504, {"error": "timeout", "message": str(error)})
            raise self._busy(str(error), None, media)
        if isinstance(error, RuntimeBusy):
            raise self._busy(str(error), error.retry_after_s * 1000, media)
        raise error_reply(
            500, "runtime_failed", f"{type(error).__name__}: {error}"[:500], media=media
        )

    # -- what it says of itself ---------------------------------------------------------------

    async def readyz(self, scope: Scope, receive: Receive) -> Reply:
        """200 where it takes work, 503 where it is starting or draining."""
        return self._status(200 if self.state is State.READY else 503)

    async def health(self, scope: Scope, receive: Receive) -> Reply:
        """200 for as long as the process lives: a draining one must not be killed for it."""
        return self._status(200)

    def _status(self, status: int) -> Reply:
        station, options = self.workplace.station, self.options
        body = {
            "state": self.state.value,
            "replicaId": options.replica_id,
            "model": options.model,
            "version": options.version,
            "runtime": options.runtime,
            "workUnit": self.workplace.runtime.work_unit.value,
            "inFlight": station.limit.in_use,
            "inFlightItems": self.workplace.in_flight_items,
            "queued": len(station.queue),
            "loadedModels": [] if self.state is State.STARTING else options.loaded_models,
            "gpuMemoryRatio": options.gpu_memory_ratio,
            "maxConcurrency": station.limit.limit,
            "maxBatchSize": station.controller.batch_size,
            "uptimeS": round(time.time() - self.started_at, 3),
        }
        return Reply(status, body, headers=self._limits())

    async def metrics(self, scope: Scope, receive: Receive) -> Reply:
        accepted = header(scope, b"accept")
        if b"text/plain" in accepted or b"openmetrics" in accepted:
            return Reply(200, self.monitor.prometheus(self.sensors), PROMETHEUS)
        return Reply(200, self.monitor.snapshot(self.sensors))

    async def history(self, scope: Scope, receive: Receive) -> Reply:
        return Reply(200, list(self.monitor.history))

    async def controller(self, scope: Scope, receive: Receive) -> Reply:
        return Reply(200, self.monitor.controller())

    # -- refusals -------------------------------------------------------------------------------

    def _refused(self, refusal: Refusal, media: bytes) -> Reply:
        if not self.options.standalone or refusal.limit_name == "draining":
            return self._busy(refusal.message, refusal.retry_after_ms, media)
        body = {"error": "overloaded", "reason": refusal.limit_name}
        wait_ms = refusal.retry_after_ms or 0.0
        seconds = max(1, -int(-wait_ms // 1000))
        return Reply(429, body, headers=[(b"retry-after", str(seconds).encode())])

    def _busy(self, message: str, retry_after_ms: float | None, media: bytes) -> Reply:
        """503 with the time, to the millisecond, after which trying again makes sense."""
        if retry_after_ms is None:
            priority = self.workplace.station.config.classes[-1].name
            retry_after_ms = self.workplace.station.forecast_ms(priority)
        wait_ms = max(1.0, 1000.0 if retry_after_ms is None else retry_after_ms)
        headers = [*self._limits(), (b"retry-after", f"{wait_ms / 1000:.3f}".encode())]
        error = {"code": "overloaded", "message": message, "retryAfterMs": round(wait_ms, 1)}
        return Reply(503, {"error": error}, media, headers)

    def _limits(self) -> Headers:
        station = self.workplace.station
        return [
            (b"x-halcyon-max-concurrency", str(station.limit.limit).encode()),
            (b"x-halcyon-max-batch-size", str(station.controller.batch_size).encode()),
            (b"x-halcyon-queue", str(len(station.queue)).encode()),
        ]


def _result(item: ExecuteItem, outcome: ItemOutcome) -> ExecuteResult:
    if isinstance(outcome, Failed):
        return ExecuteResult(item.request_id, error=outcome.error, status=outcome.status)
    return ExecuteResult(
        item.request_id, outcome.output, outcome.prompt_tokens, outcome.completion_tokens
    )
