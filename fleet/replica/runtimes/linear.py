"""Y = X W + B on this machine's cores: the smallest model with real weights and real arithmetic.

W is Xavier-uniform, U(-a, a) with a = sqrt(6 / (inputs + outputs)), B is zero. The first run
draws them from the model's and the version's name and writes them to
`<state dir>/weights/<model>-<version>-<dim>.npz`; later runs load that file, so that a version
is the same function after every restart and in every replica. Two first runs at once agree on
whichever file was there first.

An input is a row of numbers or a list of rows; its work is its number of rows. numpy releases
the interpreter's lock inside the product, so threads use all cores.
"""

import contextlib
import os
import re
import tempfile
import threading
import zipfile
from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import xxhash
from numpy.typing import NDArray

from engine.types import WorkUnit
from fleet.replica.runtimes.base import (
    BoundBy,
    Item,
    ItemOutcome,
    RuntimeSettings,
    Served,
    ThreadedRuntime,
)

Array = NDArray[np.float64]
_LARGEST = 1e150  # whose square is still finite


class LinearRuntime(ThreadedRuntime):
    """A matrix product a batch."""

    work_unit: ClassVar[WorkUnit] = WorkUnit.TOKENS
    bound_by: ClassVar[BoundBy] = BoundBy.CPU
    accelerator: ClassVar[str] = "cpu"

    def __init__(self, settings: RuntimeSettings) -> None:
        super().__init__(settings)
        name = re.sub(r"[^\w.-]", "_", f"{settings.model}-{settings.version}-{settings.input_dim}")
        self.path = settings.state_dir / "weights" / f"{name}.npz"
        self._weights: Array = np.empty((0, 0))
        self._bias: Array = np.empty(0)

    def load_now(self) -> None:
        if not self.path.exists():
            self._write_first()
        try:
            with self.path.open("rb") as file, np.load(file) as stored:
                self._weights, self._bias = stored["weights"], stored["bias"]
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise RuntimeError(
                f"{self.path}: not readable as weights ({error}); remove it to draw new ones"
            ) from error
        inputs = self.settings.input_dim
        if self._weights.shape[0] != inputs:
            raise RuntimeError(
                f"{self.path}: holds {self._weights.shape[0]} inputs, not {inputs}; "
                "remove it or set --input-dim to match"
            )

    def check(self, value: Any) -> str | None:
        dim = self.settings.input_dim
        if not isinstance(value, list) or not value:
            return f"must be a row of {dim} numbers, or a list of such rows"
        rows = value if isinstance(value[0], list) else [value]
        for index, row in enumerate(rows):
            if not isinstance(row, list) or len(row) != dim:
                size = len(row) if isinstance(row, list) else "no"
                return f"row {index} has {size} numbers, the model takes {dim}"
            for number in row:
                if type(number) not in (float, int) or not abs(number) < _LARGEST:
                    return f"row {index} holds {number!r:.40}, which is not a finite number"
        return None

    def compute(self, items: Sequence[Item], stop: threading.Event) -> list[ItemOutcome]:
        matrices = [np.atleast_2d(np.asarray(item.input, dtype=np.float64)) for item in items]
        product = np.concatenate(matrices) @ self._weights + self._bias
        outcomes: list[ItemOutcome] = []
        start = 0
        for item, matrix in zip(items, matrices, strict=True):
            rows = product[start : start + len(matrix)]
            start += len(matrix)
            single = not isinstance(item.input[0], list)
            outcomes.append(Served(rows[0].tolist() if single else rows.tolist(), len(matrix)))
        return outcomes

    def _write_first(self) -> None:
        dim = self.settings.input_dim
        seed = xxhash.xxh64_intdigest(
            f"{self.settings.model}\0{self.settings.version}\0{dim}".encode()
        )
        bound = sqrt(6.0 / (dim + dim))
        weights = np.random.default_rng(seed).uniform(-bound, bound, (dim, dim))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=self.path.parent, suffix=".npz", delete=False) as file:
            np.savez(file, weights=weights, bias=np.zeros(dim))
        try:
            with contextlib.suppress(FileExistsError):
                os.link(file.name, self.path)
        finally:
            Path(file.name).unlink()
