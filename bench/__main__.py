"""`python -m bench NAME`: run a benchmark; `list` names them, `all` runs every one.

Exit codes: 0 done, 1 a goal was missed under --strict, 2 a mistake in the command,
130 interrupted.
"""

import argparse
import shlex
import sys
import time
from pathlib import Path

from rich.console import Console

from bench.progress import Progress
from bench.registry import Bench, Found, find
from bench.report import Report
from engine.errors import InvalidInput

_RESULTS = Path(__file__).parent / "results"
_DEFAULT_SEED = 0xC0FFEE
_FILE_WIDTH = 160  # of tables that go to a pipe


def _parser(found: Found) -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="print the JSON document, no table")
    common.add_argument(
        "--seed",
        type=lambda text: int(text, 0),
        default=_DEFAULT_SEED,
        help=f"seed of every random draw (default {_DEFAULT_SEED:#x}, the published trace)",
    )
    common.add_argument(
        "--out", type=Path, default=_RESULTS, help="folder for NAME.json, NAME.md and NAME.html"
    )
    common.add_argument("--strict", action="store_true", help="exit with 1 where a goal is missed")
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Halcyon's benchmarks, each a table, JSON and a page."
    )
    verbs = parser.add_subparsers(dest="name", metavar="NAME", required=True)
    verbs.add_parser("list", help="name the benchmarks")
    verbs.add_parser("all", parents=[common], help="run every benchmark with its defaults")
    for bench in found.benches:
        sub = verbs.add_parser(
            bench.name, parents=[common], help=bench.help, description=bench.help
        )
        bench.add_arguments(sub)
    return parser


def _command(argv: list[str]) -> str:
    """The command as one would type it again: without where its files went."""
    kept: list[str] = []
    skip = False
    for word in argv:
        if skip or word.startswith("--out=") or word == "--json":
            skip = False
            continue
        if word == "--out":
            skip = True
            continue
        kept.append(word)
    return shlex.join(["python", "-m", "bench", *kept])


def _run(bench: Bench, args: argparse.Namespace, argv: list[str]) -> Report:
    started = time.perf_counter()
    with Progress() as progress:
        report = bench.run(args, progress)
    report.elapsed_s = time.perf_counter() - started
    report.command = _command(argv)
    report.seed = args.seed
    paths = report.write(args.out)
    if args.json:
        print(report.to_json())
    else:
        console = Console() if sys.stdout.isatty() else Console(width=_FILE_WIDTH)
        report.print(console)
        console.print(f"written: {', '.join(str(path) for path in paths)}", highlight=False)
    return report


def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` and return its exit code."""
    words = sys.argv[1:] if argv is None else argv
    found = find()
    parser = _parser(found)
    for name, why in found.broken.items():
        print(f"bench {name}: cannot be loaded: {why}", file=sys.stderr)
    args = parser.parse_args(words)
    if args.name == "list":
        for bench in found.benches:
            print(f"{bench.name:<12} {bench.help}")
        return 0
    reports = []
    try:
        if args.name == "all":
            for bench in found.benches:
                line = [bench.name, *words[1:]]
                reports.append(_run(bench, parser.parse_args(line), line))
        else:
            chosen = next(bench for bench in found.benches if bench.name == args.name)
            reports.append(_run(chosen, args, words))
    except InvalidInput as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    missed = [goal.name for report in reports for goal in report.goals if not goal.met]
    for name in missed:
        print(f"goal missed: {name}", file=sys.stderr)
    return 1 if missed and args.strict else 0


if __name__ == "__main__":
    sys.exit(main())
