"""What ships for Prometheus and Grafana asks for metrics that a gateway really has."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.gateway.openai_scene import Scene

pytestmark = pytest.mark.asyncio(loop_scope="module")

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana" / "halcyon.json").read_text())
ALERTS = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
PANELS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
RULES = [rule["expr"] for group in ALERTS["groups"] for rule in group["rules"]]
_LABELS = re.compile(r"(?:by \(([a-z, ]+)\) \((?:rate\()?)(halcyon_[a-z_]+)")


async def test_every_metric_of_the_dashboard_and_the_alerts_exists_with_its_labels(
    scene: Scene,
) -> None:
    await scene.chat(max_tokens=1)
    page = await scene.gateway.request("GET", "/metrics")
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(page.body.decode()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels[name] = {label for sample in family.samples for label in sample.labels}
    asked: set[str] = set()
    for query in [*PANELS, *RULES]:
        names = re.findall(r"halcyon_[a-z_]+", query)
        assert names, query
        assert set(names) <= set(labels), query
        asked.update(names)
        for words, name in _LABELS.findall(query):
            if labels[name]:  # one without samples (no refusal yet) shows no labels
                assert {word.strip() for word in words.split(",")} <= labels[name], query
    assert {"halcyon_requests_total", "halcyon_latency_ms"} <= asked


async def test_panels_have_numbers_of_their_own_and_lie_beside_each_other() -> None:
    panels: list[Any] = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    cells = [
        (p["x"] + dx, p["y"] + dy) for p in places for dx in range(p["w"]) for dy in range(p["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
