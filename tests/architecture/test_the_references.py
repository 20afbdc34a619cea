"""The documents say what the code says: codes, metrics, policy fields, commands."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class

from fleet.gateway.errors import STATUS
from fleet.replica.faults import Fault
from fleet.replica.monitoring import _GAUGES as REPLICA_GAUGES
from rollouts.policy import FIELDS

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
_FAMILY = re.compile(r'(Gauge|Counter)MetricFamily\(\s*"(halcyon_\w+)"')
_NAME = re.compile(r"`(halcyon_\w+)`")


def rows(page: str) -> dict[str, list[str]]:
    """The rows of a page's tables by their first word in code."""
    lines = (REFERENCE / page).read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]
    return {row[0].strip("`"): row[1:] for row in cells if row[0].startswith("`")}


def test_every_refusal_and_error_is_listed_with_its_status() -> None:
    assert {str(code): str(status) for code, status in STATUS.items()} == {
        code: row[0] for code, row in rows("refusals.md").items()
    }


def test_every_metric_is_listed_under_its_name() -> None:
    sources = ("fleet/gateway/metrics.py", "fleet/metrics.py", "fleet/replica/monitoring.py")
    named = {
        f"{name}_total" if kind == "Counter" else name
        for source in sources
        for kind, name in _FAMILY.findall((ROOT / source).read_text())
    }
    named |= {f"halcyon_replica_{name}" for name, _ in REPLICA_GAUGES.values()}
    assert len(named) > 30
    assert set(_NAME.findall((REFERENCE / "metrics.md").read_text())) == named


def test_every_field_of_a_policy_is_listed_with_its_default() -> None:
    listed = rows("rollout-policy.md")
    assert list(listed) == [field.name for field in FIELDS]
    for field in FIELDS:
        shown = listed[field.name][-2].replace(" ", "")
        if isinstance(field.default, list):
            assert shown == ",".join(f"{step:g}" for step in field.default)
        elif isinstance(field.default, int | float):
            assert shown == f"{field.default:g}", field.name


def test_every_failure_that_can_be_injected_is_listed() -> None:
    page = (REFERENCE / "replica.md").read_text()
    assert [fault for fault in Fault if f"`{fault}`" not in page and f'"{fault}"' not in page] == []


def commands() -> Iterator[tuple[str, str]]:
    """Each `manage.py` line in the shell blocks of the documents."""
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for block in re.findall(r"```(?:sh)?\n(.*?)```", page.read_text(), re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                found = re.match(r"(?:\S*python )?(?:\.venv/bin/python )?manage\.py (.+)", line)
                if found is not None:
                    yield page.name, found[1]


@pytest.mark.parametrize(("page", "line"), list(dict.fromkeys(commands())))
def test_every_command_in_the_documents_is_understood(page: str, line: str) -> None:
    name, *arguments = shlex.split(line, comments=True)
    arguments = arguments[: arguments.index("&")] if "&" in arguments else arguments
    command = load_command_class(get_commands()[name], name)
    parser = command.create_parser("manage.py", name)
    if "--help" not in arguments:
        parser.parse_args(arguments)
