"""Models of the sizes that people use, as their headers alone: every architecture, and matrices of any
type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from engine.backends.base import Weight
from engine.models.architectures import ARCHITECTURES
from engine.models.building.source import WHOLE, View
from engine.models.headers.keys import Keys
from engine.models.layers.parts import Linear
from engine.models.proof.random_tensors import BLOCKS, builder
from engine.tensors import Floats
from engine.weights.checkpoint import Checkpoint

TypeOf = Callable[[str], str]
"""The type of a matrix by its name."""
_USUAL: Mapping[str, Any] = {
    "rms_norm_eps": 1e-5, "rope_theta": 1e6, "max_position_embeddings": 8192, "hidden_act": "silu",
    "tie_word_embeddings": False,
}  # fmt: skip


def _usual(
    name: str, width: int, heads: int, kv_heads: int, ffn: int, layers: int, vocabulary: int, **more: Any
) -> dict[str, Any]:
    return {
        **_USUAL, "architectures": [name], "hidden_size": width, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "intermediate_size": ffn, "num_hidden_layers": layers,
        "vocab_size": vocabulary, **more,
    }  # fmt: skip


_GEMMA: Mapping[str, Any] = {
    "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_act": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 256,
}  # fmt: skip

_SLIDING, _FULL = "sliding_attention", "full_attention"
_ROPES: Mapping[str, Any] = {
    _FULL: {"rope_type": "default", "rope_theta": 1e6}, _SLIDING: {"rope_type": "default", "rope_theta": 1e4},
}  # fmt: skip
_GEMMA_4: Mapping[str, Any] = {
    "head_dim": 256, "global_head_dim": 512, "hidden_activation": "gelu_pytorch_tanh",
    "sliding_window": 512, "tie_word_embeddings": True, "final_logit_softcapping": 30.0,
    "layer_types": [_SLIDING, _SLIDING, _SLIDING, _SLIDING, _FULL] * 2,
    "rope_parameters": {
        **_ROPES, _FULL: {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25}
    },
}  # fmt: skip
_LATENT: Mapping[str, Any] = {
    "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}  # fmt: skip
_MIXTURE: Mapping[str, Any] = {
    "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1, "moe_intermediate_size": 2048,
    "first_k_dense_replace": 3, "routed_scaling_factor": 2.5, "n_group": 8, "topk_group": 4,
    "norm_topk_prob": True,
}  # fmt: skip

REAL: Mapping[str, dict[str, Any]] = {
    "SmolLM2 135M": _usual("LlamaForCausalLM", 576, 9, 3, 1536, 8, 49152, tie_word_embeddings=True),
    "Llama 3.1 8B": _usual("LlamaForCausalLM", 4096, 32, 8, 14336, 8, 128256),
    "Llama 3.3 70B": _usual("LlamaForCausalLM", 8192, 64, 8, 28672, 8, 128256),
    "Mistral 7B": _usual("MistralForCausalLM", 4096, 32, 8, 14336, 8, 32000, sliding_window=4096),
    "Mixtral 8x7B": _usual("MixtralForCausalLM", 4096, 32, 8, 14336, 8, 32000, num_local_experts=8,
    num_experts_per_tok=2),
    "Qwen 2.5 0.5B": _usual("Qwen2ForCausalLM", 896, 14, 2, 4864, 8, 151936, tie_word_embeddings=True),
    "Qwen 3 8B": _usual("Qwen3ForCausalLM", 4096, 32, 8, 12288, 8, 151936, head_dim=128),
    "Qwen 3 30B A3B": _usual(
        "Qwen3MoeForCausalLM", 2048, 32, 4, 6144, 8, 151936, head_dim=128, num_experts=128,
        num_experts_per_tok=8,
        moe_intermediate_size=768, norm_topk_prob=True,
    ),
    "Gemma 2B": _usual("GemmaForCausalLM", 2048, 8, 1, 16384, 8, 256000, **_GEMMA),
    "Gemma 2 9B": _usual("Gemma2ForCausalLM", 3584, 16, 8, 14336, 8, 256000, **_GEMMA, sliding_window=4096),
    "Gemma 3 4B": _usual(
        "Gemma3ForCausalLM", 2560, 8, 4, 10240, 8, 262208, **_GEMMA, sliding_window=1024,
        sliding_window_pattern=6,
        rope_local_base_freq=10000.0,
    ),
    "GPT-OSS 20B": _usual("GptOssForCausalLM", 2880, 64, 8, 2880, 8, 201088, head_dim=64,
    num_local_experts=32, sliding_window=128),
    "Phi 3.5 mini": _usual("Phi3ForCausalLM", 3072, 32, 32, 8192, 8, 32064, sliding_window=2047),
    "SmolLM3 3B": _usual("SmolLM3ForCausalLM", 2048, 16, 4, 11008, 8, 128256, no_rope_layer_interval=4),
    "OLMo 2 7B": _usual("Olmo2ForCausalLM", 4096, 32, 32, 11008, 8, 100352),
    "Granite 3.3 8B": _usual("GraniteForCausalLM", 4096, 32, 8, 12800, 8, 49159, embedding_multiplier=12.0,
    residual_multiplier=0.22),
    "GLM-4 9B": _usual("Glm4ForCausalLM", 4096, 32, 2, 13696, 8, 151552, head_dim=128,
    partial_rotary_factor=0.5),
    "Command-R 35B": _usual("CohereForCausalLM", 8192, 64, 64, 22528, 8, 256000),
    "Command-R+ 104B": _usual("CohereForCausalLM", 12288, 96, 8, 33792, 8, 256000, use_qk_norm=True),
    "Command-R7B": _usual("Cohere2ForCausalLM", 4096, 32, 8, 14336, 8, 256000, sliding_window=4096,
    sliding_window_pattern=4),
    "StarCoder2 3B": _usual(
        "Starcoder2ForCausalLM", 3072, 24, 2, 12288, 8, 49152, hidden_act="gelu_pytorch_tanh",
        sliding_window=4096
    ),
    "GPT-2": {
        "architectures": ["GPT2LMHeadModel"], "n_embd": 768, "n_head": 12, "n_layer": 8, "vocab_size": 50257,
        "activation_function": "gelu_new",
    },
    "InternLM 2 7B": _usual("InternLM2ForCausalLM", 4096, 32, 8, 14336, 8, 92544, bias=False),
    "StableLM 2 1.6B": _usual("StableLmForCausalLM", 2048, 32, 32, 5632, 8, 100352,
    partial_rotary_factor=0.25, use_qkv_bias=True),
    "StableLM 2 12B": _usual(
        "StableLmForCausalLM", 5120, 32, 8, 13824, 8, 100352, partial_rotary_factor=0.25, qk_layernorm=True,
        use_parallel_residual=True
    ),
    "Gemma 3n E2B": _usual(
        "Gemma3nForCausalLM", 2048, 8, 2, 8192, 10, 262400, head_dim=256, tie_word_embeddings=True,
        hidden_activation="gelu_pytorch_tanh", sliding_window=512, hidden_size_per_layer_input=256,
        vocab_size_per_layer_input=262144, num_kv_shared_layers=4, laurel_rank=64, altup_num_inputs=4,
        altup_active_idx=0, altup_correct_scale=True, final_logit_softcapping=30.0, rope_parameters=_ROPES,
        activation_sparsity_pattern=[0.95] * 4 + [0.0] * 6, layer_types=_GEMMA_4["layer_types"],
    ),
    "Gemma 4 E2B": _usual(
        "Gemma4ForCausalLM", 1536, 8, 1, 6144, 10, 262144, **{**_GEMMA_4, "tie_word_embeddings": True},
        hidden_size_per_layer_input=256, vocab_size_per_layer_input=262144, num_kv_shared_layers=5,
        use_double_wide_mlp=True,
    ),
    "Gemma 4 26B A4B": _usual(
        "Gemma4ForCausalLM", 2816, 16, 8, 2112, 10, 262144, **_GEMMA_4, hidden_size_per_layer_input=0,
        enable_moe_block=True, num_experts=128, top_k_experts=8, moe_intermediate_size=704,
        attention_k_eq_v=True, num_global_key_value_heads=2,
    ),
    "Falcon Mamba 7B": {
        "architectures": ["FalconMambaForCausalLM"], "hidden_size": 4096, "intermediate_size": 8192,
        "state_size": 16, "conv_kernel": 4, "time_step_rank": 256, "num_hidden_layers": 4,
        "vocab_size": 65024, "hidden_act": "silu", "tie_word_embeddings": False,
    },
    "Kimi Linear 48B": _usual(
        "KimiLinearForCausalLM", 2304, 32, 32, 9216, 4, 163840, kv_lora_rank=512, qk_nope_head_dim=128,
        qk_rope_head_dim=64, v_head_dim=128, num_experts=256, moe_intermediate_size=1024,
        linear_attn_config={
            "head_dim": 128, "num_heads": 32, "short_conv_kernel_size": 4, "full_attn_layers": [4],
            "kda_layers": [1, 2, 3],
        },
    ),
    "DeepSeek V3.2": _usual(
        "DeepseekV32ForCausalLM", 7168, 128, 128, 18432, 6, 129280, **_LATENT, **_MIXTURE, index_n_heads=64,
        index_head_dim=128, index_topk=2048,
    ),
    "MiniMax-M3": _usual(
        "MiniMaxM3VLForCausalLM", 6144, 64, 4, 3072, 6, 200064, head_dim=128, num_local_experts=128,
        num_experts_per_tok=4, shared_intermediate_size=3072, dense_intermediate_size=12288,
        layer_types=["full_attention"] * 3 + ["minimax_m3_sparse"] * 3,
        mlp_layer_types=["dense"] * 3 + ["sparse"] * 3, partial_rotary_factor=0.5,
    ),
    "GLM-4.7-Flash": _usual(
        "Glm4MoeLiteForCausalLM", 2048, 20, 20, 10240, 4, 154880,
        **{**_LATENT, "q_lora_rank": 768, "qk_nope_head_dim": 192, "v_head_dim": 256},
        **{**_MIXTURE, "n_routed_experts": 64, "num_experts_per_tok": 4, "moe_intermediate_size": 1536,
           "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1},
    ),
    "MiniCPM 3 4B": _usual(
        "MiniCPM3ForCausalLM", 2560, 40, 40, 6400, 4, 73448,
        **{**_LATENT, "kv_lora_rank": 256, "q_lora_rank": 768, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32,
           "v_head_dim": 64},
        scale_emb=12, scale_depth=1.4, dim_model_base=256,
    ),
    "MPT 7B": {
        "architectures": ["MPTForCausalLM"], "d_model": 4096, "n_heads": 32, "n_layers": 4,
        "vocab_size": 50432, "max_seq_len": 2048, "expansion_ratio": 4, "no_bias": True,
        "attn_config": {"alibi": True},
    },
    "Falcon RW 1B": {
        "architectures": ["FalconForCausalLM"], "hidden_size": 2048, "num_attention_heads": 32,
        "num_hidden_layers": 4, "vocab_size": 50304, "alibi": True, "bias": True, "multi_query": False,
        "new_decoder_architecture": False, "parallel_attn": False, "layer_norm_epsilon": 1e-5,
    },
    "Phi-3.5-MoE": _usual(
        "PhimoeForCausalLM", 4096, 32, 8, 6400, 4, 32064, num_local_experts=16, num_experts_per_tok=2,
        router_jitter_noise=0.01, attention_bias=True, lm_head_bias=True,
    ),
    "Qwen 3.5 2B": _usual(
        "Qwen3_5ForCausalLM", 2048, 8, 2, 6144, 8, 248320, head_dim=256, tie_word_embeddings=True,
        layer_types=["linear_attention", "linear_attention", "linear_attention", "full_attention"] * 2,
        linear_num_key_heads=16, linear_num_value_heads=16, linear_key_head_dim=128,
        linear_value_head_dim=128, linear_conv_kernel_dim=4, partial_rotary_factor=0.25,
        rope_parameters={"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
    ),
    "LFM2 1.2B": _usual(
        "Lfm2ForCausalLM", 2048, 32, 8, 12288, 8, 65536, conv_L_cache=3, conv_bias=False, norm_eps=1e-5,
        block_auto_adjust_ff_dim=True, block_multiple_of=256, block_ffn_dim_multiplier=1.0,
        tie_word_embeddings=True, layer_types=["conv", "conv", "full_attention", "conv"] * 2,
    ),
    "Granite 4 H Micro": _usual(
        "GraniteMoeHybridForCausalLM", 2048, 32, 8, 8192, 8, 100352, num_local_experts=0,
        num_experts_per_tok=0, shared_intermediate_size=8192, mamba_n_heads=64, mamba_d_head=64,
        mamba_d_state=128, mamba_n_groups=1, mamba_d_conv=4, mamba_expand=2, mamba_conv_bias=True,
        mamba_proj_bias=False, embedding_multiplier=12.0, residual_multiplier=0.22, logits_scaling=10.0,
        attention_multiplier=0.0078125, position_embedding_type="nope", tie_word_embeddings=True,
        layer_types=["mamba", "mamba", "mamba", "attention"] * 2,
    ),
    "Inkling": _usual(
        "InklingForCausalLM", 6144, 64, 8, 24576, 6, 201024, head_dim=128, moe_intermediate_size=3072,
        mlp_layer_types=["dense"] * 2 + ["sparse"] * 4,
    ),
    "Inkling 2": _usual(
        "Inkling2ForCausalLM", 4608, 48, 8, 2304, 12, 201024, head_dim=128, swa_num_attention_heads=48,
        n_routed_experts=384,
    ),
    "Inkling 2 Mini": _usual(
        "Inkling2LoopForCausalLM", 2304, 24, 8, 1152, 12, 201024, head_dim=128, swa_num_attention_heads=24,
        n_routed_experts=128, loop_layer_index_start=6, loop_layer_index_end=12, loop_num_passes=2,
    ),
    "ZAYA1 8B": _usual(
        "ZayaForCausalLM", 2048, 8, 2, 2048, 4, 262272, head_dim=128, num_experts=16,
        moe_intermediate_size=2048, tie_word_embeddings=True,
    ),
    "DeepSeek V4": _usual(
        "DeepseekV4ForCausalLM", 4096, 64, 1, 2048, 8, 129280, head_dim=512, q_lora_rank=1024, o_groups=8,
        o_lora_rank=1024, n_routed_experts=256, num_experts_per_tok=6, n_shared_experts=1,
        rope_parameters={
            kind: {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.125}
            for kind in ("main", "compress")
        },
    ),
    "GLM-5 next": _usual(
        "Glm5NextForConditionalGeneration", 4096, 64, 64, 12288, 8, 154880, q_lora_rank=1536,
        moe_intermediate_size=2048, n_routed_experts=288, num_experts_per_tok=8, n_shared_experts=1,
        routed_scaling_factor=2.5, norm_topk_prob=True,
    ),
    "RWKV-7 1.5B": _usual(
        "RWKV7ForCausalLM", 2048, 32, 32, 8192, 8, 65536, head_dim=64, norm_eps=1e-5, hidden_act="sqrelu",
        decay_low_rank_dim=96, a_low_rank_dim=96, v_low_rank_dim=64, gate_low_rank_dim=256,
    ),
    "RWKV-4 7B": _usual("RwkvForCausalLM", 4096, 32, 32, 16384, 8, 50277, context_length=1024),
    "MiniCPM 2B": _usual("MiniCPMForCausalLM", 2304, 36, 36, 5760, 8, 122753, scale_emb=12, scale_depth=1.4,
    dim_model_base=256),
}  # fmt: skip
"""config.json by what people call the model, as far as it matters here; of eight layers, which are as
different as more.
"""


@dataclass(frozen=True)
class Header:
    """A `RawTensor` that only tells what it is; it has no numbers."""

    name: str
    type: str
    shape: tuple[int, ...]

    @property
    def data(self) -> npt.NDArray[np.uint8]:
        """None."""
        raise AssertionError("a header has no numbers")

    @property
    def nbytes(self) -> int:
        """None."""
        return 0

    def dequantise(self) -> Floats:
        """Zeros for float32, which models may change as they read it; else none."""
        assert self.type == "F32", "a header has no numbers"
        return np.zeros(self.shape, np.float32)

    def part(self, index: int) -> Header:
        """See `RawTensor`."""
        return replace(self, shape=self.shape[1:])

    def rows(self, start: int, stop: int) -> Header:
        """See `RawTensor`."""
        return replace(self, shape=(stop - start, *self.shape[1:]))

    def take(self, indices: npt.ArrayLike) -> Header:
        """See `RawTensor`."""
        return replace(self, shape=(np.asarray(indices).size, *self.shape[1:]))

    @property
    def order(self) -> None:
        """See `PermutedTensor`."""
        return None

    def pieces(self) -> list[Header]:
        """See `PermutedTensor`: as a random tensor of the type has them."""
        make = builder(self.type)
        assert make is not None
        found = cast(Any, make(np.random.default_rng(0), 32, self.shape[1])).pieces()
        return [Header(self.name, piece.type, (self.shape[0], piece.shape[1])) for piece in found]


@dataclass
class _Seen:
    """Stands for a matrix."""

    shape: tuple[int, ...]
    nbytes: int = 0


class _Names:
    """A `WeightSource` that notes what a weight layout asks for."""

    def __init__(self, type_of: TypeOf) -> None:
        self.linears: dict[str, Linear] = {}
        self.tensors: dict[str, Header] = {}
        self._type_of = type_of

    def has(self, name: str) -> bool:
        """Fused matrices, in weight layouts that have them, and nothing else that need not be there."""
        return any(fused in name for fused in ("qkv_proj", "wqkv", "gate_up_proj"))

    def matrix(self, name: str, rows: int, columns: int, view: View = WHOLE) -> Weight:
        """See `WeightSource`."""
        self.tensors[name] = Header(name, self._type_of(name), view.shape(rows, columns))
        return _Seen((rows, columns))

    def vector(self, name: str, *shape: int) -> Floats:
        """See `WeightSource`."""
        self.tensors[name] = Header(name, "F32", shape)
        return np.zeros(shape, np.float32)

    def lengths(self, name: str, rows: int, columns: int) -> Floats:
        """See `WeightSource`."""
        return np.ones(rows, np.float32)

    def constant(self, values: Floats) -> Weight:
        """See `WeightSource`."""
        return _Seen(values.shape)


def checkpoint(config: dict[str, Any], type_of: TypeOf) -> Checkpoint:
    """What an open folder with such a config.json would be, without its numbers."""
    name = config["architectures"][0]
    weight_layout = next(weight_layout for weight_layout in ARCHITECTURES if name in weight_layout.hf)
    parsed, tensors = weight_layout.from_hf(Keys(config, "config.json")), dict[str, Header]()
    for _ in range(2):  # some names depend on types
        source = _Names(type_of)
        for _ in weight_layout.build(source, parsed, weight_layout.names("safetensors", tensors)):
            pass
        tensors = source.tensors
    found = SimpleNamespace(
        format="safetensors", metadata={"config": config}, tensors=tensors, path=Path(name)
    )
    return cast(Checkpoint, found)


def all_of(kind: str) -> TypeOf:
    """Every matrix of one type, but, of types that only folders have, tables and routers."""

    def type_of(name: str) -> str:
        plain = any(part in name for part in ("embed", "lm_head", "router", "mlp.gate."))
        return "F16" if plain and kind not in BLOCKS else kind

    return type_of


def mixed(usual: str, **others: str) -> TypeOf:
    """Every matrix of one type, but those that have one of these words in their names."""
    return lambda name: next((kind for word, kind in others.items() if word in name), usual)
