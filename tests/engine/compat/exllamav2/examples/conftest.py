"""A tiny model as the scripts load theirs, and what their helper module gives them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.compat.exllamav2 import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Config, ExLlamaV2Tokenizer


@pytest.fixture(scope="module")
def model_dir(tiny_file: Path) -> str:
    """A path where a script has one."""
    return str(tiny_file)


@pytest.fixture
def loaded(model_dir) -> Any:
    """Config, model, cache and tokenizer as nearly every script makes them; closed after the test."""
    caches, models = [], []

    def load(max_seq_len: int = -1, kind: type = ExLlamaV2Cache, **sizes: int) -> Any:
        config = ExLlamaV2Config(model_dir)
        config.arch_compat_overrides()
        model = ExLlamaV2(config)
        cache = kind(model, max_seq_len=max_seq_len, lazy=True, **sizes)
        model.load_autosplit(cache, progress=True)
        caches.append(cache)
        models.append(model)
        return model, cache, ExLlamaV2Tokenizer(config)

    yield load
    for cache in caches:
        cache.close()
    for model in models:
        model.unload()


def chatml(system: str, user: str) -> str:
    """A prompt in the format of the tiny model."""
    return (
        "".join(
            f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in (("system", system), ("user", user))
        )
        + "<|im_start|>assistant\n"
    )


@pytest.fixture
def format_prompt() -> Callable[[str, str], str]:
    return chatml
