"""Read one option of the replica: its flag, else its variable, else the default."""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

from engine.errors import InvalidInput

TRUE = frozenset({"1", "true", "yes", "on"})
FALSE = frozenset({"0", "false", "no", "off", ""})


class OptionReader:
    """Flag, else variable, else default; each checked, each named in its complaint."""

    def __init__(self, args: argparse.Namespace, environ: Mapping[str, str]) -> None:
        self._args = args
        self._environ = environ

    def text(self, variable: str) -> str:
        value = self._environ.get(variable)
        if value is not None:
            return value.strip()
        path = self._environ.get(f"{variable}_FILE")
        if not path:
            return ""
        try:
            return Path(path).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise InvalidInput(f"{variable}_FILE", path, f"cannot be read: {error}") from None

    def boolean(self, variable: str) -> bool:
        raw = self.text(variable).lower()
        if raw not in TRUE | FALSE:
            raise InvalidInput(variable, raw, "use 1 or 0")
        return raw in TRUE

    def integer(
        self, flag: str | None, variable: str | None, default: int, low: int, high: int
    ) -> int:
        return self._checked(flag, variable, default, low, high, int, "a whole number")

    def number(
        self, flag: str | None, variable: str | None, default: float, low: float, high: float
    ) -> float:
        return self._checked(flag, variable, default, low, high, float, "a number")

    def _checked[N: (int, float)](
        self,
        flag: str | None,
        variable: str | None,
        default: N,
        low: float,
        high: float,
        kind: Callable[[str], N],
        noun: str,
    ) -> N:
        given = getattr(self._args, flag, None) if flag else None
        name = f"--{flag.replace('_', '-')}" if flag else str(variable)
        if given is None and variable is not None:
            given, name = self.text(variable) or None, variable
        if given is None:
            return default
        try:
            value = kind(given)
        except ValueError:
            value = None
        if value is None or not low <= value <= high:
            raise InvalidInput(name, given, f"use {noun} from {low:.12g} to {high:.12g}")
        return value
