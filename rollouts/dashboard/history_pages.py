"""The audit in the browser: filters in the URL, a cursor that never shifts, exports, permalinks.

Pages are cut by sequence number, not by offset: rows that are added while somebody reads move
nothing. Exports stream the whole filtered history, oldest first, however long it is.
"""

import csv
import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.utils.dateparse import parse_datetime
from django.utils.timezone import is_aware, make_aware

from fleet.dashboard.page import look, paint, signed_in
from fleet.dashboard.twins import Twin
from rollouts.audit import Verification, verify
from rollouts.dashboard import panels as _topics  # noqa: F401  registers the topics
from rollouts.models import AuditEvent
from rollouts.selectors import audit_events

PAGE = 60
VERIFIED_AT_ONCE = 500  # rows, some 50 ms; longer chains are walked when somebody asks

EXPORTED = (
    "seq", "at", "actor", "origin", "action", "kind", "subject", "model", "reason",
    "before", "after", "details", "hash",
)  # fmt: skip


def filtered(params: dict[str, str]) -> QuerySet[AuditEvent]:
    """The events that the query string asks for, the newest first."""
    before = params.get("before", "")
    exact = {name: params.get(name) or None for name in ("kind", "action", "subject", "model")}
    return audit_events(
        **exact,
        actor=params.get("actor") or None,
        start=_moment(params.get("since", "")),
        end=_moment(params.get("until", "")),
        text=params.get("q", "").strip() or None,
        before_seq=int(before) if before.isdecimal() else None,
    )


def _moment(text: str) -> datetime | None:
    try:
        moment = parse_datetime(text)
    except ValueError:
        return None
    if moment is None:
        return None
    return moment if is_aware(moment) else make_aware(moment)


@signed_in
def history(request: HttpRequest) -> HttpResponse:
    params = request.GET.dict()
    page = list(filtered(params)[: PAGE + 1])
    shown, more = page[:PAGE], len(page) > PAGE
    length = AuditEvent.objects.order_by("-seq").values_list("seq", flat=True).first() or 0
    asked = params.get("verify") == "1"
    return paint(
        request,
        "rollouts/history.html",
        title="History",
        page="history",
        topic="history",
        sight=look(request, "history"),
        twin=Twin("manage.py audit list", "/v1/control/audit"),
        rows=shown,
        older=shown[-1].seq if more else None,
        kinds=_choices("kind"),
        actors=_choices("actor"),
        length=length,
        chain=chain_line(verify()) if asked or length <= VERIFIED_AT_ONCE else None,
    )


def _choices(name: str) -> list[str]:
    return list(AuditEvent.objects.order_by(name).values_list(name, flat=True).distinct()[:60])


def chain_line(found: Verification) -> dict[str, str]:
    if found.intact:
        return {
            "word": "healthy",
            "text": f"The chain is intact: {found.events} events and {found.decisions} decisions "
            "follow one another.",
        }
    return {"word": "down", "text": f"The chain is broken: {found.fault}."}


@signed_in
def event(request: HttpRequest, seq: int) -> HttpResponse:
    row = AuditEvent.objects.filter(seq=seq).first()
    if row is None:
        raise Http404(f"The history has no event {seq}.")
    return paint(
        request,
        "rollouts/event.html",
        title=f"Event {seq}",
        page="history",
        topic="history",
        sight=look(request, "history"),
        twin=Twin(f"manage.py audit list --seq {seq}", "/v1/control/audit"),
        event=row,
        changes=difference(row),
        raw=json.dumps(plain(row), indent=2, ensure_ascii=False, default=str),
    )


def difference(row: AuditEvent) -> list[tuple[str, Any, Any]]:
    """What changed, field by field."""
    before, after = row.before or {}, row.after or {}
    names = sorted(before.keys() | after.keys())
    return [(n, before.get(n), after.get(n)) for n in names if before.get(n) != after.get(n)]


def plain(row: AuditEvent) -> dict[str, Any]:
    made = {name: getattr(row, name) for name in EXPORTED}
    return made | {"at": row.at.isoformat()}


class _Line:
    """A file that hands each line straight on."""

    def write(self, text: str) -> str:
        return text


@signed_in
def export_csv(request: HttpRequest) -> StreamingHttpResponse:
    rows = filtered(request.GET.dict()).order_by("seq")

    def lines() -> Iterator[str]:
        writer = csv.writer(_Line())
        yield writer.writerow(EXPORTED)
        for row in rows.iterator(chunk_size=500):
            made = plain(row)
            yield writer.writerow([_cell(made[name]) for name in EXPORTED])

    response = StreamingHttpResponse(lines(), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = 'attachment; filename="halcyon-history.csv"'
    return response


def _cell(value: Any) -> str:
    """A cell that no spreadsheet takes for a formula."""
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
    if value is None:
        return ""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t") else text


@signed_in
def export_json(request: HttpRequest) -> StreamingHttpResponse:
    rows = filtered(request.GET.dict()).order_by("seq")

    def parts() -> Iterator[str]:
        yield "["
        for index, row in enumerate(rows.iterator(chunk_size=500)):
            comma = ",\n" if index else "\n"
            yield comma + json.dumps(plain(row), ensure_ascii=False, default=str)
        yield "\n]\n"

    response = StreamingHttpResponse(parts(), content_type="application/json")
    response["Content-Disposition"] = 'attachment; filename="halcyon-history.json"'
    return response
