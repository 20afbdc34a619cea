"""What the README promises about the tree and its verbs."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERBS = ("setup", "check", "test", "bench", "demo")


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_is_a_target_that_sets_itself_up(verb: str) -> None:
    plan = subprocess.run(
        ["make", "--dry-run", "--always-make", verb],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "pip install" in plan, f"make {verb} does not install what it needs"


def test_the_readme_names_the_two_commands_and_ci_runs_the_second() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "make demo" in readme
    assert "make test" in readme
    assert "make test" in (ROOT / ".ci" / "run").read_text()


def test_every_link_in_the_documents_leads_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\((?!https?://|#|mailto:)([^)#\s]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} -> {target}"


def test_no_folder_is_called_utils() -> None:
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    vague = {"utils", "helpers", "common", "misc"}
    assert not [p for p in tracked if vague & {part.removesuffix(".py") for part in Path(p).parts}]


def test_the_demo_takes_other_ports() -> None:
    plan = subprocess.run(
        ["make", "--dry-run", "demo", "PORT_BASE=25000"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "--port-base 25000" in plan
    assert (
        "PORT_BASE"
        in subprocess.run(
            ["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
    )
