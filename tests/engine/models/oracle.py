"""Logits of a tiny model by transformers, and by the engine in any split of the tokens into steps."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from engine.backends.base import Backend, Forward, KVCache, Step, Weight
from engine.backends.cpu.kernels.linear.panel_format import PAIRS
from engine.backends.cpu.layouts.table import weight_layout_for
from engine.backends.cpu.runtime.step_block import SMALL_BATCH
from engine.backends.packing.composite import is_composite
from engine.backends.reference.backend import ReferenceBackend, ReferenceProgram
from engine.drain import drain
from engine.models import Model, read_model
from engine.tensors import RawTensor
from engine.weights import open_checkpoint
from tests.engine.backends.kernel_oracles import sixteen_bits

Floats = npt.NDArray[np.float32]
Result = TypeVar("Result")


def finish(generator: Generator[Any, None, Result]) -> Result:
    """The result of a generator; its progress is ignored."""
    return drain(generator)


class SixteenBits(ReferenceBackend):
    """The reference with the CPU backend's one deliberate difference: integer products round activations to
    16 bits.
    """

    def load_weight(self, tensor: RawTensor) -> Weight:
        weight = super().load_weight(tensor)
        weight.tensor = tensor  # type: ignore[attr-defined]
        return weight

    def record(self, forward: Forward, cache: KVCache, max_rows: int) -> ReferenceProgram:
        def rounding(ops: Any) -> Any:
            ops.linear, ops.expert_linear = (
                partial(_linear, ops.linear),
                partial(_expert_linear, ops.expert_linear),
            )
            return forward(ops)

        return super().record(rounding, cache, max_rows)


def assert_near_exact(found: Floats, exact: Floats, rounded: Floats) -> None:
    """`found` differs from `exact` by no more than float32 rounding and `SixteenBits` explain."""
    error, noise = found - exact, rounded - exact
    assert np.sqrt((error**2).mean()) <= 5e-5 + 1.3 * np.sqrt((noise**2).mean())
    assert np.abs(error).max() <= 2e-4 + 1.5 * np.abs(noise).max()
    assert np.abs(noise).max() < 1e-3 * np.abs(exact).max()


def _linear(product: Any, x: torch.Tensor, weight: Any, *others: Any, **more: Any) -> Any:
    return product(_seen_by(weight.tensor, x, len(x)), weight, *others, **more)


def _expert_linear(
    product: Any, x: torch.Tensor, weights: Sequence[Any], routes: Any, *others: Any, **more: Any
) -> Any:
    chosen = routes[0].reshape(-1).tolist()
    rows = [_seen_by(weights[e].tensor, row[None], chosen.count(e)) for row, e in zip(x, chosen, strict=True)]
    return product(torch.cat(rows), weights, routes, *others, **more)


def _seen_by(tensor: Any, x: torch.Tensor, rows: int) -> torch.Tensor:
    """The activations (T, K) as a product with this matrix rounds them in a step of this many rows."""
    if not (PAIRS or rows <= SMALL_BATCH):
        return x
    values = x.numpy().copy()
    if not is_composite(tensor):
        return (
            torch.from_numpy(sixteen_bits(values).astype(np.float32))
            if weight_layout_for(tensor.type).integer
            else x
        )
    order = np.arange(values.shape[1]) if tensor.order is None else np.asarray(tensor.order)
    pieces = tensor.pieces()
    for piece, end in zip(pieces, np.cumsum([piece.shape[1] for piece in pieces]), strict=True):
        if weight_layout_for(piece.type).integer:
            columns = order[end - piece.shape[1] : end]
            values[:, columns] = sixteen_bits(np.ascontiguousarray(values[:, columns])).astype(np.float32)
    return torch.from_numpy(values)


def load(path: Path, backend: Backend | None = None) -> Model:
    """Load a model through its checkpoint reader, with the kernels for the caches of `logits` alone."""
    return finish(read_model(open_checkpoint(path), backend or ReferenceBackend(), "fp32"))


def logits(
    model: Model, ids: Sequence[int], cuts: Sequence[int] = (), dtype: str = "fp32", context: int = 0
) -> Floats:
    """Logits (T, V) of all tokens, run in steps that begin at 0 and at each of `cuts`, over pages in reverse
    order. `context` as in `Model.record`.
    """
    cache = model.new_cache(len(ids), dtype)
    program = model.record(cache, len(ids), context)
    pages = np.arange(cache.page_count, dtype=np.int32)[::-1].copy()
    rows = []
    for start, end in zip([0, *cuts], [*cuts, len(ids)], strict=True):
        tokens, positions = np.array(ids[start:end], np.int32), np.arange(start, end, dtype=np.int32)
        states = [(0 if start else -1, 0)] if cache.states.count else ()
        step = Step(tokens, positions, pages[: -(-end // 256)], logit_rows=end - start, states=states)
        rows.append(program.run(step).copy())
    program.close()
    return np.concatenate(rows)


def after_rewinding(model: Model, ids: Sequence[int], at: int, wrong: Sequence[int]) -> Floats:
    """Logits (T, V) of all tokens where, from `at` on, `wrong` ones were run first and taken back."""
    cache = model.new_cache(at + max(len(wrong), len(ids) - at), "fp32")
    program = model.record(cache, len(ids))
    pages, rows = np.arange(cache.page_count, dtype=np.int32), []
    for start, run, states in ((0, ids[:at], (-1, 0)), (at, wrong, (0, 1)), (at, ids[at:], (0, 1))):
        tokens, end = np.array(run, np.int32), start + len(run)
        own = [states] if cache.states.count else ()
        positions = np.arange(start, end, dtype=np.int32)
        step = Step(tokens, positions, pages[: -(-end // 256)], logit_rows=len(run), states=own)
        rows.append(program.run(step).copy())
    program.close()
    return np.concatenate([rows[0], rows[2]])


def transformers_logits(
    config: Mapping[str, Any], weights: Mapping[str, Floats], ids: Sequence[int]
) -> Floats:
    """Logits (T, V) by transformers in float32 with eager attention."""
    from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

    kinds = {
        "LlamaForCausalLM": (LlamaConfig, LlamaForCausalLM),
        "MistralForCausalLM": (MistralConfig, MistralForCausalLM),
    }
    config_class, model_class = kinds[config["architectures"][0]]
    skipped = ("architectures", "model_type", "torch_dtype")
    model = (
        model_class(
            config_class(**{k: v for k, v in config.items() if k not in skipped}, attn_implementation="eager")
        )
        .float()
        .eval()
    )
    state = {name: torch.from_numpy(values) for name, values in weights.items()}
    if config["tie_word_embeddings"]:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True)
    with torch.inference_mode():
        out: Floats = model(torch.tensor([list(ids)]), use_cache=False).logits[0].numpy()
    return out
