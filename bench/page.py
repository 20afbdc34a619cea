"""One benchmark as one HTML page: tables and charts, Plotly inside, no network needed."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.report import Report, Table

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --line: #d9dfe7; --paper: #fff }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6ebf2; --soft: #9aa7b8; --line: #2d3846; --paper: #121821 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 76rem; margin: 2rem auto; padding: 0 1rem }
h1 { margin-bottom: .25rem } h2 { margin-top: 2.5rem; font-size: 1.15rem }
p, li { color: var(--soft) } code { font-size: .9em }
.scroll { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: left;
  white-space: nowrap }
td.number, th.number { text-align: right }
figure { margin: 1.5rem 0; background: #fff; border-radius: 8px; overflow: hidden }
"""


def _table(table: Table) -> str:
    def kind(form: str) -> str:
        return ' class="number"' if form else ""

    head = "".join(
        f'<th scope="col"{kind(column.form)}>{escape(column.title)}</th>'
        for column in table.columns
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{kind(column.form)}>{escape(column.show(row))}</td>" for column in table.columns
        )
        + "</tr>"
        for row in table.rows
    )
    note = f"<p>{escape(table.note)}</p>" if table.note else ""
    return (
        f'<h2>{escape(table.title)}</h2><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{note}"
    )


def render_page(report: Report) -> str:
    """The whole page as text. Plotly's script is written once, before the first chart."""
    charts = []
    for index, figure in enumerate(report.charts):
        figure.update_layout(template="plotly_white", margin={"l": 60, "r": 20, "t": 60, "b": 50})
        script = index == 0
        charts.append(
            "<figure>" + figure.to_html(full_html=False, include_plotlyjs=script) + "</figure>"
        )
    notes = "".join(f"<li>{escape(note)}</li>" for note in report.notes)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(report.title)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(report.title)}</h1><p>{escape(report.summary)}</p>"
        f"<p><code>{escape(report.command)}</code> · seed {report.seed} · "
        f"{report.elapsed_s:.0f} s</p>"
        + "".join(charts)
        + "".join(_table(table) for table in report.all_tables())
        + (f"<h2>Notes</h2><ul>{notes}</ul>" if notes else "")
        + "</body></html>\n"
    )
