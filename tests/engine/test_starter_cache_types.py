"""What each cache type costs the starter model: perplexity over the golden text, attention reading keys
and values as stored.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.bench_cache_types import TEXT, load, perplexity

pytestmark = [pytest.mark.real_model, pytest.mark.slow]


def test_perplexity_of_the_cache_types(starter_path: Path) -> None:
    """Of fp16's: 8 bits within 0.1 %, 4 bits within 2 %, between them in between."""
    model, tokenizer = load(starter_path, 0)
    ids = tokenizer.encode(TEXT.read_text(encoding="utf-8"), add_bos=tokenizer.add_bos)
    found = {dtype: perplexity(model, dtype, ids, 1 << 20) for dtype in ("fp16", "fp8", "q8", "q6", "q4")}
    ratio = {dtype: value / found["fp16"] for dtype, value in found.items()}
    assert abs(ratio["q8"] - 1) <= 0.001, ratio
    assert ratio["fp8"] <= 1.01, ratio
    assert ratio["q6"] <= 1.01, ratio
    assert ratio["q4"] <= 1.02, ratio
