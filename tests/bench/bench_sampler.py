"""Microseconds a sampled token costs, for several settings and vocabulary sizes.

Run: python tests/bench/bench_sampler.py [--calls 300]. People read the table; the last line is one JSON object:
{"V": {"setting": microseconds}}, medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from engine.sampling.sampler import Sampler
from engine.settings import SamplerSettings

VOCABULARIES = (32_000, 49_152, 152_064, 256_000)
NEUTRAL = SamplerSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
SETTINGS = {
    "default": SamplerSettings(),
    "default, top 5": SamplerSettings(),
    "penalties": SamplerSettings(repetition_penalty=1.1, presence_penalty=0.2, frequency_penalty=0.1),
    "greedy": SamplerSettings(temperature=0.0),
    "neutral": NEUTRAL,
    "top-p alone": replace(NEUTRAL, top_p=0.95),
    "min-p alone": replace(NEUTRAL, min_p=0.05),
    "top-k 1000": SamplerSettings(top_k=1000),
}


def measure(name: str, vocabulary: int, calls: int) -> float:
    """Median microseconds a call of `Sampler.sample`, with a history of 2,000 tokens that grows by each token."""
    random = np.random.default_rng(7)
    rows = (random.standard_normal((8, vocabulary)) * 3).astype(np.float32)
    rows[:, random.integers(0, vocabulary, 20)] += 12  # a head, as a language model's logits have
    history = random.integers(0, vocabulary, 2000).tolist()
    sampler, top = Sampler(SETTINGS[name], seed=1), 5 if name.endswith("top 5") else 0
    times = []
    for call in range(calls + 10):
        start = time.perf_counter()
        history.append(sampler.sample(rows[call % 8], history, top=top).id)
        times.append(time.perf_counter() - start)
    return statistics.median(times[10:]) * 1e6


def main() -> None:
    """Print the table, then the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=300)
    calls = parser.parse_args().calls
    results: dict[str, dict[str, float]] = {str(size): {} for size in VOCABULARIES}
    print(f"{'microseconds a token':22}" + "".join(f"{size:>10}" for size in VOCABULARIES))
    for name in SETTINGS:
        for size in VOCABULARIES:
            results[str(size)][name] = round(measure(name, size, calls), 1)
        print(f"{name:22}" + "".join(f"{results[str(size)][name]:10.1f}" for size in VOCABULARIES), flush=True)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
