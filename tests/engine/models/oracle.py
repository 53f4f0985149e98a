"""Logits of a tiny model by transformers, and by our engine in any cut of the tokens into steps."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from engine.backends.base import Backend, Step
from engine.backends.reference import ReferenceBackend
from engine.models import Model, read_model
from engine.weights import open_checkpoint

Floats = npt.NDArray[np.float32]
Result = TypeVar("Result")


def finish(generator: Generator[Any, None, Result]) -> Result:
    """What a generator returns, its progress unread."""
    while True:
        try:
            next(generator)
        except StopIteration as end:
            result: Result = end.value
            return result


def load(path: Path, backend: Backend | None = None) -> Model:
    """A model by way of the checkpoint's own reader."""
    return finish(read_model(open_checkpoint(path), backend or ReferenceBackend()))


def logits(model: Model, ids: Sequence[int], cuts: Sequence[int] = (), dtype: str = "fp32", context: int = 0) -> Floats:
    """Logits (T, V) of all tokens, run in steps that begin at 0 and at each of `cuts`, over pages in reverse order.

    `context` as in `Model.record`.
    """
    cache = model.new_cache(len(ids), dtype)
    program = model.record(cache, len(ids), context)
    pages = np.arange(cache.page_count, dtype=np.int32)[::-1].copy()
    rows = []
    for start, end in zip([0, *cuts], [*cuts, len(ids)], strict=True):
        tokens, positions = np.array(ids[start:end], np.int32), np.arange(start, end, dtype=np.int32)
        rows.append(program.run(Step(tokens, positions, pages[: -(-end // 256)], logit_rows=end - start)).copy())
    program.close()
    return np.concatenate(rows)


def transformers_logits(config: Mapping[str, Any], weights: Mapping[str, Floats], ids: Sequence[int]) -> Floats:
    """The same by transformers in float32, eager attention."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

    kinds = {"LlamaForCausalLM": (LlamaConfig, LlamaForCausalLM), "MistralForCausalLM": (MistralConfig, MistralForCausalLM)}
    config_class, model_class = kinds[config["architectures"][0]]
    skipped = ("architectures", "model_type", "torch_dtype")
    model = model_class(config_class(**{k: v for k, v in config.items() if k not in skipped}, attn_implementation="eager")).float().eval()
    state = {name: torch.from_numpy(values) for name, values in weights.items()}
    if config["tie_word_embeddings"]:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True)
    with torch.inference_mode():
        out: Floats = model(torch.tensor([list(ids)]), use_cache=False).logits[0].numpy()
    return out
