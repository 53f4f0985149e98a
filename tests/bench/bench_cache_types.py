"""Perplexity, bytes and decode speed of a model with each cache type.

    python -m tests.bench.bench_cache_types MODEL.gguf [--file TEXT] [--windows N] [--depth N] [--types A,B]

Perplexity is that of `inglenook-engine perplexity`: every scored token attends to keys and values as they are
stored in the cache. Speed is the median of decoding at --depth tokens, all types interleaved in one process.
The last line is JSON, with ratios to fp16.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from engine.backends import make_backend
from engine.backends.base import Step
from engine.cli.perplexity import negative_log_likelihood
from engine.core import PAGE_TOKENS
from engine.drain import drain
from engine.models import read_model
from engine.models.base import Model
from engine.models.paged import PagedCache
from engine.settings import CacheSettings, LoadSettings
from engine.text.tokenizer.tokenizer import Tokenizer
from engine.weights import open_checkpoint

TYPES = "fp16,fp32,fp8,q8,q6,q4"
WINDOW = 512
TEXT = Path(__file__).parent.parent / "golden" / "text_50k.txt"


def load(path: Path, threads: int) -> tuple[Model, Tokenizer]:
    """The model on the CPU backend, and its tokenizer."""
    checkpoint = open_checkpoint(path)
    model = drain(read_model(checkpoint, make_backend(LoadSettings(threads=threads))))
    return model, Tokenizer.from_gguf(checkpoint.metadata)


def perplexity(model: Model, dtype: str, ids: list[int], windows: int) -> float:
    """Perplexity over the second halves of windows of 512 tokens."""
    keys, _, values = dtype.partition("/")
    cache = PagedCache(model, CacheSettings(context_length=WINDOW, dtype=keys, value_dtype=values or "same"))
    try:
        parts = [ids[i * WINDOW : (i + 1) * WINDOW] for i in range(min(windows, len(ids) // WINDOW))]
        total = sum(negative_log_likelihood(cache, part) for part in parts)
    finally:
        cache.close()
    return math.exp(total / (len(parts) * (WINDOW - WINDOW // 2 - 1)))


def decode_seconds(
    model: Model, types: list[str], depth: int, ids: list[int], repeats: int
) -> dict[str, float]:
    """The median seconds of a step of one token after `depth` others."""
    pages = np.arange(-(-(depth + 1) // PAGE_TOKENS), dtype=np.int32)
    programs: dict[str, Any] = {}
    for dtype in types:
        programs[dtype] = model.record(model.new_cache(depth + 1, dtype), 256)
        for start in range(0, depth, 256):
            part = np.array(ids[start : min(start + 256, depth)], np.int32)
            programs[dtype].run(Step(part, np.arange(start, start + len(part), dtype=np.int32), pages, 1))
    taken: dict[str, list[float]] = {dtype: [] for dtype in types}
    step = Step(np.array(ids[depth : depth + 1], np.int32), np.array([depth], np.int32), pages, 1)
    for _ in range(repeats):
        for dtype, program in programs.items():
            begun = time.perf_counter()
            program.run(step)
            taken[dtype].append(time.perf_counter() - begun)
    for program in programs.values():
        program.close()
    return {dtype: statistics.median(times) for dtype, times in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--file", type=Path, default=TEXT)
    parser.add_argument("--windows", type=int, default=1 << 20)
    parser.add_argument("--depth", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--types", default=TYPES)
    arguments = parser.parse_args()
    model, tokenizer = load(arguments.model, arguments.threads)
    ids = tokenizer.encode(arguments.file.read_text(encoding="utf-8"), add_bos=tokenizer.add_bos)
    types = ["fp16", *(t for t in arguments.types.split(",") if t != "fp16")]
    seconds = decode_seconds(model, types, arguments.depth, ids, arguments.repeats)
    found: dict[str, dict[str, float]] = {}
    for dtype in types:
        value = perplexity(model, dtype, ids, arguments.windows)
        base = found.get("fp16", {"perplexity": value})["perplexity"]
        found[dtype] = {
            "perplexity": round(value, 4),
            "perplexity_ratio": round(value / base, 5),
            "bytes_per_token": model.config.kv_bytes_per_token(dtype),
            "decode_tokens_per_second": round(1 / seconds[dtype], 2),
            "decode_ratio": round(seconds["fp16"] / seconds[dtype], 3),
        }
        print(dtype, found[dtype], flush=True)
    print(json.dumps({"depth": arguments.depth, "window": WINDOW, "types": found}))


if __name__ == "__main__":
    main()
