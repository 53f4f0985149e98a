"""Tiny random encoders that `transformers` creates, saves and runs, also as GGUF."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.engine.models.architectures import Case, Config, Floats, Tensors, _spread, ids, transformers_config
from tests.engine.models.gguf_form import GgufForm, write_gguf
from tests.tiny import write_tokenizer

LENGTH = 300
"""Tokens, on two pages."""
SMALL: Config = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
    "vocab_size": 307, "max_position_embeddings": 320, "pad_token_id": 1, "bos_token_id": 0,
    "eos_token_id": 2,
}  # fmt: skip
_UNUSED = ("pooler.", "embeddings.position_ids")


def _used(config: Config, tensors: Tensors) -> Tensors:
    return {name: values for name, values in tensors.items() if not name.startswith(_UNUSED)}


def _without_spare_positions(config: Config, tensors: Tensors) -> Tensors:
    config["max_position_embeddings"] -= 2
    name = "embeddings.position_embeddings.weight"
    return {**_used(config, tensors), name: tensors[name][2:]}


def masked(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """As the makers' file with the head for masked words, and the first names of norms."""
    names = {name: "bert." + name for name in tensors}
    for name in tensors:
        if "LayerNorm" in name:
            names[name] = names[name].replace("weight", "gamma").replace("bias", "beta")
    config = {**config, "architectures": ["BertForMaskedLM"]}
    return config, {names[name]: values for name, values in tensors.items()}


def modern_keys(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """The keys of the makers' config.json, and the names with a head for masked words."""
    config = {key: value for key, value in config.items() if key not in ("rope_parameters", "layer_types")}
    config |= {
        "architectures": ["ModernBertForMaskedLM"], "global_attn_every_n_layers": 3,
        "global_rope_theta": 900.0, "local_rope_theta": 70.0,
    }  # fmt: skip
    return config, {"model." + name: values for name, values in tensors.items()}


def nomic_keys(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """The keys of the makers' config.json."""
    own = {
        "n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads",
        "n_inner": "intermediate_size", "n_positions": "max_position_embeddings",
    }  # fmt: skip
    published = {name: config[key] for name, key in own.items()} | {
        "architectures": ["NomicBertModel"], "model_type": "nomic_bert", "activation_function": "swiglu",
        "layer_norm_epsilon": config["layer_norm_eps"], "vocab_size": config["vocab_size"],
        "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False,
        "type_vocab_size": 2, "prenorm": False, "causal": False, "moe_every_n_layers": 0,
        "use_rms_norm": None, "parallel_block": False, "max_trained_positions": 2048,
    }  # fmt: skip
    return published, tensors


def jina_3_makers(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """The makers' own config.json, and their names of matrices that have adapters beside them."""
    rope = config["rope_parameters"]
    published = {key: value for key, value in config.items() if key != "rope_parameters"} | {
        "architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta", "rotary_emb_base": 900.0,
        "position_embedding_type": "rotary", "lora_adaptations": ["separation", "text-matching"],
    }  # fmt: skip
    assert rope["rope_theta"] == published["rotary_emb_base"]
    renamed = Tensors()
    for name, values in tensors.items():
        name, at = "roberta." + name, ".parametrizations.weight."
        if values.ndim == 1:
            renamed[name] = values
            continue
        base = name.removesuffix(".weight") + at
        renamed |= {base + "original": values, base + "0.lora_A": np.ones((2, 4, values.shape[1]), "f4")}
        renamed[base + "0.lora_B"] = np.ones((2, values.shape[0], 4), "f4")
    return published, renamed


def gte_makers(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """The keys of `NewModel`, whose kind "ntk" of rope is a larger base with slower frequencies."""
    published = {key: value for key, value in config.items() if key != "rope_parameters"} | {
        "architectures": ["NewModel"], "model_type": "new", "layer_norm_type": "layer_norm",
        "position_embedding_type": "rope", "rope_theta": _NTK_BASE, "logn_attention_scale": False,
        "rope_scaling": {"type": "ntk", "factor": _NTK},
    }  # fmt: skip
    return published, {"new." + name: values for name, values in tensors.items()}


def _prefixed(architecture: str, prefix: str) -> Any:
    """What publishes a folder as one that was saved with a head: its class, and names behind `prefix`."""

    def publish(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
        return {**config, "architectures": [architecture]}, {
            prefix + name: values for name, values in tensors.items()
        }

    return publish


def _modern_gguf(config: Config) -> Config:
    return {
        "attention.sliding_window": config["local_attention"], "attention.sliding_window_pattern": 3,
        "attention.layer_norm_epsilon": config["norm_eps"], "rope.freq_base": 900.0,
        "rope.freq_base_swa": 70.0, "attention.causal": False,
    }  # fmt: skip


def _unprefixed(config: Config, tensors: Tensors) -> Tensors:
    return {name.removeprefix("model."): values for name, values in tensors.items()}


_MODERN: Config = {
    **SMALL, "local_attention": 14, "cls_token_id": 0, "sep_token_id": 2,
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 900.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 70.0},
    },
}  # fmt: skip
_GEMMA: Config = {
    **SMALL, "num_hidden_layers": 7, "num_key_value_heads": 1, "head_dim": 16, "sliding_window": 10,
    "use_bidirectional_attention": True, "query_pre_attn_scalar": 16,
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 900.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 70.0},
    },
}  # fmt: skip
_NTK, _NTK_BASE = 8.0, 900.0
_GTE: Config = {
    **SMALL,
    "rope_parameters": {
        "rope_type": "linear", "rope_theta": _NTK * _NTK_BASE,
        "factor": _NTK ** (2 * SMALL["num_attention_heads"] / SMALL["hidden_size"]),
    },
}  # fmt: skip
_JINA_3: Config = {
    **SMALL, "max_position_embeddings": 322, "rope_parameters": {"rope_type": "default", "rope_theta": 900.0},
}  # fmt: skip
_DISTIL: Config = {**SMALL, "dim": 64, "hidden_dim": 96, "n_layers": 4, "n_heads": 4}
_NOT_CAUSAL = {"attention.causal": False}
_ONE_TYPE = {**_NOT_CAUSAL, "tokenizer.ggml.token_type_count": 1}
TYPED = {**_NOT_CAUSAL, "tokenizer.ggml.token_type_count": 2}


def as_llama(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """EuroBERT as NVIDIA names the same model."""
    own = {"architectures": ["LlamaBidirectionalModel"], "model_type": "llama_bidirec", "pooling": "avg"}
    return config | own, tensors


ENCODERS = (
    Case("BERT", "", "bert", SMALL, GgufForm("bert", keys=lambda c: TYPED, change=_used)),
    Case("BERT", "", "bert", SMALL, variant="with a head and the first names", publish=masked),
    Case(
        "RoBERTa", "", "roberta", {**SMALL, "max_position_embeddings": 322},
        GgufForm("bert", keys=lambda c: TYPED, change=_without_spare_positions),
    ),
    Case("XLM-RoBERTa", "", "xlm-roberta", {**SMALL, "type_vocab_size": 1, "max_position_embeddings": 322}),
    Case(
        "ModernBERT", "", "modernbert", _MODERN,
        GgufForm("modern-bert", keys=_modern_gguf, change=_unprefixed), publish=modern_keys,
    ),
    Case("ModernBERT", "", "modernbert", _MODERN, variant="saved by transformers 5"),
    Case(
        "Nomic BERT", "", "nomic_bert", SMALL,
        GgufForm("nomic-bert", keys=lambda c: {
            **TYPED, "attention.layer_norm_epsilon": c["layer_norm_epsilon"],
            "feed_forward_length": c["n_inner"], "rope.freq_base": 1000.0,
        }, change=_used), publish=nomic_keys,
    ),
    Case("Nomic BERT", "", "nomic_bert", SMALL, variant="saved by transformers 5"),
    Case(
        "EmbeddingGemma", "", "gemma3_text", _GEMMA,
        GgufForm("gemma-embedding", offset=1.0, keys=lambda c: {
            "attention.sliding_window": c["sliding_window"], "rope.freq_base": 900.0,
            "rope.freq_base_swa": 70.0,
        }),
    ),
    Case(
        "EuroBERT", "", "eurobert", {**SMALL, "num_key_value_heads": 2, "mask_token_id": 3},
        GgufForm("eurobert", keys=lambda c: _NOT_CAUSAL),
    ),
    Case(
        "Llama, for embedding", "", "eurobert",
        {**SMALL, "num_key_value_heads": 2, "mask_token_id": 3, "attention_bias": True},
        GgufForm("llama-embed", interleaved=True, keys=lambda c: _NOT_CAUSAL), publish=as_llama,
    ),
    Case("MPNet", "", "mpnet", {**SMALL, "max_position_embeddings": 322}),
    Case(
        "MPNet", "", "mpnet", {**SMALL, "max_position_embeddings": 322}, variant="with a head",
        publish=_prefixed("MPNetForMaskedLM", "mpnet."),
    ),
    Case("GTE", "", "gte", _GTE),
    Case("GTE", "", "gte", {**_GTE, "type_vocab_size": 0}, variant="by its makers", publish=gte_makers),
    Case(
        "Jina v3", "", "jina_embeddings_v3", _JINA_3,
        GgufForm("jina-bert-v3", keys=lambda c: {**_ONE_TYPE, "rope.freq_base": 900.0}, change=_used),
    ),
    Case("Jina v3", "", "jina_embeddings_v3", _JINA_3, variant="by its makers", publish=jina_3_makers),
    Case(
        "DistilBERT", "", "distilbert", _DISTIL, GgufForm("bert", keys=lambda c: {
            **TYPED, "attention.layer_norm_epsilon": 1e-12, "feed_forward_length": c["hidden_dim"],
        }),
    ),
    Case("ELECTRA", "", "electra", {**SMALL, "embedding_size": 32}),
    Case(
        "ELECTRA", "", "electra", {**SMALL, "embedding_size": 64}, variant="as wide as its embeddings",
        publish=_prefixed("ElectraForPreTraining", "electra."),
    ),
    Case("Qwen 3, saved without a head", "", "qwen3", {**SMALL, "num_key_value_heads": 2, "head_dim": 16}),
    Case("Mistral, saved without a head", "", "mistral", {**SMALL, "num_key_value_heads": 2}),
)  # fmt: skip
BY_NAME = {case.name: case for case in ENCODERS}


def encoder(case: Case) -> Any:
    """A model without a head and with random weights, norms and biases included."""
    import torch
    from transformers import AutoModel

    torch.manual_seed(1)
    model = AutoModel.from_config(transformers_config(case), attn_implementation="eager", dtype=torch.float32)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            random = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(_spread(case, name, parameter, random))
    return model.eval()


def expected_states(case: Case, length: int = LENGTH) -> Floats:
    """The last hidden states (length, E) by transformers."""
    import torch

    with torch.inference_mode():
        out: Floats = encoder(case)(torch.tensor([ids(length)])).last_hidden_state[0].numpy()
    return out


def write_encoder(case: Case, folder: Path) -> Path:
    """Write the case as a folder with a tokenizer. Returns `folder`."""
    from safetensors.numpy import load_file, save_file
    from transformers.utils import logging

    logging.disable_progress_bar()  # it would leave a thread behind
    encoder(case).save_pretrained(folder)
    config: Config = json.loads((folder / "config.json").read_text("utf-8"))
    published, renamed = case.publish(config, load_file(folder / "model.safetensors"))
    save_file(renamed, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(published), "utf-8")
    write_tokenizer(folder)
    return folder


def write_encoder_gguf(case: Case, folder: Path, path: Path, more: Tensors | None = None) -> Path:
    """Convert the folder to GGUF in F32 as llama.cpp's converter does. Returns `path`."""
    from safetensors.numpy import load_file

    assert case.gguf is not None
    config = json.loads((folder / "config.json").read_text("utf-8"))
    return write_gguf(path, case.gguf, config, load_file(folder / "model.safetensors"), more)


def jina_config(later: bool) -> Config:
    """config.json of Jina BERT v2 as its makers publish it, of the first files or the `later` ones."""
    code = "jinaai/jina-bert-v2-qk-post-norm" if later else "jinaai/jina-bert-implementation"
    return {
        **SMALL, "architectures": ["JinaBertForMaskedLM"], "model_type": "bert", "hidden_act": "gelu",
        "auto_map": {"AutoModel": f"{code}--modeling_bert.JinaBertModel"}, "feed_forward_type": "geglu",
        "position_embedding_type": "alibi", "emb_pooler": "mean", "layer_norm_eps": 1e-12,
        "type_vocab_size": 2, "num_attention_heads": 6, "hidden_size": 96,
    }  # fmt: skip


def jina_tensors(later: bool) -> Tensors:
    """Random tensors under the makers' names."""
    random = np.random.default_rng(5)
    width, inner, made = 96, 96, Tensors()

    def matrix(name: str, rows: int, columns: int, bias: bool = True) -> None:
        made[name + ".weight"] = (1.5 * columns**-0.5 * random.standard_normal((rows, columns))).astype("f4")
        if bias:
            made[name + ".bias"] = (0.3 * random.standard_normal(rows)).astype("f4")

    def norm(name: str) -> None:
        made[name + ".weight"] = (1 + 0.2 * random.standard_normal(width)).astype("f4")
        made[name + ".bias"] = (0.3 * random.standard_normal(width)).astype("f4")

    matrix("embeddings.word_embeddings", 307, width, bias=False)
    matrix("embeddings.token_type_embeddings", 2, width, bias=False)
    norm("embeddings.LayerNorm")
    for layer in range(SMALL["num_hidden_layers"]):
        at = f"encoder.layer.{layer}."
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            matrix(f"{at}attention.{part}", width, width)
        norm(at + "attention.output.LayerNorm")
        if later:
            for name in ("attention.self.layer_norm_q", "attention.self.layer_norm_k"):
                norm(at + name)
            norm(at + "layer_norm_1")
            norm(at + "layer_norm_2")
        else:
            norm(at + "mlp.layernorm")
        matrix(at + ("mlp.up_gated_layer" if later else "mlp.gated_layers"), 2 * inner, width, bias=False)
        matrix(at + ("mlp.down_layer" if later else "mlp.wo"), width, inner)
    return made


def jina_states(tensors: Tensors, tokens: list[int], later: bool) -> Floats:
    """The last hidden states (T, E) in float64, by the formulas of arXiv 2310.19923."""
    import torch
    from torch.nn import functional

    weights = {name: torch.from_numpy(values).double() for name, values in tensors.items()}
    heads, width, inner = 6, 96, 96

    def linear(x: Any, name: str) -> Any:
        return functional.linear(x, weights[name + ".weight"], weights.get(name + ".bias"))

    def norm(x: Any, name: str) -> Any:
        return functional.layer_norm(x, (width,), weights[name + ".weight"], weights[name + ".bias"], 1e-12)

    x = weights["embeddings.word_embeddings.weight"][tokens]
    x = norm(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    places = torch.arange(len(tokens))
    # Six heads: the slopes of four, and every other one of the first four of eight.
    slopes = torch.tensor([2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3]).double()
    bias = -slopes[:, None, None] * (places[:, None] - places[None, :]).abs()
    for layer in range(SMALL["num_hidden_layers"]):
        at = f"encoder.layer.{layer}."
        q, k, v = (linear(x, f"{at}attention.self.{name}") for name in ("query", "key", "value"))
        if later:
            q, k = norm(q, at + "attention.self.layer_norm_q"), norm(k, at + "attention.self.layer_norm_k")
        q, k, v = (part.reshape(len(tokens), heads, -1).transpose(0, 1) for part in (q, k, v))
        scores = q @ k.transpose(1, 2) * (width // heads) ** -0.5 + bias
        mixed = (scores.softmax(-1) @ v).transpose(0, 1).reshape(len(tokens), width)
        attended = norm(linear(mixed, at + "attention.output.dense") + x, at + "attention.output.LayerNorm")
        x = norm(x + attended, at + "layer_norm_1") if later else attended
        both = linear(x, at + ("mlp.up_gated_layer" if later else "mlp.gated_layers"))
        first, second = both[:, :inner], both[:, inner:]
        gated = first * functional.gelu(second) if later else functional.gelu(first) * second
        fed = linear(gated, at + ("mlp.down_layer" if later else "mlp.wo"))
        x = norm(x + fed, at + ("layer_norm_2" if later else "mlp.layernorm"))
    found: Floats = x.float().numpy()
    return found
