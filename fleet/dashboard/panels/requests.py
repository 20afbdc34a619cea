"""Recent requests: sampled decision records as rows, and one record as a waterfall.

The record is the engine's own (`engine/scheduling/explain.py`), whole; what is shown beside it
is arithmetic on its times, so page and API cannot tell different stories.
"""

from typing import Any

from fleet.dashboard.format import NO_DATA, count, ms, number, spoken, words
from fleet.dashboard.meanings import FLUSHES, REFUSALS
from fleet.dashboard.paging import Page, cut, matches
from fleet.dashboard.panels.shell import shell
from fleet.dashboard.tables import body
from fleet.live.samples import Record
from fleet.live.scene import Scene
from fleet.live.topics import Params, register

Row = dict[str, Any]


def verdict_of(record: Record) -> str:
    """How it ended, in one word of the closed sets."""
    if record.get("refusal"):
        return str(record["refusal"]["code"])
    last = (record.get("stages") or [{}])[-1]
    return (
        str(last.get("verdict", "unknown")) if last.get("stage") == "outcome" else record["state"]
    )


def request_row(record: Record) -> Row:
    replicas = [s["verdict"] for s in record.get("stages", ()) if s["stage"] in ("route", "hedge")]
    verdict = verdict_of(record)
    return {
        "id": record["requestId"],
        "at": record.get("atMs"),
        "verdict": words(verdict),
        "kind": "served" if verdict == "served" else "refused" if "refusal" in record else "failed",
        "tenant": record.get("tenant", ""),
        "model": record.get("model", ""),
        "version": record.get("version"),
        "replica": replicas[-1] if replicas else None,
        "queued": ms(queued_ms(record)),
        "total": ms(record.get("totalMs")),
        "deadline": ms(record.get("deadlineMs")),
        "attempts": count(record.get("attempts", 0)),
    }


def queued_ms(record: Record) -> float | None:
    """From its arrival to its first batch."""
    return next((s["atMs"] for s in record.get("stages", ()) if s["stage"] == "batch"), None)


def filtered(scene: Scene, params: Params) -> list[Record]:
    verdict, text = params.get("verdict", ""), params.get("q", "")
    kept = []
    for record in scene.samples.newest():
        row = request_row(record)
        if verdict and row["kind"] != verdict:
            continue
        if text and not matches(
            text, *(str(row[k] or "") for k in ("id", "tenant", "model", "verdict", "replica"))
        ):
            continue
        kept.append(record)
    return kept


def page_of(scene: Scene, params: Params) -> Page[Record]:
    return cut(filtered(scene, params), params)


def live(scene: Scene, params: Params) -> dict[str, Any]:
    page = page_of(scene, params)
    rows = [request_row(record) for record in page.items]
    return {"shell": shell(scene), "tables": {"requests": body(rows, total=page.total)}}


def live_one(scene: Scene, _params: Params) -> dict[str, Any]:
    """A record does not change once its request has ended; only the shell lives."""
    return {"shell": shell(scene)}


register("requests", live)
register("request", live_one)


# -- one record --------------------------------------------------------------------------------


def waterfall(record: Record) -> dict[str, Any]:
    """Its time as bars: queued, then each attempt, against its deadline."""
    total = record.get("totalMs") or 0.0
    deadline = record.get("deadlineMs") or 0.0
    span = max(total, deadline, 1.0)
    bars = []
    queued = queued_ms(record)
    if queued is not None:
        bars.append(_bar("queued", "queued", 0.0, queued, span, ""))
    elif total:
        bars.append(_bar("queued", "queued", 0.0, total, span, ""))
    starts = [s for s in record.get("stages", ()) if s["stage"] in ("route", "hedge", "retry")]
    for index, stage in enumerate(starts):
        later = [s["atMs"] for s in starts[index + 1 :] if s["stage"] != "hedge"]
        end = later[0] if later else total
        kind = "hedged" if stage["stage"] == "hedge" else "executing"
        bars.append(
            _bar(kind, f"{kind} on {stage['verdict']}", stage["atMs"], end, span, stage["verdict"])
        )
    return {
        "bars": bars,
        "deadline_left": round(100.0 * deadline / span, 2),
        "deadline": ms(deadline),
        "total": ms(total) if total else NO_DATA,
        "in_time": bool(total) and total <= deadline,
    }


def _bar(kind: str, label: str, start: float, end: float, span: float, replica: str) -> Row:
    return {
        "kind": kind,
        "label": label,
        "replica": replica,
        "ms": ms(max(end - start, 0.0)),
        "left": round(100.0 * start / span, 2),
        "width": round(100.0 * max(end - start, span * 0.002) / span, 2),
    }


def steps(record: Record) -> list[Row]:
    """The decision record as lines: stage, verdict, sentence, numbers, candidates."""
    made = []
    for stage in record.get("stages", ()):
        numbers = dict(stage.get("numbers") or {})
        candidates = numbers.pop("candidates", None)
        made.append(
            {
                "stage": stage["stage"],
                "at": ms(stage["atMs"]),
                "verdict": words(str(stage["verdict"])),
                "sentence": _sentence(stage, numbers),
                "numbers": [
                    {"name": spoken(name), "value": _value(value)}
                    for name, value in numbers.items()
                    if value is not None
                ],
                "candidates": [
                    {
                        **c,
                        "score": number(c.get("score")),
                        "chosen": c["replicaId"] == stage["verdict"],
                    }
                    for c in candidates or ()
                ],
            }
        )
    return made


def _sentence(stage: dict[str, Any], numbers: dict[str, Any]) -> str:
    """What the comparison says, in words."""
    kind, verdict = stage["stage"], str(stage["verdict"])
    if verdict in REFUSALS:
        return REFUSALS[verdict]
    if kind == "split" and numbers.get("position") is not None:
        ratio = numbers.get("canaryRatio") or 0.0
        sign = "<" if verdict == "canary" else "≥"
        place = number(numbers["position"])
        return f"its session's place {place} {sign} the canary's share {number(ratio)}"
    if kind == "queue":
        return f"{count(numbers.get('ahead') or 0)} were waiting before it"
    if kind == "batch":
        return FLUSHES.get(verdict, "")
    if kind == "route":
        return "drawn by power of two choices: the lower score won"
    if kind == "hedge":
        return "a second attempt, because the first took longer than its size class does"
    return ""


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number(float(value))
    return str(value)


def remedy(record: Record) -> str:
    """What would have let it pass."""
    refusal = record.get("refusal")
    if not refusal:
        return ""
    details = refusal.get("details") or {}
    earliest = details.get("earliestDeadlineMs") or details.get("earliest_deadline_ms")
    if earliest is not None:
        return f"A deadline of at least {ms(float(earliest))} ms would have let it pass."
    retry = refusal.get("retryAfterMs")
    if retry is not None:
        return f"The same request {ms(float(retry))} ms later would have found room."
    if refusal.get("value") is not None and refusal.get("used") is not None:
        return (
            f"It would have passed with {spoken(str(refusal.get('limit') or 'the limit'))} above "
            f"{number(float(refusal['used']))} (now {number(float(refusal['value']))})."
        )
    return "Waiting would not have helped: see the message."
