"""One model: its versions, its split, its cost per class of replica."""

from typing import Any

from engine.view import ModelView
from fleet.dashboard.format import ms, number, plural
from fleet.dashboard.panels.batching import queue_rows
from fleet.dashboard.panels.feed import feed_lines
from fleet.dashboard.panels.fleet import replica_row
from fleet.dashboard.panels.models import version_row
from fleet.dashboard.panels.shell import shell
from fleet.dashboard.tables import body
from fleet.live.scene import Scene
from fleet.live.topics import Params, register

REPLICAS_SHOWN = 12


def find(scene: Scene, name: str) -> ModelView | None:
    return next((model for model in scene.state["models"] if model["model"] == name), None)


def live(scene: Scene, params: Params) -> dict[str, Any]:
    name = params.get("id", "")
    model = find(scene, name)
    document: dict[str, Any] = {"shell": shell(scene), "present": model is not None}
    if model is None:
        return document
    replicas = [replica for replica in scene.state["replicas"] if replica["model"] == name]
    queues = [row for row in queue_rows(scene.state) if row["model"] == name]
    return document | {
        "split": split_text(model),
        "tables": {
            "versions": body([version_row(model, version) for version in model["versions"]]),
            "costs": body(cost_rows(model)),
            "queues": body(queues),
            "attention": body(
                [replica_row(replica) for replica in replicas[:REPLICAS_SHOWN]],
                total=len(replicas),
            ),
        },
        "feed": feed_lines(scene, subject=name),
    }


def split_text(model: ModelView) -> str:
    """Who gets what share, in a sentence."""
    split = model["split"]
    if split is None:
        return "No version is in service: set a split before it gets traffic."
    if split["canary"] is None:
        return f"All sessions go to {split['baseline']}."
    copied = " as a shadow: copied, its answers dropped" if split["shadow"] else ""
    return (
        f"{split['percent']:g} % of sessions go to {split['canary']}{copied}; "
        f"the rest to {split['baseline']}."
    )


def cost_rows(model: ModelView) -> list[dict[str, Any]]:
    """The fitted cost of each replica class: the best-sampled replica stands for its class."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for version in model["versions"]:
        for cost in sorted(version["cost"], key=lambda c: -c["samples"]):
            key = (version["version"], cost["accelerator"] or "unnamed")
            if key in rows:
                continue
            rows[key] = {
                "id": "/".join(key),
                "version": version["version"],
                "accelerator": key[1],
                "unit": cost["unit"].replace("_", " "),
                "fixed": number(cost["fixedMs"]),
                "per_work": number(cost["perWorkMs"] * 1000),
                "deviation": ms(cost["deviationMs"]),
                "samples": number(cost["samples"]),
                "full": ms(_at(cost, 1000.0)),
            }
    return [rows[key] for key in sorted(rows)]


def cost_series(model: ModelView | None) -> dict[str, Any]:
    """Predicted ms against work, one line a (version, accelerator), with its deviation band."""
    series: dict[str, Any] = {}
    if model is None:
        return series
    works = [0, 250, 500, 1000, 2000, 4000, 6000, 8000]
    slot = {"baseline": 0, "canary": 0}
    seen: set[tuple[str, str]] = set()
    for version in model["versions"]:
        arm = "canary" if version["arm"] == "canary" else "baseline"
        for cost in sorted(version["cost"], key=lambda c: -c["samples"]):
            key = (version["version"], cost["accelerator"])
            if key in seen or slot[arm] >= 3 or not cost["samples"]:
                continue
            seen.add(key)
            slot[arm] += 1
            name = f"{arm}.{slot[arm]}"
            series["x"] = works
            series[name] = [round(_at(cost, work), 2) for work in works]
            series[f"{name}.low"] = [
                round(max(_at(cost, work) - cost["deviationMs"], 0.0), 2) for work in works
            ]
            series[f"{name}.high"] = [
                round(_at(cost, work) + cost["deviationMs"], 2) for work in works
            ]
            series[f"{name}.name"] = f"{version['version']} on {cost['accelerator'] or 'unnamed'}"
    return series


def _at(cost: Any, work: float) -> float:
    return float(cost["fixedMs"] + cost["perWorkMs"] * work)


def deployment(model: ModelView) -> str:
    ready = sum(version["readyReplicas"] for version in model["versions"])
    return f"{plural(len(model['versions']), 'version')}, {plural(ready, 'ready replica')}"


def once(scene: Scene, params: Params) -> dict[str, Any]:
    name = params.get("id", "")
    model = find(scene, name)
    versions = [version["version"] for version in model["versions"]] if model else []
    return {
        "sparks": {
            f"versions/{name}/{version}": scene.rings.row("version", f"{name}/{version}")
            for version in versions
        }
        | {
            f"queues/{name}/{version}": scene.rings.row("queue", f"{name}/{version}")
            for version in versions
        }
    }


register("model", live, once)
