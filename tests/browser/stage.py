"""Gateways played from a script: fixed views through the real channel layer.

`python tests/browser/stage.py` publishes once a second until it is stopped; `--replicas`,
`--models` and `--tenants` make the fleet as large as a benchmark wants it. The numbers are
functions of the second, so that a screenshot of second 240 looks the same every time.
"""

import argparse
import asyncio
import math
import os
import sys
from pathlib import Path
from typing import Any

View = dict[str, Any]

SLO_MS = 1000.0


def wave(second: float, period_s: float, low: float, high: float, shift: float = 0.0) -> float:
    """A smooth, deterministic movement between two values."""
    phase = math.sin(2 * math.pi * (second / period_s + shift))
    ripple = 0.18 * math.sin(second * 1.7 + shift * 11) + 0.12 * math.sin(second * 0.61 + shift * 5)
    return low + (high - low) * min(max((phase + ripple + 1.3) / 2.6, 0.0), 1.0)


def view(second: int, *, replicas: int = 0, models: int = 0, tenants: int = 0) -> View:
    """What gateway-a would say in this second."""
    offered = wave(second, 140, 168, 246)
    quota = wave(second, 60, 0.0, 6.4) if second % 300 > 40 else 0.0
    hopeless = max(wave(second, 90, -6, 9, 0.2), 0.0)
    late, failed = (
        max(wave(second, 80, -2.5, 3.2, 0.4), 0.0),
        max(wave(second, 200, -1.6, 1.2), 0.0),
    )
    goodput = offered - quota - hopeless - late - failed
    return {
        "revision": 41,
        "conservation": {
            "arrived": 203_511 + second * 210,
            "served": 198_204 + second * 203,
            "refused": 4_120 + second * 6,
            "failed": 911 + second,
            "cancelled": 248,
            "queued": 17,
            "running": 11,
            "balanced": True,
        },
        "traffic": {
            "offeredPerS": offered,
            "goodputPerS": goodput,
            "latePerS": late,
            "failedPerS": failed,
            "cancelledPerS": 0.4,
            "refusedPerS": {"quota_exceeded": quota, "deadline_unreachable": hopeless},
            "goodputRatio": goodput / offered,
            "p50Ms": wave(second, 140, 92, 165),
            "p95Ms": wave(second, 140, 520, 905, 0.05),
            "p99Ms": wave(second, 140, 790, 1240, 0.08),
        },
        "admission": {
            "policy": "slo_headroom",
            "limit": round(wave(second, 190, 132, 190, 0.3)),
            "inFlight": round(wave(second, 140, 61, 148)),
            "sloMs": SLO_MS,
            "p95Ms": wave(second, 140, 520, 905, 0.05),
            "reason": "p95 712 ms under 0.92 of 1 000 ms: grew by 4 %",
        },
        "queues": _queues(second),
        "models": [*_models(second), *(_extra_model(i, second) for i in range(models))],
        "replicas": [*_replicas(second), *(_extra_replica(i, second) for i in range(replicas))],
        "tenants": [*_tenants(second), *(_extra_tenant(i, second) for i in range(tenants))],
        "events": _events(second),
        "requests": _requests(second),
        "gateway": {
            "id": "gateway-a",
            "process": 4211,
            "startedAt": "2026-03-02T08:14:05Z",
            "uptimeS": 18_000 + second,
            "eventLoopLagMs": wave(second, 30, 0.3, 1.9),
            "snapshotRevision": 41,
            "snapshotAgeS": 12.0,
            "degraded": [],
        },
    }


def _queues(second: int) -> list[View]:
    return [
        {
            "model": "llama-3-8b",
            "version": "v1",
            "queued": round(wave(second, 140, 2, 38)),
            "queuedWork": wave(second, 140, 900, 18_200),
            "oldestMs": wave(second, 140, 21, 340),
            "meanBatch": 14.6,
            "flushReasons": {
                "goodput": 2210 + second,
                "deadline": 871 + second,
                "idle": 340,
                "saturated": 118,
                "linger": 61,
            },
            "mode": "goodput" if wave(second, 140, 0, 1) > 0.6 else "edf",
            "slotMs": 131.0,
            "theta": 412.0,
        },
        {
            "model": "llama-3-8b",
            "version": "v2",
            "queued": round(wave(second, 140, 0, 9, 0.2)),
            "queuedWork": wave(second, 140, 0, 3_400, 0.2),
            "oldestMs": wave(second, 140, 9, 120, 0.2),
            "meanBatch": 6.1,
            "flushReasons": {"deadline": 214, "idle": 188, "goodput": 92},
            "mode": "edf",
            "slotMs": 131.0,
            "theta": None,
        },
        {
            "model": "minilm",
            "version": "v1",
            "queued": round(wave(second, 40, 0, 3)),
            "queuedWork": wave(second, 40, 0, 90),
            "oldestMs": 6.0,
            "meanBatch": 2.3,
            "flushReasons": {"idle": 4_810},
            "mode": "idle",
            "slotMs": None,
            "theta": None,
        },
    ]


def _cost(second: int, replica_id: str, accelerator: str, fixed: float, per: float) -> View:
    work = round(wave(second * 7.3, 140, 380, 7_900))
    return {
        "replicaId": replica_id,
        "accelerator": accelerator,
        "unit": "tokens",
        "fixedMs": fixed,
        "perWorkMs": per,
        "quadraticMs": 0.0,
        "deviationMs": 3.2,
        "samples": 4_120 + second,
        "last": {"work": work, "ms": fixed + per * work + 3.2 * math.sin(second * 2.3)},
    }


def _version(name: str, arm: str | None, share: float, rate: float, **more: Any) -> View:
    return {
        "version": name,
        "arm": arm,
        "share": share,
        "readyReplicas": 2,
        "ratePerS": rate,
        "errorRatio": 0.002,
        "p50Ms": 118.0,
        "p95Ms": 702.0,
        "p99Ms": 1010.0,
        "cost": [],
    } | more


def _models(second: int) -> list[View]:
    rate = wave(second, 140, 120, 180)
    return [
        {
            "model": "llama-3-8b",
            "strategy": "peak_ewma",
            "sloMs": SLO_MS,
            "split": {"baseline": "v1", "canary": "v2", "percent": 25.0, "shadow": False},
            "versions": [
                _version(
                    "v1",
                    "baseline",
                    0.75,
                    rate * 0.75,
                    cost=[
                        _cost(second, "llama-a100-1", "a100", 18.3, 0.0221),
                        _cost(second, "llama-t4-1", "t4", 30.4, 0.0371),
                    ],
                ),
                _version(
                    "v2",
                    "canary",
                    0.25,
                    rate * 0.25,
                    readyReplicas=1,
                    errorRatio=0.004,
                    p50Ms=94.0,
                    p95Ms=512.0,
                    p99Ms=830.0,
                    cost=[_cost(second, "llama-h100-1", "h100", 12.9, 0.0158)],
                ),
            ],
        },
        {
            "model": "minilm",
            "strategy": "affinity",
            "sloMs": 250.0,
            "split": {"baseline": "v1", "canary": None, "percent": 0.0, "shadow": False},
            "versions": [
                _version(
                    "v1",
                    "baseline",
                    1.0,
                    wave(second, 40, 22, 44),
                    readyReplicas=1,
                    errorRatio=0.0,
                    p50Ms=9.0,
                    p95Ms=31.0,
                    p99Ms=58.0,
                )
            ],
        },
    ]


def replica(replica_id: str, model: str, version: str, **more: Any) -> View:
    return {
        "replicaId": replica_id,
        "model": model,
        "version": version,
        "address": "http://10.20.0.11:9101",
        "protocol": "batch",
        "accelerator": "a100",
        "status": "healthy",
        "inFlight": 1,
        "ceiling": 2,
        "score": 1.12,
        "latencyMs": 96.0,
        "p95Ms": 131.0,
        "errorRatio": 0.0,
        "batches": 8_214,
        "backpressure": 0,
        "breaker": {"state": "closed", "trips": 0, "reopensInMs": None, "faultRatio": 0.0},
        "health": {"errors": 1.0, "latency": 0.93, "gpuMemory": 0.71, "connections": 0.88},
        "why": None,
    } | more


def _replicas(second: int) -> list[View]:
    p95 = wave(second, 50, 110, 150)
    tripped = {"state": "open", "trips": 2, "reopensInMs": 4_200.0, "faultRatio": 0.41}
    if second % 60 > 55:  # a probe is out, and will fail
        tripped |= {"state": "half_open", "reopensInMs": None}
    return [
        replica("llama-a100-1", "llama-3-8b", "v1", p95Ms=p95, inFlight=2 if p95 > 128 else 1),
        replica(
            "llama-a100-2",
            "llama-3-8b",
            "v1",
            status="degraded",
            p95Ms=wave(second, 50, 210, 340, 0.3),
            errorRatio=0.018,
            score=3.4,
            backpressure=12,
        ),
        replica(
            "llama-t4-1",
            "llama-3-8b",
            "v1",
            accelerator="t4",
            status="down",
            p95Ms=None,
            errorRatio=0.41,
            score=None,
            inFlight=0,
            breaker=tripped,
            why="breaker_open",
        ),
        replica("llama-h100-1", "llama-3-8b", "v2", accelerator="h100", p95Ms=p95 * 0.7, score=0.8),
        replica(
            "llama-a100-3",
            "llama-3-8b",
            "v1",
            status="draining",
            inFlight=1,
            score=None,
            why="draining",
        ),
        replica(
            "minilm-cpu-1",
            "minilm",
            "v1",
            accelerator="cpu",
            ceiling=4,
            p95Ms=wave(second, 40, 24, 38),
            score=0.2,
            batches=41_003,
        ),
    ]


def _tenant(
    name: str, rate: float, level: float | None, burst: float | None, **refused: int
) -> View:
    return {
        "tenant": name,
        "inFlight": round(rate / 8),
        "ratePerS": rate,
        "tokensPerS": rate * 412,
        "bucketLevel": level,
        "bucketBurst": burst,
        "refused": refused,
    }


def _tenants(second: int) -> list[View]:
    return [
        _tenant(
            "acme",
            wave(second, 60, 60, 96),
            wave(second, 60, 2_000, 41_000, 0.5),
            500_000.0,
            quota_exceeded=1_204,
        ),
        _tenant(
            "globex", wave(second, 140, 70, 110), 812_000.0, 1_000_000.0, deadline_unreachable=311
        ),
        _tenant("initech", wave(second, 90, 18, 34), 96_000.0, 120_000.0),
        _tenant("umbrella", wave(second, 30, 4, 11), None, None),
    ]


EVENTS = (
    (
        3,
        "limit",
        "llama-3-8b",
        "limit 152 -> 158: p95 712 ms has headroom",
        {"p95Ms": 712, "headroom": 0.21},
    ),
    (
        9,
        "breaker",
        "llama-t4-1",
        "closed -> open: 5 faults in a row",
        {"faults": 5, "threshold": 5, "backoffMs": 2000},
    ),
    (
        9,
        "retry",
        "llama-t4-1",
        "batch of 12 moved to llama-a100-1 inside its deadlines",
        {"members": 12, "remainingMs": 640},
    ),
    (31, "split", "llama-3-8b", "canary v2: 5 % -> 25 %", {"from": 5, "to": 25}),
    (
        48,
        "refusal",
        "acme",
        "quota_exceeded: 500 000 tokens a minute are used up",
        {"limit": 500000, "used": 500112, "retryAfterMs": 1400},
    ),
    (55, "replica", "llama-a100-3", "draining: one batch left", {"inFlight": 1}),
    (
        77,
        "hedge",
        "llama-a100-2",
        "hedged after 410 ms; the hedge on llama-a100-1 won",
        {"delayMs": 410, "wonByMs": 120},
    ),
    (
        120,
        "limit",
        "llama-3-8b",
        "limit 171 -> 152: p95 1 040 ms over the objective",
        {"p95Ms": 1040, "sloMs": 1000},
    ),
)


def _events(second: int) -> list[View]:
    return [
        {
            "seq": 100 - index + (second // 20) * 100,
            "atMs": (age + second % 20) * 1000.0,
            "kind": kind,
            "subject": subject,
            "text": text,
            "numbers": numbers,
        }
        for index, (age, kind, subject, text, numbers) in enumerate(EVENTS)
        if second % 20 == 0 or second < 20
    ]


def _served_record(second: int) -> View:
    return {
        "requestId": f"0x5ac1d2e7-{second:x}a",
        "agoMs": 900.0,
        "tenant": "globex",
        "model": "llama-3-8b",
        "promptTokens": 412,
        "maxOutputTokens": 256,
        "items": 1,
        "lane": "interactive",
        "priority": "normal",
        "sessionKey": "checkout-8812",
        "deadlineMs": 2000.0,
        "state": "done",
        "version": "v2",
        "arm": "canary",
        "attempts": 2,
        "totalMs": 742.0,
        "stages": [
            {"stage": "admission", "verdict": "admitted", "atMs": 0.0, "numbers": {"limit": 158}},
            {
                "stage": "split",
                "verdict": "canary",
                "atMs": 0.0,
                "numbers": {"position": 0.1834, "canaryRatio": 0.25, "shadow": False},
            },
            {
                "stage": "queue",
                "verdict": "queued",
                "atMs": 0.0,
                "numbers": {"ahead": 6, "work": 412},
            },
            {
                "stage": "batch",
                "verdict": "goodput",
                "atMs": 96.0,
                "numbers": {"size": 14, "work": 5210, "predictedMs": 118.2, "marginMs": 5.1},
            },
            {
                "stage": "route",
                "verdict": "llama-a100-2",
                "atMs": 96.0,
                "numbers": {
                    "rule": "p2c",
                    "candidates": [
                        {"replicaId": "llama-a100-2", "score": 0.94},
                        {"replicaId": "llama-h100-1", "score": 1.37},
                    ],
                },
            },
            {
                "stage": "hedge",
                "verdict": "llama-h100-1",
                "atMs": 508.0,
                "numbers": {"delayMs": 410, "budgetLeft": 0.031},
            },
            {"stage": "outcome", "verdict": "served", "atMs": 742.0, "numbers": {}},
        ],
    }


def _refused_record(second: int, code: str) -> View:
    quota = code == "quota_exceeded"
    return {
        "requestId": f"0x5ac1d2e7-{second:x}{'b' if quota else 'c'}",
        "agoMs": 300.0,
        "tenant": "acme" if quota else "globex",
        "model": "llama-3-8b",
        "promptTokens": 640 if quota else 6100,
        "maxOutputTokens": 256,
        "items": 1,
        "lane": "interactive",
        "priority": "normal",
        "sessionKey": None,
        "deadlineMs": 2000.0 if quota else 200.0,
        "state": "refused",
        "refusal": {
            "code": code,
            "message": "500 000 tokens a minute are used up."
            if quota
            else "6 100 tokens take 153 ms, and 38 requests wait: the earliest end is in 311 ms.",
            "limit": "tokens_per_minute" if quota else "deadline_ms",
            "value": 500_000.0 if quota else 200.0,
            "used": 500_112.0 if quota else 311.0,
            "retryAfterMs": 1400.0 if quota else None,
            "details": {} if quota else {"earliestDeadlineMs": 311.0},
        },
        "stages": [
            {
                "stage": "admission",
                "verdict": code,
                "atMs": 0.0,
                "numbers": {
                    "limit": "tokens_per_minute" if quota else "deadline_ms",
                    "value": 500_000.0 if quota else 200.0,
                    "used": 500_112.0 if quota else 311.0,
                },
            }
        ],
    }


def _requests(second: int) -> list[View]:
    """A few sampled records every third second, refusals among them."""
    if second % 3:
        return []
    code = "quota_exceeded" if second % 2 else "deadline_unreachable"
    return [_served_record(second), _refused_record(second, code)]


def _extra_model(index: int, second: int) -> View:
    versions = [_version("v1", "baseline", 0.9, wave(second, 50, 1, 9, index / 7))]
    versions.append(_version("v2", "canary", 0.1, wave(second, 50, 0, 1, index / 5)))
    return {
        "model": f"model-{index:03d}",
        "strategy": "peak_ewma",
        "sloMs": SLO_MS,
        "split": {"baseline": "v1", "canary": "v2", "percent": 10.0, "shadow": False},
        "versions": versions,
    }


def _extra_replica(index: int, second: int) -> View:
    return replica(
        f"gpu-{index:04d}",
        f"model-{index % 50:03d}",
        "v1" if index % 10 else "v2",
        inFlight=(index * 7 + second * 3) % 9,
        ceiling=8,
        score=wave(second, 40, 0.4, 4.0, index / 13),
        latencyMs=wave(second, 40, 40, 160, index / 11),
        p95Ms=wave(second, 40, 60, 240, index / 17),
        errorRatio=0.001 * (index % 4),
        batches=1000 + second * 3 + index,
    )


def _extra_tenant(index: int, second: int) -> View:
    return _tenant(f"tenant-{index:03d}", wave(second, 45, 0.2, 6, index / 9), 40_000.0, 60_000.0)


async def play(
    gateways: list[str], sizes: dict[str, int], *, first: int = 240, seconds: int | None = None
) -> None:
    """Publish one view a second for each gateway, through the real publisher."""
    from fleet.live.publisher import Publisher

    publishers = [Publisher(gateway) for gateway in gateways]
    second = first
    while seconds is None or second < first + seconds:
        for publisher in publishers:
            said = view(second, **sizes)
            said["gateway"] = said["gateway"] | {"id": publisher.gateway}
            await publisher.publish(said)
        await asyncio.sleep(1.0)
        second += 1


async def leave(gateways: list[str]) -> None:
    """Say farewell for gateways that were killed: the dashboard forgets them."""
    from fleet.live.publisher import Publisher

    for gateway in gateways:
        await Publisher(gateway).close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gateways", default="gateway-a", help="comma-separated ids")
    parser.add_argument("--farewell", action="store_true", help="see the gateways off")
    for name in ("replicas", "models", "tenants"):
        parser.add_argument(f"--{name}", type=int, default=0)
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "halcyon_site.settings")
    import django

    django.setup()
    if options.farewell:
        asyncio.run(leave(options.gateways.split(",")))
        return
    sizes = {name: getattr(options, name) for name in ("replicas", "models", "tenants")}
    asyncio.run(play(options.gateways.split(","), sizes))


if __name__ == "__main__":
    main()
