"""Benchmarks as commands: `python -m bench NAME`.

Each module that defines NAME, HELP, `add_arguments` and `run` is a benchmark. Each drives the
engine itself (in virtual time where time matters) and leaves a table, a JSON file and a
self-contained HTML page, with the command and the seed that reproduce it.
"""
