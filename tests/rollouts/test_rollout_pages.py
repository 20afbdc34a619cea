"""A rollout's page and the form that starts one: the arithmetic, before and after."""

import re
from collections.abc import Iterator
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from fleet.live.pulse import pulse
from fleet.live.store import LiveStore
from rollouts.dashboard.guards import guards
from rollouts.dashboard.reading import Dossier
from rollouts.models import Rollout
from tests.browser.stage import view
from tests.rollouts.scene import fleet, history, run, start, step, traffic

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator() -> Client:
    user = User.objects.create_user("otto", password="a-password-for-tests")
    user.groups.add(Group.objects.get_or_create(name="Operator")[0])
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def rollout() -> Rollout:
    fleet()
    history()
    return start()


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A gateway that serves model m 20,000 requests a second."""
    body = view(240)
    model = body["models"][0] | {"model": "m"}
    model["versions"] = [version | {"ratePerS": 10_000.0} for version in model["versions"]]
    heard = LiveStore()
    heard.put("gateway-a", 1, body | {"models": [model]})
    monkeypatch.setattr(pulse, "store", heard)
    monkeypatch.setattr(pulse, "_scene", None)
    yield
    pulse._scene = None


def text(response: Any) -> str:
    return " ".join(response.content.decode().split())


def rows_of(rollout: Rollout) -> dict[str, dict[str, Any]]:
    decisions = tuple(rollout.decisions.order_by("seq"))
    return {row["id"]: row for row in guards(Dossier(rollout, decisions, len(decisions)))}


def test_a_guard_shows_whether_sessions_landed_where_the_split_sent_them(rollout: Rollout) -> None:
    decision = None
    while decision is None or "canary_sessions" not in decision.counts:
        decision = step(rollout)
    shown = rows_of(rollout).get("sample")
    counts = decision.counts
    share = counts["canary_sessions"] / (counts["canary_sessions"] + counts["baseline_sessions"])
    assert shown is not None
    assert shown["now"].startswith(f"{share * 100:.1f}")
    assert shown["limit"].startswith(f"{decision.percent_before:.1f} ±")
    assert shown["near"] < 1.0
    decision.counts = counts | {"canary_sessions": counts["canary_sessions"] * 4}
    off = {row["id"]: row for row in guards(Dossier(rollout, (decision,), 1))}["sample"]
    assert off["near"] == 1.0


def test_nobody_counted_sessions_is_no_row_and_no_zero(rollout: Rollout) -> None:
    decision = step(rollout)
    assert decision is not None
    decision.counts = {k: v for k, v in decision.counts.items() if "sessions" not in k}
    assert "sample" not in {row["id"] for row in guards(Dossier(rollout, (decision,), 1))}


def test_every_comparison_of_a_verdict_is_on_the_page_of_its_window(
    rollout: Rollout, operator: Client
) -> None:
    run(rollout, slowdown=0.35)
    last = rollout.decisions.order_by("-seq").first()
    assert last is not None
    body = text(operator.get(f"/rollouts/{rollout.pk}/{last.seq}/"))
    numbers = last.verdict["numbers"]
    for said in ("slower than tolerated", "fails more often", "misses more deadlines", last.text):
        assert said in unescape(body)
    assert f"{numbers['latencyLogE']:.2f}" in body
    assert last.digest[:12] in body


def test_the_preview_says_what_the_canarys_replicas_carry_and_which_step_will_wait(
    operator: Client, busy: None
) -> None:
    fleet()
    now = timezone.now().replace(microsecond=0)
    traffic(now - timedelta(seconds=60), 59, canary="v2", percent=50.0)
    asked = {"model": "m", "version": "v2", "steps": "5, 100", "reason": ""}
    body = text(operator.get("/rollouts/preview/", asked))
    assert "At once 5% of sessions, 1000.0/s, go from v1 to v2." in body
    carried = re.search(r"v2 has 2 ready replicas, which carry (\d+) % of the traffic", body)
    assert carried is not None
    assert 0 < int(carried.group(1)) < 100
    assert re.search(r": the step to 100% will wait for \d+ replicas", body)
    assert Rollout.objects.count() == 0


def test_a_preview_of_what_cannot_work_says_so(operator: Client) -> None:
    fleet(replicas=1)
    assert "must ascend" in text(
        operator.get("/rollouts/preview/", {"model": "m", "version": "v2", "steps": "50, 5"})
    )
