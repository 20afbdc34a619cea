"""The decision feed as lines of a page: what, of whom, with which numbers."""

from typing import Any
from urllib.parse import quote

from fleet.dashboard.format import pairs
from fleet.live.feed import FeedLine
from fleet.live.scene import Scene

WORDS = {
    "breaker": "breaker",
    "split": "split",
    "limit": "limit",
    "refusal": "refusal",
    "hedge": "hedge",
    "replica": "replica",
    "retry": "retry",
    "rollout": "rollout",
    "panic": "panic",
}


def feed_lines(scene: Scene, *, limit: int = 20, subject: str | None = None) -> dict[str, Any]:
    """The newest decisions, keyed by id so that a known line is never sent again."""
    lines = scene.feed.newest(limit, subject)
    return {
        "order": [line["id"] for line in lines],
        "rows": {line["id"]: _line(line) for line in lines},
    }


def _line(line: FeedLine) -> dict[str, Any]:
    return {
        "at": line["atMs"],
        "kind": WORDS.get(line["kind"], line["kind"]),
        "subject": line["subject"],
        "href": href_of(line["kind"], line["subject"]),
        "text": line["text"],
        "numbers": pairs(line["numbers"]),
        "gateway": line["gateway"],
    }


def href_of(kind: str, subject: str) -> str:
    """Where a decision's subject is shown. Every id is a link."""
    if kind in ("breaker", "replica", "hedge", "retry"):
        return f"/fleet/{quote(subject, safe='')}/"
    if kind == "panic":  # of one version: `MODEL VERSION`
        model, _, version = subject.rpartition(" ")
        return f"/models/{quote(model, safe='')}/#{quote(version, safe='')}"
    if kind in ("split", "limit", "rollout"):
        return f"/models/{quote(subject, safe='')}/"
    if kind == "refusal":
        return f"/requests/?q={quote(subject, safe='')}"
    return "/fleet/"
