"""Other engines on the same file, for `bench --vs`: llama.cpp through `llama-cpp-python`."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.errors import BenchmarkError
from engine.weights.gguf.file import begins_with_magic
from engine.weights.gguf.ollama import known_name
from engine.words import _

PEERS = ("llama.cpp",)


class LlamaCpp:
    """llama.cpp with one model file.

    Raises `BenchmarkError` if it is not installed or cannot load the file.
    """

    name = "llama.cpp"

    def __init__(self, path: Path, threads: int, context_length: int) -> None:
        if importlib.util.find_spec("llama_cpp") is None:
            raise BenchmarkError(
                _(
                    "llama-cpp-python is not installed, so llama.cpp cannot be measured. Install it with: "
                    "pip install 'inglenook[bench]'"
                )
            )
        if path.is_dir() or not begins_with_magic(path):
            raise BenchmarkError(
                _(
                    "llama.cpp reads only GGUF files, and {file} is not one. Compare with a .gguf file.",
                    file=known_name(path),
                )
            )
        import llama_cpp

        self.version = str(llama_cpp.__version__)
        try:
            self._llama: Any = llama_cpp.Llama(
                model_path=str(path),
                n_ctx=context_length,
                n_batch=512,
                n_threads=threads,
                n_threads_batch=threads,
                verbose=False,
            )
        except ValueError as error:
            raise BenchmarkError(
                _(
                    "llama.cpp cannot load {file} ({error}); compare with another file.",
                    file=known_name(path),
                    error=error,
                )
            ) from error

    def run(self, ids: Sequence[int], start: int, *, one_by_one: bool) -> float:
        """Run `ids` after the first `start` tokens, which must be in the cache; returns seconds."""
        # `eval` drops the cache contents from n_tokens on.
        self._llama.n_tokens = start
        begun = time.perf_counter()
        if one_by_one:
            for token in ids:
                self._llama.eval([token])
        else:
            self._llama.eval(list(ids))
        return time.perf_counter() - begun

    def close(self) -> None:
        """Free the model."""
        self._llama.close()
