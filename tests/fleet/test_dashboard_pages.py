"""Every page, rendered: complete on the first paint, honest when empty, small in queries."""

import re
import shlex
from collections.abc import Iterator
from html import unescape
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import get_commands, load_command_class
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import resolve
from django.utils import timezone

from fleet.dashboard.checkup import Checkup
from fleet.dashboard.pages import system
from fleet.dashboard.paging import cut
from fleet.dashboard.panels.feed import href_of
from fleet.live.pulse import Pulse, pulse
from fleet.live.store import LiveStore
from fleet.models import ApiKey, Replica
from fleet.services import create_tenant, issue_key
from tests.browser import past
from tests.browser.stage import view

pytestmark = pytest.mark.django_db

PAGES = (
    "/",
    "/models/",
    "/models/llama-3-8b/",
    "/fleet/",
    "/fleet/llama-t4-1/",
    "/tenants/",
    "/tenants/acme/",
    "/requests/",
    "/engine/",
    "/system/",
    "/rollouts/",
    "/rollouts/start/",
    "/history/",
    "/search/?q=llama",
)
MOST_QUERIES = 30


@pytest.fixture(autouse=True)
def a_doctor_who_is_waited_for(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.HALCYON_GATEWAY_URL = settings.HALCYON_WEB_URL = "http://127.0.0.1:9"
    monkeypatch.setattr(system, "checkup", Checkup(patience_s=60.0))


@pytest.fixture
def heard() -> Iterator[Pulse]:
    """A web process that heard ten seconds of one gateway, as a fresh process would."""
    fresh = Pulse(LiveStore())
    names = ("store", "rings", "feed", "samples", "tick", "_scene")
    kept = {name: getattr(pulse, name) for name in names}
    for name in names:
        setattr(pulse, name, getattr(fresh, name))
    yield pulse
    for name, value in kept.items():
        setattr(pulse, name, value)


@pytest.fixture
def playing(heard: Pulse) -> Pulse:
    for second in range(231, 241):
        heard.store.put("gateway-a", second, view(second))
        heard.feed.absorb("gateway-a", view(second), second * 1000.0)
        heard.samples.absorb("gateway-a", view(second), second * 1000.0)
        heard.rings.add(second * 1000, heard.store.state())
    return heard


def client_of(role: str = "Operator") -> Client:
    user = User.objects.create_user(role.lower(), password="a-password-for-tests")
    user.groups.add(Group.objects.get_or_create(name=role)[0])
    client = Client()
    client.force_login(user)
    return client


def text(response: Any) -> str:
    return " ".join(response.content.decode().split())


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_complete_on_its_first_paint_with_few_queries(path: str, playing: Pulse) -> None:
    past.configuration()
    client = client_of()
    with CaptureQueriesContext(
        connection,
    ) as queries:
        response = client.get(path)
    assert response.status_code == 200
    assert len(queries) <= MOST_QUERIES
    body = text(response)
    assert "<h1>" in body
    assert "manage.py" in body or "curl" in body  # its twin
    assert "None" not in body.replace("none", "").replace('"None"', "")


@pytest.mark.parametrize("path", PAGES)
def test_the_footer_named_a_command_that_did_not_exist(path: str, playing: Pulse) -> None:
    past.configuration()
    footer = text(client_of().get(path)).partition('<footer class="twin">')[2]
    command, url = (
        unescape(found) for found in re.findall(r"<code data-copy>(.*?)</code>", footer)
    )
    if command.startswith("manage.py"):
        name, *arguments = shlex.split(command)[1:]
        parser = load_command_class(get_commands()[name], name).create_parser("manage.py", name)
        parser.parse_args(arguments)  # type: ignore[attr-defined]
    address = urlsplit(shlex.split(url)[-1])
    if "explain" not in command:  # that one is a gateway's
        assert resolve(address.path)


@pytest.mark.parametrize("path", [p for p in PAGES if p.count("/") < 3])
def test_without_any_data_a_page_says_what_it_waits_for(path: str, heard: Pulse) -> None:
    body = text(client_of().get(path))
    assert "No gateway has spoken yet" in body
    assert "NaN" not in body


def test_the_overview_answers_before_it_shows(playing: Pulse) -> None:
    body = text(client_of().get("/"))
    traffic = view(240)["traffic"]
    assert f"{traffic['goodputRatio'] * 100:.1f} % of requests are served in time" in body
    assert "Is work refused, and why?" in body
    assert body.index("Are users served in time?") < body.index("Goodput against offered")


def test_a_first_paint_carries_the_document_that_the_feed_will_patch(playing: Pulse) -> None:
    response = client_of().get("/")
    shown = response.context["doc"]["tiles"]["offered"]["value"]
    assert f'data-live="tiles.offered.value">{shown}<' in text(response)
    assert '<script id="live-doc" type="application/json">' in text(response)


@pytest.mark.parametrize("path", PAGES)
def test_nobody_sees_a_page_without_signing_in(path: str) -> None:
    response = Client().get(path)
    assert response.status_code == 302
    assert response["Location"].startswith("/sign-in/?next=/")


def test_somebody_without_a_role_is_told_which_one_is_needed(heard: Pulse) -> None:
    client = Client()
    client.force_login(User.objects.create_user("nobody", password="a-password-for-tests"))
    response = client.get("/")
    assert response.status_code == 403
    assert "this page needs viewer or more" in text(response)


def test_a_viewer_sees_no_action_and_may_do_none(playing: Pulse) -> None:
    past.configuration()
    client = client_of("Viewer")
    assert "Drain" not in text(client.get("/fleet/llama-a100-1/"))
    response = client.post("/fleet/llama-a100-1/drain/", {"reason": "because"})
    assert response.status_code == 403
    assert not Replica.objects.get(pk="llama-a100-1").draining


def test_draining_needs_a_reason_and_then_drains(playing: Pulse) -> None:
    past.configuration()
    client = client_of()
    refused = client.post("/fleet/llama-a100-1/drain/", {"reason": "  "}, follow=True)
    assert "give a reason" in text(refused)
    assert not Replica.objects.get(pk="llama-a100-1").draining
    done = client.post("/fleet/llama-a100-1/drain/", {"reason": "new driver"}, follow=True)
    assert "drains: it finishes what it has" in text(done)
    assert Replica.objects.get(pk="llama-a100-1").draining
    client.post("/fleet/llama-a100-1/undrain/", {"reason": "driver is in"})
    assert not Replica.objects.get(pk="llama-a100-1").draining


def test_an_action_by_get_is_refused(playing: Pulse) -> None:
    assert client_of().get("/fleet/llama-a100-1/drain/").status_code == 405


def test_the_consequence_of_draining_the_last_replica_is_said_in_numbers(playing: Pulse) -> None:
    past.configuration()
    body = text(client_of().get("/fleet/llama-h100-1/"))
    assert "It is the last replica of llama-3-8b v2 that serves: 25 %" in body


def test_filters_live_in_the_url(playing: Pulse) -> None:
    rows = client_of().get("/fleet/?status=down").context["doc"]["tables"]["replicas"]["order"]
    assert rows == ["llama-t4-1"]


def test_sorting_puts_the_unknown_last_in_both_directions(playing: Pulse) -> None:
    client = client_of()
    for sort in ("score", "-score"):
        order = client.get(f"/fleet/?sort={sort}").context["doc"]["tables"]["replicas"]["order"]
        assert set(order[-2:]) == {"llama-t4-1", "llama-a100-3"}


@pytest.mark.parametrize("query", ["page=0", "page=-3", "page=999999999999", "page=x", "sort=x"])
def test_a_senseless_query_string_shows_the_nearest_page(query: str, playing: Pulse) -> None:
    assert client_of().get(f"/fleet/?{query}").status_code == 200


@pytest.mark.parametrize("path", ["/models/none/", "/fleet/none/", "/tenants/none/", "/nowhere/"])
def test_what_is_not_there_is_a_page_that_says_so(path: str, heard: Pulse) -> None:
    response = client_of().get(path)
    assert response.status_code == 404
    assert "Overview" in text(response)


def test_names_are_escaped_everywhere(heard: Pulse) -> None:
    evil = "<script>alert(1)</script>"
    body = view(240)
    body["replicas"] = [body["replicas"][0] | {"replicaId": evil, "why": evil, "accelerator": evil}]
    body["tenants"] = [body["tenants"][0] | {"tenant": evil}]
    body["events"] = [body["events"][0] | {"text": evil, "subject": evil}] if body["events"] else []
    heard.store.put("gateway-a", 1, body)
    heard.feed.absorb("gateway-a", body, 1000.0)
    client = client_of()
    for path in ("/", "/fleet/", "/tenants/", f"/search/?q={evil}"):
        assert "<script>alert" not in client.get(path).content.decode()


def test_a_refusal_is_explained_with_its_comparison_and_its_remedy(playing: Pulse) -> None:
    record = next(r for r in playing.samples.newest() if r.get("refusal"))
    body = text(client_of().get(f"/requests/{record['requestId']}/"))
    assert record["refusal"]["message"] in body
    assert "would have" in body


def test_a_served_request_shows_candidates_scores_and_flush_reason(playing: Pulse) -> None:
    record = next(r for r in playing.samples.newest() if r["state"] == "done")
    body = text(client_of().get(f"/requests/{record['requestId']}/"))
    for said in ("llama-h100-1", "0.940", "past saturation", "0.183 &lt; the canary", "hedged on"):
        assert said in body


def test_signing_out_needs_a_post_and_ends_the_session(heard: Pulse) -> None:
    client = client_of()
    assert client.get("/sign-out/").status_code == 405
    client.post("/sign-out/")
    assert client.get("/").status_code == 302


def test_a_wrong_password_is_said_without_saying_which_part(heard: Pulse) -> None:
    response = Client().post("/sign-in/", {"username": "otto", "password": "wrong"})
    assert "do not go together" in text(response)


def test_pages_forbid_inline_scripts_and_framing(playing: Pulse) -> None:
    response = client_of().get("/")
    policy = response["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe-inline" not in policy.replace("style-src-attr 'unsafe-inline'", "")
    body = response.content.decode()
    assert "<style" not in body
    assert "onclick=" not in body


def test_system_says_cause_consequence_and_remedy_of_a_silent_beat(playing: Pulse) -> None:
    body = text(client_of().get("/system/"))
    assert "was never heard of" in body
    assert "Rollouts hold" in body
    assert "celery -A halcyon_site" in body


def test_the_range_control_reads_the_recorded_past(playing: Pulse) -> None:
    past.windows(timezone.now())
    series = client_of().get("/?range=1h").context["once"]["charts"]["goodput"]
    assert len(series["t"]) == 360
    assert any(value for value in series["goodput"] if value)
    assert (
        len(client_of("Viewer").get("/?range=24h").context["once"]["charts"]["latency"]["t"]) <= 600
    )


def test_a_key_is_shown_by_its_own_prefix_and_not_with_a_second_one(heard: Pulse) -> None:
    issue_key(create_tenant("acme", actor="a test"), "main", actor="a test")
    prefix = ApiKey.objects.get().prefix
    body = text(client_of().get("/tenants/acme/"))
    assert f">{prefix}_" in body


def test_a_decision_about_panic_leads_to_the_model_that_it_is_about() -> None:
    assert href_of("panic", "llama-3-8b v2") == "/models/llama-3-8b/#v2"
    assert href_of("panic", "org/two words v1") == "/models/org%2Ftwo%20words/#v1"


def test_the_second_page_of_models_said_that_it_begins_after_two_pages_of_them() -> None:
    page = cut(range(60), {"page": "2"}, size=25)
    assert (page.first, page.last, page.total) == (26, 50, 60)


def test_a_replica_shows_its_batches_beside_their_prediction_and_its_breakers_turns(
    playing: Pulse,
) -> None:
    charts = client_of().get("/fleet/llama-a100-1/").context["once"]["charts"]
    batches = charts["batches"]
    assert len(batches["x"]) == len(batches["took"]) == len(batches["predicted"]) == 10
    assert batches["x"] == sorted(batches["x"])
    assert all(abs(a - b) < 5 for a, b in zip(batches["took"], batches["predicted"], strict=True))
    fresh = client_of("Viewer").get("/charts/?topic=replica&id=llama-t4-1").json()["charts"]
    assert set(fresh["breaker"]["state"]) <= {1, 2}
    assert len(fresh["breaker"]["t"]) == len(fresh["breaker"]["state"])
