"""OLMo 3, EXAONE 4, Seed-OSS, ERNIE 4.5, Arcee and Nemotron."""

from __future__ import annotations

from typing import Any

from tests.engine.models.architectures import ROPE, SMALL, Case, Config, Tensors
from tests.engine.models.gguf_form import GgufForm

KINDS = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]
SLIDING: dict[str, Any] = {**SMALL, "num_hidden_layers": 4, "sliding_window": 9, "layer_types": KINDS}
YARN = {"rope_type": "yarn", "rope_theta": 700.0, "factor": 4.0, "original_max_position_embeddings": 128}
PLAIN = {"rope_type": "default", "rope_theta": 700.0}


def sliding_keys(config: Config) -> dict[str, Any]:
    """The window, and which layers have it."""
    return {
        "attention.sliding_window": config["sliding_window"],
        "attention.sliding_window_pattern": [kind == "sliding_attention" for kind in config["layer_types"]],
    }


def olmo_3_keys(config: Config) -> dict[str, Any]:
    """The same, and the scaling of the layers without a window."""
    rope = config[ROPE]["full_attention"]
    scaling = {
        "rope.scaling.type": "yarn", "rope.scaling.factor": rope["factor"],
        "rope.scaling.original_context_length": rope["original_max_position_embeddings"],
    }  # fmt: skip
    return sliding_keys(config) | {"rope.freq_base": rope["rope_theta"]} | scaling


MINISTRAL: dict[str, Any] = {
    **SMALL, "head_dim": 24,
    ROPE: {
        "rope_type": "yarn", "rope_theta": 700.0, "factor": 8.0, "original_max_position_embeddings": 16,
        "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
        "llama_4_scaling_beta": 0.4,
    },
}  # fmt: skip


def ministral_keys(config: Config) -> dict[str, Any]:
    """The scale of queries, and that of yarn."""
    return {
        "attention.temperature_scale": config[ROPE]["llama_4_scaling_beta"],
        "rope.scaling.yarn_log_multiplier": config[ROPE]["mscale_all_dim"],
    }


def as_published(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """The text model as a part of one for pictures, as the makers' folders have it."""
    inner = {key: value for key, value in config.items() if key != "architectures"}
    outer: Config = {
        "architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3", "text_config": inner,
    }  # fmt: skip
    return outer, {f"language_model.{name}": values for name, values in tensors.items()}


OLMO_3_EXAONE_4_CASES = (
    Case(
        "Ministral 3", "queries scaled by their positions", "ministral3", MINISTRAL,
        GgufForm("mistral3", interleaved=True, keys=ministral_keys),
    ),
    Case("Ministral 3", "", "ministral3", MINISTRAL, variant="with pictures", publish=as_published),
    Case(
        "Mistral Small 3", "", "mistral", {**SMALL, "sliding_window": None, "head_dim": 24},
        publish=as_published,
    ),
    Case(
        "OLMo 3", "OLMo 2 with windows in three of four layers, whose rope is not scaled", "olmo3",
        {**SLIDING, ROPE: {"full_attention": YARN, "sliding_attention": PLAIN}},
        GgufForm("olmo2", keys=olmo_3_keys),
        older={"rope_theta": 700.0, "rope_scaling": {key: YARN[key] for key in YARN if key != "rope_theta"}},
    ),
    Case("OLMo 3", "", "olmo3", {**SLIDING, "attention_bias": True, "sliding_window": 5}, variant="biases"),
    Case(
        "EXAONE 4", "norms after each half, qk norm, windows in three of four layers, no rope in the fourth",
        "exaone4", {**SLIDING, ROPE: PLAIN}, GgufForm("exaone4", keys=sliding_keys),
    ),
    Case(
        "EXAONE 4", "", "exaone4", {**SMALL, "sliding_window": None, "layer_types": ["full_attention"] * 3},
        GgufForm("exaone4"), variant="no windows",
    ),
    Case(
        "Seed-OSS", "biases of queries, keys and values", "seed_oss", {**SMALL, "head_dim": 24},
        GgufForm("seed_oss"),
    ),
    Case(
        "ERNIE 4.5", "interleaved rope", "ernie4_5", {**SMALL, "head_dim": 16},
        GgufForm("ernie4_5"),
    ),
    Case(
        "ERNIE 4.5", "", "ernie4_5",
        {**SMALL, "head_dim": 20, "use_bias": True, "tie_word_embeddings": False}, variant="biases",
    ),
    Case(
        "Arcee", "the square of relu in a plain feed-forward part", "arcee", SMALL,
        GgufForm("arcee", interleaved=True),
    ),
    Case(
        "Nemotron", "layer norms plus 1, rope on half of a head, the square of relu", "nemotron",
        {**SMALL, "norm_eps": 1e-5}, GgufForm(
            "nemotron", offset=1.0, keys=lambda config: {"attention.layer_norm_epsilon": config["norm_eps"]},
        ),
    ),
    Case(
        "Nemotron", "", "nemotron", {**SMALL, "attention_bias": True, "mlp_bias": True, "head_dim": 24},
        variant="biases",
    ),
)  # fmt: skip
