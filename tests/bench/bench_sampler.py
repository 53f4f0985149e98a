"""Microseconds of sampling a token: each step alone, usual settings, and the full chain, next to the shortest
decode step.

The decode step is that of a model with 1 billion weights in Q4: the time to read its 0.6 GB at the bandwidth
measured in the same run. The full chain has every step active (with settings that leave work for each), token
bias, a constraint's mask, a banned token, entropy and five alternatives, with a history of 2,000 tokens.

    python tests/bench/bench_sampler.py [--calls 200] [--threads 2]

The last line is one JSON object: {"microseconds": {"V": {"setting": median}}, "full_chain_least": {"V": the
fastest call}, "bandwidth": bytes/s, "decode_step": microseconds, "full_chain_share": {"V": share}}.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from engine.backends.cpu.runtime.bandwidth import read_bandwidth
from engine.sampling.sampler import Sampler
from engine.sampling.tables import TokenTables
from engine.settings import SamplerSettings

VOCABULARIES = (49_152, 128_256, 256_000)
MODEL_BYTES = 600_000_000
HISTORY = 2000
OFF = SamplerSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
CUT = replace(OFF, top_k=200)
FULL = SamplerSettings(
    repetition_penalty=1.1, repetition_range=1500, repetition_decay=400, presence_penalty=0.1,
    frequency_penalty=0.05, dry_multiplier=0.8, top_n_sigma=4.5, smoothing_factor=0.02, temperature=0.9,
    top_k=100, top_p=0.99, top_a=0.01, min_p=0.001, tail_free=0.98, typical=0.98, mirostat=True,
    min_temperature=0.5, max_temperature=1.5, xtc_probability=0.5, xtc_threshold=0.05, adaptive_target=0.4,
    skew=0.2,
)  # fmt: skip
SETTINGS: dict[str, tuple[SamplerSettings, dict[str, Any]]] = {
    "nothing": (OFF, {}),
    "greedy": (replace(OFF, temperature=0.0), {}),
    "default": (SamplerSettings(), {}),
    "default, 5 alternatives": (SamplerSettings(), {"alternatives": 5}),
    "repetition": (replace(OFF, repetition_penalty=1.1), {}),
    "repetition, fading": (
        replace(OFF, repetition_penalty=1.1, repetition_range=1500, repetition_decay=400),
        {},
    ),
    "occurrence": (replace(OFF, presence_penalty=0.2, frequency_penalty=0.1), {}),
    "dry": (replace(OFF, dry_multiplier=0.8), {}),
    "top_n_sigma": (replace(OFF, top_n_sigma=1.0), {}),
    "smoothing": (replace(OFF, smoothing_factor=0.2), {}),
    "temperature": (replace(OFF, temperature=0.8), {}),
    "top_k": (replace(OFF, top_k=40), {}),
    "top_p": (replace(OFF, top_p=0.95), {}),
    "top_a": (replace(OFF, top_a=0.2), {}),
    "min_p": (replace(OFF, min_p=0.05), {}),
    "tail_free": (replace(OFF, tail_free=0.95), {}),
    "typical": (replace(OFF, typical=0.95), {}),
    "mirostat": (replace(OFF, mirostat=True), {}),
    "dynamic_temperature": (replace(OFF, min_temperature=0.5, max_temperature=1.5), {}),
    "xtc": (replace(OFF, xtc_probability=0.5), {}),
    "adaptive_p after top_k": (replace(CUT, adaptive_target=0.4), {}),
    "skew after top_k": (replace(CUT, skew=0.5), {}),
    "skew of everything": (replace(OFF, skew=0.5), {}),
    "default, mask": (SamplerSettings(), {"mask": True}),
    "full chain, no mask": (FULL, {"alternatives": 5}),
    "full chain": (FULL, {"mask": True, "alternatives": 5, "blocked": [17], "tables": True}),
}


def measure(name: str, vocabulary: int, calls: int) -> list[float]:
    """Microseconds of each call of `Sampler.sample`, sorted, with a history that grows by each token."""
    settings, extra = SETTINGS[name]
    keywords = dict(extra)
    random = np.random.default_rng(7)
    rows = (random.standard_normal((8, vocabulary)) * 2).astype(np.float32)
    # a shoulder and a head, as a language model's logits have
    rows[:, random.integers(0, vocabulary, 500)] += 8
    rows[:, random.integers(0, vocabulary, 20)] += 14
    tables = TokenTables()
    if keywords.pop("tables", False):
        banned = frozenset(random.integers(0, vocabulary, 100).tolist())
        tables = TokenTables(
            vocabulary - 10, bias=((5, 1.0), (77, -2.0)), banned=banned, xtc_protected=frozenset({1, 2})
        )
    if keywords.pop("mask", False):
        # half of all: the slowest kind
        keywords["mask"] = random.integers(0, 1 << 32, -(-vocabulary // 32), dtype=np.uint32)
    history = random.integers(0, vocabulary, HISTORY).tolist()
    sampler, times, logits = Sampler(settings, 1, tables), [], np.empty(vocabulary, np.float32)
    for call in range(calls + 10):
        np.copyto(logits, rows[call % 8])  # as the model does, always to the same place
        start = time.perf_counter()
        history.append(sampler.sample(logits, history, **keywords).id)
        times.append(time.perf_counter() - start)
    return sorted(seconds * 1e6 for seconds in times[10:])


def main() -> None:
    """Print the table, then the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument(
        "--threads",
        type=int,
        default=max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2),
    )
    arguments = parser.parse_args()
    bandwidth = read_bandwidth(arguments.threads)
    step = MODEL_BYTES / bandwidth * 1e6
    results: dict[str, dict[str, float]] = {str(size): {} for size in VOCABULARIES}
    print(f"{'microseconds a token':26}" + "".join(f"{size:>10}" for size in VOCABULARIES))
    least: dict[str, float] = {}
    for name in SETTINGS:
        for size in VOCABULARIES:
            times = measure(name, size, arguments.calls)
            results[str(size)][name] = round(statistics.median(times), 1)
            least[str(size)] = round(times[0], 1)  # the last setting's stay
        print(
            f"{name:26}" + "".join(f"{results[str(size)][name]:10.1f}" for size in VOCABULARIES), flush=True
        )
    share = {size: round(figures["full chain"] / step, 4) for size, figures in results.items()}
    print(
        f"a decode step of 1B in Q4 takes at least {step:.0f} ({bandwidth / 1e9:.1f} GB/s); the full "
        f"chain's share of it: {share}"
    )
    figures = {
        "microseconds": results,
        "full_chain_least": least,
        "bandwidth": bandwidth,
        "decode_step": step,
        "full_chain_share": share,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
