"""Tiny Gemma 4 models with their assistants, and what `transformers` makes of a pair."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.engine.models.architectures import Case, ids, transformers_model, write_checkpoint
from tests.engine.models.cases.gemma_3n_4 import (
    FULL,
    GEMMA_4,
    GEMMA_4_E,
    GEMMA_4_MIXTURE,
    SLIDING,
    gemma_4_keys,
    gemma_4_rope,
    gemma_4_tensors,
)
from tests.engine.models.gguf_form import GgufForm, write_gguf

Floats = npt.NDArray[np.float32]
VOCABULARY = 308
"""28 clusters of 11 tokens."""
LENGTHS = (2, 3, 9, 12, 40)
"""Tokens before the guesses: fewer than a window of 9, about as many, more."""
GUESSES = 3


@dataclass(frozen=True)
class Pair:
    """A main model and the settings of its assistant: those of the text config, and those around it."""

    main: Case
    text: Mapping[str, Any] = field(default_factory=dict)
    outer: Mapping[str, Any] = field(default_factory=dict)
    unified: bool = False


def _main(settings: Mapping[str, Any]) -> Case:
    own = {**settings, "vocab_size": VOCABULARY}
    return Case(
        "Gemma 4", "", "gemma4_text", own, GgufForm("gemma4", keys=gemma_4_keys, change=gemma_4_tensors)
    )


CLUSTERS = {"use_ordered_embeddings": True, "num_centroids": 28, "centroid_intermediate_top_k": 5}
PAIRS = {
    "E-series, clusters": Pair(_main(GEMMA_4_E), outer=CLUSTERS),
    "dense": Pair(_main({**GEMMA_4, "tie_word_embeddings": False}), {"final_logit_softcapping": 5.0}),
    "mixture, untied, unified": Pair(
        _main(GEMMA_4_MIXTURE),
        {"attention_k_eq_v": True, "num_global_key_value_heads": 1, "layer_types": [FULL, SLIDING, FULL]},
        {"tie_word_embeddings": False}, unified=True,
    ),
    "untied clusters": Pair(_main(GEMMA_4), outer={**CLUSTERS, "tie_word_embeddings": False}),
}  # fmt: skip
_TEXT: Mapping[str, Any] = {
    **GEMMA_4, "vocab_size": VOCABULARY, "layer_types": [SLIDING, SLIDING, SLIDING, FULL], "hidden_size": 48,
    "num_attention_heads": 2, "vocab_size_per_layer_input": 0, "final_logit_softcapping": None,
    "rope_parameters": gemma_4_rope(0.5),
}  # fmt: skip


def assistant_of(pair: Pair) -> Any:
    """The assistant in float32 with random weights, norms and clusters included."""
    import torch
    from transformers import (
        AutoConfig,
        Gemma4AssistantConfig,
        Gemma4AssistantForCausalLM,
        Gemma4UnifiedAssistantConfig,
        Gemma4UnifiedAssistantForCausalLM,
    )

    settings = {**_TEXT, **pair.text}
    layers = len(settings["layer_types"])
    text = AutoConfig.for_model(
        "gemma4_unified_text" if pair.unified else "gemma4_text",
        **settings | {"num_hidden_layers": layers, "num_kv_shared_layers": layers},
    )
    classes = (Gemma4UnifiedAssistantConfig, Gemma4UnifiedAssistantForCausalLM)
    make, kind = classes if pair.unified else (Gemma4AssistantConfig, Gemma4AssistantForCausalLM)
    torch.manual_seed(3)
    config = make(text_config=text, backbone_hidden_size=64, **pair.outer)
    config._attn_implementation = text._attn_implementation = "eager"
    model = kind(config).eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            random = torch.randn(parameter.shape, generator=generator)
            plain = 1 + 0.2 * random if "norm" in name else 1.5 * parameter.shape[-1] ** -0.5 * random
            parameter.copy_(plain)
        for name, buffer in model.named_buffers():
            if name.endswith("layer_scalar"):
                buffer.copy_(1 + 0.2 * torch.randn(buffer.shape, generator=generator))
            elif name.endswith("token_ordering"):
                buffer.copy_(torch.randperm(VOCABULARY, generator=generator))
    return model


def write_pair(pair: Pair, folder: Path) -> tuple[Path, Path]:
    """The folders of a main model and of its assistant."""
    main, assistant = folder / "main", folder / "main-assistant"
    write_checkpoint(pair.main, main)
    assistant_of(pair).save_pretrained(assistant)
    return main, assistant


def write_assistant_file(folder: Path, path: Path) -> Path:
    """An assistant's folder as GGUF."""
    from safetensors.numpy import load_file

    outer = json.loads((folder / "config.json").read_text("utf-8"))
    config = outer["text_config"]

    def keys(config: Any) -> Any:
        more = {"embedding_length_out": outer["backbone_hidden_size"], "nextn_predict_layers": len(
            config["layer_types"])}  # fmt: skip
        known = {name: value for name, value in gemma_4_keys(config).items() if value is not None}
        return known | more

    tensors = {
        name: values
        for name, values in load_file(folder / "model.safetensors").items()
        if "masked_embedding" not in name
    }
    ends = {f"nextn.{name}.weight": tensors.pop(f"{name}.weight") for name in
            ("pre_projection", "post_projection")}  # fmt: skip
    form = GgufForm("gemma4-assistant", keys=keys, change=gemma_4_tensors, alike=("gemma4",))
    return write_gguf(path, form, config, tensors, ends)


@functools.cache
def expected(name: str) -> dict[int, list[tuple[int, Floats, Floats]]]:
    """For each of `LENGTHS` the guesses: the token before, the logits (V,), the next state (F,). Each guess
    but the first follows the likeliest token of the one before. Clusters without a part are -inf.
    """
    import torch

    pair = PAIRS[name]
    main, assistant, found = transformers_model(pair.main), assistant_of(pair), {}
    with torch.inference_mode():
        for length in LENGTHS:
            tokens = ids(length)
            out = main(
                torch.tensor([tokens[:-1]]), use_cache=False, output_hidden_states=True,
                return_shared_kv_states=True,
            )  # fmt: skip
            state, token, guesses = out.hidden_states[-1][:, -1:], tokens[-1], []
            for _unused in range(GUESSES):
                embedded = main.get_input_embeddings()(torch.tensor([[token]]))
                made = assistant(
                    inputs_embeds=torch.cat([embedded, state], -1),
                    position_ids=torch.tensor([[length - 1]]), shared_kv_states=out.shared_kv_states,
                )  # fmt: skip
                logits, state = made.logits[0, 0].numpy().copy(), made.last_hidden_state
                if pair.outer.get("use_ordered_embeddings"):
                    logits[logits == logits.min()] = -np.inf  # transformers sets them 1 below the least
                guesses.append((token, logits, state[0, 0].numpy().copy()))
                token = int(logits.argmax())
            found[length] = guesses
    return found
