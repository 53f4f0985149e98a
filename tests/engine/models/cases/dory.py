"""Dory: as transformers saves it, and as its makers publish it."""

from __future__ import annotations

import re
from typing import Any

from tests.engine.models.architectures import ABSENT, ROPE, SMALL, Case, Config, Tensors

FULL, SLIDING = "full_attention", "sliding_attention"
PLAIN = {"rope_type": "default", "rope_theta": 700.0}
DORY: dict[str, Any] = {
    **SMALL, "num_hidden_layers": 5, "head_dim": 24, "n_input_layers": 1, "n_output_layers": 2,
    "sliding_window": 9, "initializer_range": 0.9, "ngpt_alpha_init": 0.4,
    "layer_types": [SLIDING, FULL, SLIDING, SLIDING, FULL],
    ROPE: {FULL: {"rope_type": "default", "rope_theta": 9000.0}, SLIDING: PLAIN},
}  # fmt: skip
YARN = {
    "rope_type": "yarn", "rope_theta": 9000.0, "factor": 4.0, "original_max_position_embeddings": 32,
}  # fmt: skip
_PART = re.compile(r"layers\.(\d+)\.(self_attn|mlp|lambda_1|lambda_2)\b")
_NAMES = {"lambda_1": "attn_alpha", "lambda_2": "mlp_alpha"}


def published_dory(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """A number for each half of a layer, and the makers' names."""

    def named(match: re.Match[str]) -> str:
        number = 2 * int(match[1]) + (match[2] in ("mlp", "lambda_2"))
        return f"layers.{number}.{_NAMES.get(match[2], 'mixer')}"

    return config, {_PART.sub(named, name): values for name, values in tensors.items()}


def counted_in_pairs(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """Layers counted, and tensors named, as transformers has them in memory."""
    config = {key: value for key, value in config.items() if key != "rms_norm_eps"}
    config["layer_types"] = config["layer_types"][::2]
    for key in ("num_hidden_layers", "n_input_layers", "n_recurrent_layers", "n_output_layers"):
        config[key] //= 2
    names = {"backbone.embeddings.": "model.embed_tokens.", "backbone.": "model.", ".g_proj.": ".gate_proj."}
    out: Tensors = {}
    for name, values in tensors.items():
        for old, new in names.items():
            name = name.replace(old, new)
        out[name] = values
    return config, out


DORY_CASES = (
    Case(
        "Dory", "states of length 1, factors of rows, and layers that run several times", "dory", DORY,
        scale=4.0,
        publish=published_dory, older={ROPE: DORY[ROPE]},
    ),
    Case(
        "Dory", "", "dory",
        {
            **DORY, "n_recurrent_loops": 3, "n_input_layers": 0, "n_output_layers": 0, "attention_bias": True,
            "mlp_bias": True, "tie_word_embeddings": True, "hidden_act": "gelu",
            ROPE: {FULL: YARN, SLIDING: PLAIN},
        }, variant="biases, tied, three runs of all layers, yarn", scale=4.0,
        older={ROPE: {FULL: YARN, SLIDING: PLAIN}},
    ),
    Case(
        "Dory", "", "dory",
        {
            **{key: value for key, value in DORY.items() if key != "layer_types"}, "n_recurrent_loops": 1,
            "recurrent_kv_cache_mode": "last_loop", ROPE: None,
        }, variant="one run, layers in pairs", publish=counted_in_pairs,
        scale=4.0,
        older={ROPE: ABSENT, "layer_types": ABSENT, "n_recurrent_layers": ABSENT},
    ),
)  # fmt: skip
