"""Compares our reading of GGUF files with llama.cpp: every tiny architecture, converted and run by both.

    python -m tests.tools.oracle_architectures [PART OF A NAME]

Needs the `bench` extra. Prints the largest difference of logits relative to the largest logit, of llama.cpp
against us and against transformers, with F32 weights and cache and without flash attention. Known
differences: llama.cpp has no sliding windows in its `llama` (Mistral) and `phi3` graphs, looks up gelu in a
half-precision table (3e-4 and more), rounds the ends of GPT-OSS's yarn ramp, unlike the authors' code, gives
EXAONE 4 its windows only where there are 64 layers, chooses DeepSeek V2's groups of experts by their best
two, and loads V2 without a latent of the queries only if it has 26 or 27 layers.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import llama_cpp
import numpy as np

from tests.engine.models.architectures import (
    Case,
    Floats,
    expected_logits,
    ids,
    write_case_gguf,
    write_checkpoint,
)
from tests.engine.models.cases.table import CASES
from tests.engine.models.oracle import load, logits

CONTEXT = 256


def llama_logits(path: Path, tokens: list[int]) -> Floats:
    """Logits (T, V) by llama.cpp."""
    kind = llama_cpp.GGML_TYPE_F32
    llama = llama_cpp.Llama(
        str(path), n_ctx=CONTEXT, n_batch=CONTEXT, logits_all=True, verbose=False, type_k=kind, type_v=kind
    )
    llama.eval(tokens)
    out = np.array(llama.scores[: len(tokens)], np.float32)
    llama.close()
    return out


def share(a: Floats, b: Floats) -> float:
    """The largest difference relative to the largest number."""
    return float(np.abs(a - b).max() / np.abs(b).max())


def compare(case: Case, folder: Path) -> str:
    """One line of the report."""
    path = write_case_gguf(case, write_checkpoint(case, folder / "model"), folder / "model.gguf")
    tokens = ids(case.length)
    theirs = llama_logits(path, tokens)
    ours = logits(load(path), tokens, context=CONTEXT)
    return (
        f"{case.name:60} ours {share(ours, theirs):.1e}   transformers "
        f"{share(expected_logits(case), theirs):.1e}"
    )


def main() -> None:
    for case in CASES:
        if case.gguf is None or (len(sys.argv) > 1 and sys.argv[1].lower() not in case.name.lower()):
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                print(compare(case, Path(folder)), flush=True)
            except ValueError as error:
                print(f"{case.name:60} llama.cpp cannot load it: {error}", flush=True)


if __name__ == "__main__":
    main()
