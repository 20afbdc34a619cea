"""Which benchmarks exist: every module of this package that has the five names below.

    NAME            what is typed after `python -m bench`
    HELP            one line for `list` and `--help`
    add_arguments   (parser) -> None: the options beyond --json --seed --out --strict
    run             (args, progress) -> bench.report.Report

A module that cannot be imported is reported by name and never hides the others.
"""

import argparse
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass

import bench
from bench.progress import Progress
from bench.report import Report

_ORDER = ("batching", "admission", "routing", "rollouts", "engine")
_NOT_BENCHES = frozenset({"__main__", "registry", "report", "progress", "page"})


@dataclass(slots=True, frozen=True, kw_only=True)
class Bench:
    """A benchmark that can be run."""

    name: str
    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, Progress], Report]


@dataclass(slots=True, frozen=True, kw_only=True)
class Found:
    """What the package holds: benchmarks in order, and modules that failed to import."""

    benches: list[Bench]
    broken: dict[str, str]


def find() -> Found:
    """Import every module of the package and keep the benchmarks."""
    benches: list[Bench] = []
    broken: dict[str, str] = {}
    for module_info in pkgutil.iter_modules(bench.__path__):
        if module_info.name in _NOT_BENCHES or module_info.ispkg:
            continue
        try:
            module = importlib.import_module(f"bench.{module_info.name}")
        except ImportError as error:
            broken[module_info.name] = str(error)
            continue
        if not hasattr(module, "NAME"):
            continue
        benches.append(
            Bench(
                name=module.NAME,
                help=module.HELP,
                add_arguments=module.add_arguments,
                run=module.run,
            )
        )
    benches.sort(key=lambda b: (_ORDER.index(b.name) if b.name in _ORDER else 99, b.name))
    return Found(benches=benches, broken=broken)
