"""Numbers as people read them: three significant figures, a unit, and a dash for "no data".

Every function takes None and answers `NO_DATA`. A zero is written as a zero, because a
measured zero says something that no data does not.
"""

from math import isfinite

NO_DATA = "\N{EN DASH}"
THIN = "\N{NARROW NO-BREAK SPACE}"


def number(value: float | None, *, digits: int = 3) -> str:
    """A plain quantity: 0.042, 3.14, 42.7, 1 234, 1.23 M."""
    if value is None or not isfinite(value):
        return NO_DATA
    size = abs(value)
    if size >= 1e9:
        return f"{value / 1e9:.2f}{THIN}G"
    if size >= 1e6:
        return f"{value / 1e6:.2f}{THIN}M"
    if size >= 1000:
        return f"{value:,.0f}".replace(",", THIN)
    if value == int(value):
        return f"{value:.0f}"
    if size >= 100:
        return f"{value:.0f}"
    if size >= 10:
        return f"{value:.{max(digits - 2, 0)}f}"
    if size >= 1:
        return f"{value:.{max(digits - 1, 0)}f}"
    return f"{value:.{digits}f}" if size >= 0.001 else f"{value:.1e}"


def count(value: float | None) -> str:
    """A whole number with thin spaces: 12 345."""
    if value is None or not isfinite(value):
        return NO_DATA
    if abs(value) >= 1e7:
        return number(value)
    return f"{value:,.0f}".replace(",", THIN)


def rate(value: float | None) -> str:
    """Events a second, steady in width: 0.0, 3.2, 45.1, 231."""
    if value is None or not isfinite(value):
        return NO_DATA
    if abs(value) >= 1000:
        return count(value)
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}"


def ms(value: float | None) -> str:
    """Milliseconds without their unit, which stands in the header: 0.8, 42, 1 250."""
    if value is None or not isfinite(value):
        return NO_DATA
    if abs(value) < 10:
        return f"{value:.1f}"
    return count(value)


def percent(ratio: float | None, *, digits: int = 1) -> str:
    """A ratio in [0, 1] as per cent without the sign. 99.96 % never reads as 100."""
    if ratio is None or not isfinite(ratio):
        return NO_DATA
    value = ratio * 100.0
    text = f"{value:.{digits}f}"
    if float(text) == 100.0 and value < 100.0:
        return f"{100.0 - 10.0**-digits:.{digits}f}"
    if float(text) == 0.0 and value > 0.0:
        return f"<{10.0**-digits:.{digits}f}"
    return "100" if float(text) == 100.0 else text


def seconds(value: float | None) -> str:
    """A span with its unit: 0.4 s, 12 s, 3 min, 2 h 5 min, 4 d."""
    if value is None or not isfinite(value):
        return NO_DATA
    if value < 10:
        return f"{value:.1f} s"
    if value < 120:
        return f"{value:.0f} s"
    if value < 7200:
        return f"{value / 60:.0f} min"
    if value < 172_800:
        return f"{int(value // 3600)} h {int(value % 3600 // 60)} min"
    return f"{value / 86_400:.0f} d"


def words(identifier: str) -> str:
    """`deadline_unreachable` as it is spoken: deadline unreachable."""
    return identifier.replace("_", " ")


def plural(n: float, one: str, many: str | None = None) -> str:
    """`1 breaker`, `3 breakers`."""
    return f"{count(n)} {one if n == 1 else many or one + 's'}"


def pairs(numbers: dict[str, object], *, limit: int = 8) -> str:
    """The numbers of a decision as one line: `faults 5, threshold 5`."""
    shown = []
    for key, value in list(numbers.items())[:limit]:
        if isinstance(value, bool) or value is None:
            text = {True: "yes", False: "no", None: NO_DATA}[value]
        elif isinstance(value, int | float):
            text = number(float(value))
        else:
            text = str(value)
        shown.append(f"{spoken(key)} {text}")
    return ", ".join(shown)


def spoken(key: str) -> str:
    """`retryAfterMs` and `retry_after_ms` as words: retry after ms."""
    spaced = "".join(f" {c.lower()}" if c.isupper() else c for c in key)
    return spaced.replace("_", " ").strip()
