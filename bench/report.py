"""What a benchmark found: rows, goals, tables and charts, and the files they end in.

`rows` is the machine's view (`--json` prints it, `<name>.json` keeps it). Tables are the
human's view of the same figures, printed with rich and written as Markdown. Charts go into
`<name>.html`, one page with Plotly inside, readable without a network. Each file names the
command and the seed that reproduce it. None is "no data" and is shown as a dash, never as 0.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import plotly.graph_objects as go
from rich.console import Console
from rich.table import Table as RichTable

from bench.page import render_page

Cell = str | float | int | bool | None


@dataclass(slots=True, frozen=True, kw_only=True)
class Column:
    """A column: the row's key, what to print above it, and a number format such as `.1f`."""

    key: str
    title: str
    form: str = ""

    def show(self, row: Mapping[str, object]) -> str:
        value = row.get(self.key)
        if value is None or (isinstance(value, float) and not math.isfinite(value)):
            return "-"
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, int | float) and self.form:
            return format(value, self.form)
        return str(value)


@dataclass(slots=True, frozen=True, kw_only=True)
class Table:
    title: str
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, object]]
    note: str = ""


@dataclass(slots=True, frozen=True, kw_only=True)
class Goal:
    """A figure that must be reached. `at_least` or `at_most`, whichever applies."""

    name: str
    measured: float | None
    at_least: float | None = None
    at_most: float | None = None

    @property
    def met(self) -> bool:
        """Whether it was reached. A figure that could not be measured was not reached."""
        if self.measured is None or not math.isfinite(self.measured):
            return False
        low_ok = self.at_least is None or self.measured >= self.at_least
        return low_ok and (self.at_most is None or self.measured <= self.at_most)

    @property
    def bound(self) -> str:
        parts = []
        if self.at_least is not None:
            parts.append(f">= {self.at_least:g}")
        if self.at_most is not None:
            parts.append(f"<= {self.at_most:g}")
        return " and ".join(parts)

    def to_row(self) -> dict[str, object]:
        return {
            "goal": self.name,
            "bound": self.bound,
            "measured": self.measured,
            "met": self.met,
        }


_GOAL_COLUMNS = (
    Column(key="goal", title="goal"),
    Column(key="bound", title="must be"),
    Column(key="measured", title="measured", form=".4g"),
    Column(key="met", title="met"),
)


@dataclass(slots=True, kw_only=True)
class Report:
    """Everything one run found. `extra` is merged into the JSON beside `rows`."""

    name: str
    title: str
    summary: str
    rows: list[dict[str, object]]
    tables: list[Table] = field(default_factory=list)
    charts: list[go.Figure] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    extra: dict[str, object] = field(default_factory=dict)
    command: str = ""
    seed: int = 0
    elapsed_s: float = 0.0

    def all_tables(self) -> list[Table]:
        """The tables, then the goals beside what was measured."""
        if not self.goals:
            return self.tables
        goals = [goal.to_row() for goal in self.goals]
        return [*self.tables, Table(title="Goals", columns=_GOAL_COLUMNS, rows=goals)]

    def to_json(self) -> str:
        document = {
            "name": self.name,
            "title": self.title,
            "command": self.command,
            "seed": self.seed,
            "elapsed_s": round(self.elapsed_s, 2),
            "rows": self.rows,
            "goals": [goal.to_row() for goal in self.goals],
            "notes": self.notes,
            **self.extra,
        }
        return json.dumps(_without_nan(document), indent=1, ensure_ascii=False)

    def to_markdown(self) -> str:
        lines = [f"# {self.title}", "", self.summary, ""]
        lines += [f"`{self.command}` (seed {self.seed}, {self.elapsed_s:.0f} s)", ""]
        for table in self.all_tables():
            lines += [f"## {table.title}", ""]
            lines += ["| " + " | ".join(column.title for column in table.columns) + " |"]
            lines += ["|" + "---|" * len(table.columns)]
            for row in table.rows:
                cells = [column.show(row) for column in table.columns]
                lines.append("| " + " | ".join(cells) + " |")
            lines += ["", table.note, ""] if table.note else [""]
        lines += [f"- {note}" for note in self.notes]
        return "\n".join(lines).rstrip() + "\n"

    def print(self, console: Console) -> None:
        """The tables, for a person."""
        console.print(f"[bold]{self.title}[/bold]\n{self.summary}\n", highlight=False)
        for table in self.all_tables():
            rich_table = RichTable(title=table.title, title_justify="left", caption=table.note)
            for column in table.columns:
                rich_table.add_column(column.title, justify="right" if column.form else "left")
            for row in table.rows:
                rich_table.add_row(*(column.show(row) for column in table.columns))
            console.print(rich_table)
        for note in self.notes:
            console.print(f"- {note}", highlight=False, markup=False)

    def write(self, folder: Path) -> list[Path]:
        """Write `<name>.json`, `<name>.md` and `<name>.html`; return their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        pages = {
            "json": self.to_json() + "\n",
            "md": self.to_markdown(),
            "html": render_page(self),
        }
        paths = []
        for suffix, text in pages.items():
            path = folder / f"{self.name}.{suffix}"
            path.write_text(text, encoding="utf-8")
            paths.append(path)
        return paths


def _without_nan(value: object) -> object:
    """JSON has no NaN and no infinity: both mean "no data" here."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return value
