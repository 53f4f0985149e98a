"""LongCat-Flash (arXiv 2509.01322): pairs of layers with latent attention, and experts, some of which give
back their input, past the second of them; LongCat-Flash-Lite (arXiv 2601.21204): embeddings of n-grams, too.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.building.decoder import Builder
from engine.models.config import ModelConfig
from engine.models.config.experts import Experts
from engine.models.config.latent import LatentAttention
from engine.models.headers.decoder import MAX_LAYERS, refuse_other_than_silu
from engine.models.headers.keys import Keys
from engine.models.headers.latent import hf_latent_decoder
from engine.models.headers.ngrams import hf_ngram_tables
from engine.models.headers.refusals import unsupported
from engine.models.layers.whole import Stack
from engine.models.names import HF, LatentNames, TensorNames, with_experts
from engine.tensors import RawTensor

_MOST = 1 << 10


def _half(number: int) -> TensorNames:
    """The names of one layer of a pair."""
    at, mlp = f"self_attn.{number}.", f"mlps.{number}."
    return replace(
        with_experts(HF, "mlp.experts"), router="mlp.router.classifier",
        correction="mlp.router.e_score_correction_bias",
        attention_norm=f"input_layernorm.{number}", mlp_norm=f"post_attention_layernorm.{number}",
        query="", output=at + "o_proj", gate=mlp + "gate_proj", up=mlp + "up_proj", down=mlp + "down_proj",
        latent=LatentNames(
            at + "q_a_proj", at + "q_a_layernorm", at + "q_b_proj", at + "kv_a_proj_with_mqa",
            at + "kv_a_layernorm", at + "kv_b_proj", at + "embed_q", at + "unembed_out",
        ),
    )  # fmt: skip


HF_NAMES = replace(_half(0), odd=_half(1))
_NGRAMS = "model.ngram_embeddings."
_WORDS = _NGRAMS + "word_embeddings"
NGRAM_NAMES = replace(
    HF_NAMES, ngram_table=_NGRAMS + "embedders.{}", ngram_projection=_NGRAMS + "post_projs.{}"
)  # fmt: skip


def from_hf(keys: Keys) -> ModelConfig:
    """`LongcatFlashForCausalLM`."""
    refuse_other_than_silu(keys)
    width = keys.integer("hidden_size", 1, 1 << 20, 6144)
    own = {
        "vocab_size": 131_072, "hidden_size": width, "num_attention_heads": 64, "ffn_hidden_size": 12_288,
        "rope_theta": 1e7,
    }  # fmt: skip
    keys = keys.over(own).renamed(intermediate_size="ffn_hidden_size").without("num_key_value_heads")
    layers = 2 * keys.integer("num_layers", 1, MAX_LAYERS // 2, 28)
    shape = hf_latent_decoder(
        keys.replaced("num_hidden_layers", layers), (512, 1536), (128, 64, 128), rms_norm_eps=1e-5,
        max_position_embeddings=131_072,
    )  # fmt: skip
    latent: LatentAttention = shape["latent"]
    if not latent.query_rank:
        raise unsupported("q_lora_rank", None)
    scaled = replace(latent, scales=((width / latent.query_rank) ** 0.5, (width / latent.rank) ** 0.5))
    return ModelConfig(**shape | {"latent": scaled}, experts=_experts(keys, layers))


def ngram_from_hf(keys: Keys) -> ModelConfig:
    """`LongcatFlashNgramForCausalLM`; its class has other sizes than LongCat-Flash's."""
    own = {
        "hidden_size": 3072, "num_layers": 14, "num_attention_heads": 32, "ffn_hidden_size": 6144,
        "max_position_embeddings": 327_680, "rope_theta": 5e6, "n_routed_experts": 256,
        "zero_expert_num": 128, "expert_ffn_hidden_size": 1024,
    }  # fmt: skip
    config = from_hf(keys.over(own))
    return replace(config, ngrams=hf_ngram_tables(keys, config.width, config.vocab_size))


def _experts(keys: Keys, layers: int) -> Experts:
    idle = keys.integer("zero_expert_num", 0, _MOST, 256)
    return Experts(
        keys.integer("n_routed_experts", 1, _MOST, 512) + idle, keys.integer("moe_topk", 1, _MOST, 12),
        keys.integer("expert_ffn_hidden_size", 1, 1 << 22, 2048), False, frozenset(range(0, layers, 2)),
        scale=keys.number("routed_scaling_factor", 0.0, 1e6, 6.0), corrected=True,
        router_bias=keys.flag("router_bias", False), idle=idle, apart=True,
    )  # fmt: skip


def adapted(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """mlx-lm has the table of tokens beside those of n-grams."""
    return replace(names, embed=_WORDS) if _WORDS + ".weight" in tensors else names


def _stack(builder: Builder) -> Generator[int, None, Stack]:
    from engine.models.layers.residual.shortcut import pairs

    return pairs(builder)


LONG_CAT = Architecture((), ("LongcatFlashForCausalLM",), from_hf, None, HF_NAMES, None, layers=_stack)
LONG_CAT_LITE = Architecture(
    (), ("LongcatFlashNgramForCausalLM",), ngram_from_hf, None, NGRAM_NAMES, None, adapt=adapted,
    layers=_stack,
)  # fmt: skip
