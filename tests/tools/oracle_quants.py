"""Every quantisation that llama.cpp offers for a model: our logits and llama.cpp's against the exact ones.

    python -m tests.tools.oracle_quants F32.gguf [--keep FOLDER] [--types Q4_K_M IQ4_XS ...]

Needs the `bench` extra. llama.cpp quantises the F32 model to each type; the exact logits are llama.cpp's on
the same file dequantised to F32. For 256 tokens of text it prints the mean KL divergence from the exact
distribution and the share of positions with the same likeliest token; and the decode speeds of both engines,
interleaved, with their ratio.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from llama_cpp import llama_cpp as raw

from engine.backends.cpu.backend import CpuBackend
from engine.models import read_model
from engine.models.paged import PagedCache
from engine.settings import CacheSettings
from engine.weights import open_checkpoint
from tests.engine.models.oracle import finish
from tests.tools.oracle_llama_cpp import GOLDEN, log_softmax, open_llama
from tests.tools.twins import write_twin

TYPES = {
    "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K_M": 12, "Q4_K_M": 15,
    "Q5_K_M": 17, "Q6_K": 18, "IQ3_XXS": 23, "IQ4_NL": 25, "IQ3_S": 26, "IQ4_XS": 30, "TQ1_0": 36,
    "TQ2_0": 37, "BF16": 32, "F16": 1,
}  # fmt: skip
"""llama.h's numbers of file types."""
TOKENS = 256


SILENCE: Any = raw.llama_log_callback(lambda level, text, data: None)
"""llama.cpp tells a line of each tensor otherwise; the function must outlive it."""


def quantise(source: Path, target: Path, kind: int) -> bool:
    """Let llama.cpp quantise silently; False if it refuses (some types need an importance matrix)."""
    raw.llama_log_set(SILENCE, ctypes.c_void_p(0))
    parameters = raw.llama_model_quantize_default_params()
    parameters.ftype, parameters.nthread = kind, 2
    return bool(
        raw.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(parameters)) == 0
    )


def kl(exact: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> tuple[float, float]:
    """Mean KL(exact || other), and the share of positions with the same likeliest token."""
    p = log_softmax(exact)
    divergence = (np.exp(p) * (p - log_softmax(other))).sum(-1).mean()
    return float(divergence), float((exact.argmax(-1) == other.argmax(-1)).mean())


def theirs(path: Path, ids: list[int], exact: bool) -> np.ndarray[Any, Any]:
    """Logits (T, V) by llama.cpp."""
    model = open_llama(path, exact)
    model.eval(ids)
    logits = np.array(model.scores[: len(ids)])
    model.close()
    return logits


def ours(path: Path, ids: list[int]) -> tuple[np.ndarray[Any, Any], PagedCache]:
    """Logits (T, V) of the CPU backend, and its cache."""
    model = finish(read_model(open_checkpoint(path), CpuBackend()))
    cache = PagedCache(model, CacheSettings(context_length=1024, dtype="fp16"))
    lease, rows = cache.open(ids), []
    for start in range(0, len(ids), 64):
        rows.append(cache.run(lease, ids[start : start + 64], len(ids[start : start + 64])).copy())
    lease.close()
    return np.concatenate(rows), cache


def speeds(
    path: Path, cache: PagedCache, ids: list[int], rounds: int = 3, steps: int = 24
) -> tuple[float, float]:
    """Median decode speeds in tokens/s, ours and llama.cpp's, interleaved."""
    rival = llama_cpp.Llama(str(path), n_ctx=1024, n_threads=2, n_threads_batch=2, verbose=False)
    found: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        lease = cache.open(ids[:32])
        cache.run(lease, ids[lease.length : 32])
        began = time.perf_counter()
        for i in range(steps):
            cache.run(lease, ids[32 + i : 33 + i])
        found[0].append(steps / (time.perf_counter() - began))
        lease.close()
        rival.reset()
        rival.eval(ids[:32])
        began = time.perf_counter()
        for i in range(steps):
            rival.eval(ids[32 + i : 33 + i])
        found[1].append(steps / (time.perf_counter() - began))
    rival.close()
    return statistics.median(found[0]), statistics.median(found[1])


def main() -> None:
    """Print a line for each type."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--keep", type=Path, help="where quantised files are kept")
    parser.add_argument("--types", nargs="+", default=list(TYPES), choices=list(TYPES))
    options = parser.parse_args()
    text = (GOLDEN / "text_50k.txt").read_text(encoding="utf-8")
    print(
        "type        MB   KL ours   KL llama.cpp   same ours   same llama.cpp   tok/s ours   llama.cpp   "
        "ratio"
    )
    with tempfile.TemporaryDirectory() as scratch:
        for name in options.types:
            path = (options.keep or Path(scratch)) / f"{options.model.stem}-{name}.gguf"
            if not path.is_file() and not quantise(options.model, path, TYPES[name]):
                print(f"{name:8}  not made by llama.cpp without an importance matrix")
                continue
            rival = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
            ids = rival.tokenize(text.encode())[:TOKENS]
            rival.close()
            exact_file = Path(scratch) / "exact.gguf"
            write_twin(path, exact_file)
            exact = theirs(exact_file, ids, True)
            mine, cache = ours(path, ids)
            (divergence, same), (their_divergence, their_same) = (
                kl(exact, mine),
                kl(exact, theirs(path, ids, False)),
            )
            fast, rival_fast = speeds(path, cache, ids)
            cache.close()
            cache.model.close()
            print(
                f"{name:8}{path.stat().st_size / 1e6:6.0f}  {divergence:.2e}      "
                f"{their_divergence:.2e}       {same:.4f}          {their_same:.4f}      {fast:7.1f}     "
                f"{rival_fast:7.1f}    {fast / rival_fast:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
