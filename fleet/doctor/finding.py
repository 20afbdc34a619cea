"""One finding. Whatever is not healthy says its consequence and its remedy."""

from dataclasses import dataclass
from typing import Literal

Word = Literal["healthy", "degraded", "down", "unknown"]


@dataclass(slots=True, frozen=True)
class Finding:
    name: str
    word: Word
    cause: str  # what was found, in good health too
    consequence: str = ""
    remedy: str = ""

    def __post_init__(self) -> None:
        if self.word != "healthy" and not (self.consequence and self.remedy):
            raise ValueError(f"{self.name}: a finding that is not healthy says what to do")
