"""Folders that transformers 5 saves under the names it has in memory, or in parts that no maker has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.engine.models.architectures import cached_logits, ids, transformers_model
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.oracle import load, logits
from tests.tiny import write_tokenizer


@pytest.mark.parametrize(
    ("name", "original"),
    [
        *((name, False) for name in (
            "Mixtral", "GPT-NeoX", "Granite 3 mixture of experts, a shared expert, biases, tied",
            "Granite 4, experts and a shared one", "Nemotron-H, experts on a projection, biases",
            "ERNIE 4.5 mixture of experts", "MiniMax-M2", "Phi-3.5-MoE", "Kimi Linear", "OLMo Hybrid", "Aria",
            "Flint", "Ling 3", "Sarvam", "MiniMax-01", "GLM-5 next",
        )),
        ("OLMo Hybrid", True),
    ],
)  # fmt: skip
def test_logits(name: str, original: bool, tmp_path: Path) -> None:
    """`original`: under the names of the makers; transformers cuts OLMo Hybrid's one convolution into three
    of one size.
    """
    from transformers.utils import logging

    logging.disable_progress_bar()  # it would leave a thread behind
    case = BY_NAME[name]
    transformers_model(case).save_pretrained(tmp_path, save_original_format=original)
    write_tokenizer(tmp_path)
    expected = cached_logits(name)
    found = logits(load(tmp_path), ids(case.length), context=case.length)
    assert np.abs(found - expected).max() <= 2 * case.tolerance * np.abs(expected).max()
