"""The engine's borders, read off its source: no I/O, small files, every module explained."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENGINE = sorted((ROOT / "engine").rglob("*.py"))
ALLOWED = {
    "__future__", "abc", "array", "bisect", "collections", "copy", "dataclasses", "engine", "enum",
    "functools", "hashlib", "heapq", "hmac", "itertools", "json", "math", "numpy", "operator",
    "random", "statistics", "struct", "types", "typing", "weakref", "xxhash",
}  # fmt: skip


def _imports(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("path", ENGINE, ids=lambda p: str(p.relative_to(ROOT)))
def test_an_engine_module_is_pure_small_and_explained(path: Path) -> None:
    source = path.read_text()
    tree = ast.parse(source)
    foreign = _imports(tree) - ALLOWED
    assert not foreign, f"{path.name} imports {sorted(foreign)}"
    assert len(source.splitlines()) <= 300, "an engine file past 300 lines is two concepts"
    assert ast.get_docstring(tree), "an engine module opens with the question it answers"


@pytest.mark.parametrize("path", ENGINE, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_engine_draws_randomness_only_from_an_injected_generator(path: Path) -> None:
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "random"
        ):
            assert node.attr == "Random", f"line {node.lineno}: random.{node.attr}"
