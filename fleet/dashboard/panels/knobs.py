"""Every knob of the engine, read off the engine: name, default, unit, and where it is defined.

The engine's configurations are frozen dataclasses whose fields name their units. Reading them
by reflection keeps this page true: a knob that is added there appears here.
"""

import importlib
import pkgutil
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from typing import Any

import engine
from fleet.dashboard.format import number

UNITS = {
    "_per_s": "1/s",
    "_ms": "ms",
    "_s": "s",
    "_ratio": "ratio",
    "_tokens": "tokens",
    "_size": "entries",
    "_percent": "%",
}
LEFT_OUT = ("engine.simulation",)


@dataclass(slots=True, frozen=True)
class Knob:
    name: str
    default: str
    unit: str


@dataclass(slots=True, frozen=True)
class Group:
    """The knobs of one configuration."""

    title: str
    about: str
    source: str
    knobs: tuple[Knob, ...]


@cache
def groups() -> tuple[Group, ...]:
    """Every `*Config` of the engine, by module."""
    found: dict[str, Group] = {}
    for info in pkgutil.walk_packages(engine.__path__, "engine."):
        if info.name.startswith(LEFT_OUT):
            continue
        module = importlib.import_module(info.name)
        for name, value in vars(module).items():
            if name.endswith("Config") and is_dataclass(value) and value.__module__ == info.name:
                made = _group(name, value)
                if made.knobs:
                    found[f"{info.name}.{name}"] = made
    return tuple(found[key] for key in sorted(found))


def _group(name: str, config: Any) -> Group:
    about = (config.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")
    if about.startswith(f"{name}("):  # the signature that dataclass writes where nobody wrote
        about = ""
    knobs = tuple(
        Knob(field.name, text, unit_of(field.name))
        for field in fields(config)
        if (text := _default(field)) is not None
    )
    source = config.__module__.replace(".", "/") + ".py"
    about = " ".join(about.replace("`", "").split())
    return Group(name.removesuffix("Config"), about, source, knobs)


def _default(field: Any) -> str | None:
    """The default as text; None for a nested configuration, which has a group of its own."""
    value = field.default
    if value is MISSING and field.default_factory is not MISSING:
        value = field.default_factory()
    if value is MISSING:
        return "required"
    if is_dataclass(value):
        return None
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int | float):
        return number(float(value))
    if isinstance(value, bytes):
        return "secret"
    if value is None:
        return "none"
    return str(value)


def unit_of(name: str) -> str:
    """The unit that a field's name ends with."""
    return next((unit for suffix, unit in UNITS.items() if name.endswith(suffix)), "")
