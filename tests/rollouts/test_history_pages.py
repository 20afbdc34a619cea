"""The audit in the browser: nothing is lost or shown twice, whatever is written meanwhile."""

import csv
import io
import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.test import Client
from django.utils import timezone

from rollouts.audit import record
from rollouts.dashboard.history_pages import PAGE, VERIFIED_AT_ONCE
from rollouts.models import AuditEvent
from tests.rollouts.test_audit import forge

pytestmark = pytest.mark.django_db


@pytest.fixture
def viewer() -> Client:
    user = User.objects.create_user("vera", password="a-password-for-tests")
    user.groups.add(Group.objects.get_or_create(name="Viewer")[0])
    client = Client()
    client.force_login(user)
    return client


def happened(number: int, *, kind: str = "tenant", reason: str = "a test") -> None:
    with transaction.atomic():
        for n in range(number):
            record(
                f"{kind}.changed",
                kind=kind,
                subject=f"{kind}-{n}",
                actor="ada",
                model="llama-3-8b" if kind == "split" else "",
                reason=reason,
                after={"n": n},
            )


def text(response: Any) -> str:
    return " ".join(response.content.decode().split())


def test_pages_by_cursor_show_each_event_once_while_others_are_written(viewer: Client) -> None:
    happened(11 * PAGE + 7)
    known = set(AuditEvent.objects.values_list("seq", flat=True))
    seen: list[int] = []
    query, pages = "", 0
    while True:
        response = viewer.get(f"/history/{query}")
        seen += [row.seq for row in response.context["rows"]]
        pages += 1
        happened(3)  # somebody writes while somebody reads
        older = response.context["older"]
        if older is None:
            break
        assert f'href="?before={older}"' in response.content.decode()
        query = f"?before={older}"
    assert pages > 10
    assert len(seen) == len(set(seen))
    assert set(seen) == known


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu"])
def test_both_exports_hold_every_event_that_the_filter_shows(
    zone: str, viewer: Client, settings: Any
) -> None:
    settings.TIME_ZONE = zone
    happened(130)
    happened(20, kind="split", reason="=cmd|' /C calc'!A0")
    since = (timezone.now() - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M")
    for query, expected in (
        (f"?since={since}", 150),
        ("?kind=split", 20),
        ("?until=2020-01-01T00:00", 0),
    ):
        answer = viewer.get(f"/history.csv{query}")
        assert answer["Content-Disposition"] == 'attachment; filename="halcyon-history.csv"'
        rows = list(csv.DictReader(io.StringIO(answer.getvalue().decode())))
        events = json.loads(viewer.get(f"/history.json{query}").getvalue())
        assert len(rows) == len(events) == expected
        assert [int(row["seq"]) for row in rows] == [event["seq"] for event in events]
        assert [event["seq"] for event in events] == sorted(event["seq"] for event in events)
    split = viewer.get("/history.csv?kind=split").getvalue().decode()
    rows = list(csv.DictReader(io.StringIO(split)))
    assert rows[0]["reason"].startswith("'=")  # no spreadsheet runs it


def test_an_event_has_an_address_of_its_own_and_links_to_what_it_is_about(viewer: Client) -> None:
    happened(1)
    happened(1, kind="replica")
    happened(1, kind="split")
    last = AuditEvent.objects.order_by("-seq").first()
    assert last is not None
    body = text(viewer.get(f"/history/{last.seq}/"))
    assert last.hash in body
    assert last.previous_hash in body
    listed = viewer.get("/history/").content.decode()
    for href in (f"/history/{last.seq}/", "/tenants/tenant-0/", "/fleet/replica-0/"):
        assert f'href="{href}"' in listed
    assert re.search(r'href="/models/split-0/"', listed)
    assert viewer.get(f"/history/{last.seq + 99}/").status_code == 404


def test_the_chain_is_verified_and_a_forged_link_is_named(viewer: Client) -> None:
    happened(5)
    assert "The chain is intact: 5 events" in text(viewer.get("/history/"))
    forge("UPDATE rollouts_auditevent SET reason = 'another' WHERE seq = 3")
    body = text(viewer.get("/history/"))
    assert "The chain is broken" in body
    assert 'data-word="down"' in body


def test_a_long_chain_is_walked_when_somebody_asks(viewer: Client) -> None:
    happened(VERIFIED_AT_ONCE + 1)
    body = text(viewer.get("/history/"))
    assert "their chain is walked on request" in body
    assert "The chain is intact" in text(viewer.get("/history/?verify=1"))


@pytest.mark.parametrize("query", ["before=x", "since=soon", "until=2026-99-99", "kind=nothing"])
def test_a_senseless_filter_breaks_nothing(query: str, viewer: Client) -> None:
    happened(2)
    assert viewer.get(f"/history/?{query}").status_code == 200
