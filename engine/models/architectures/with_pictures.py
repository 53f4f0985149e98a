"""Models that also see pictures or hear sounds, of which the text model is run: an encoder and its connection
beside one of the other architectures, whose config.json is an object inside theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.architecture import Architecture
from engine.models.architectures import architecture_of
from engine.models.architectures.llama.llama import EMU_3
from engine.models.architectures.llama_variants.cosmos3 import named_as_made
from engine.models.config import ModelConfig
from engine.models.headers.decoder import hf_architecture
from engine.models.headers.keys import Keys
from engine.models.headers.rope_sections import usual_sections
from engine.models.names import TensorNames
from engine.tensors import RawTensor
from engine.words import _

TEXT_MODELS = {
    "LLaVAOneVision1_5_text": "Qwen3ForCausalLM", "aria_text": "AriaTextForCausalLM",
    "cohere2": "Cohere2ForCausalLM", "deepseek_ocr2_text": "DeepseekForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM", "deepseek_v3": "DeepseekV3ForCausalLM",
    "emu3_text_model": "LlamaForCausalLM", "exaone4": "Exaone4ForCausalLM", "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM", "glm4v_moe_text": "Glm4MoeForCausalLM", "glm4v_text": "Glm4ForCausalLM",
    "glm_moe_dsa": "GlmMoeDsaForCausalLM", "glm_ocr_text": "Glm4ForCausalLM", "gpt_oss": "GptOssForCausalLM",
    "granite": "GraniteForCausalLM", "granite4_vision_text": "GraniteForCausalLM",
    "granite_docling_text": "GraniteForCausalLM", "hunyuan_vl_text": "HunYuanDenseV1ForCausalLM",
    "hy_v4_vl_text": "HYV4ForCausalLM", "hyperclovax": "HyperCLOVAXForCausalLM",
    "internlm2": "InternLM2ForCausalLM", "internlm3": "InternLM3ForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM", "lfm2": "Lfm2ForCausalLM", "lfm2_moe": "Lfm2MoeForCausalLM",
    "lfm3": "Lfm3ForCausalLM", "llama": "LlamaForCausalLM", "minicpm": "MiniCPMForCausalLM",
    "minimax_m3_vl_text": "MiniMaxM3VLForCausalLM", "ministral3": "Ministral3ForCausalLM",
    "mistral": "MistralForCausalLM", "mistral4": "Mistral4ForCausalLM",
    "mixtral": "MixtralForCausalLM", "nemotron_h": "NemotronHForCausalLM", "opt": "OPTForCausalLM",
    "paddleocr_vl_text": "Ernie4_5ForCausalLM", "persimmon": "PersimmonForCausalLM",
    "phi3": "Phi3ForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen2_5_omni_text": "Qwen2ForCausalLM",
    "qwen2_5_vl_text": "Qwen2ForCausalLM", "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen2_vl_text": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM",
    "qwen3_5_text": "Qwen3_5ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM", "qwen3_omni_moe_text": "Qwen3MoeForCausalLM",
    "qwen3_vl_moe_text": "Qwen3MoeForCausalLM", "qwen3_vl_text": "Qwen3ForCausalLM",
    "smollm3": "SmolLM3ForCausalLM", "step3p5": "Step3p5ForCausalLM",
}  # fmt: skip
"""The `model_type` of a text model -> the class that runs it alone."""
WITH_PICTURES = {
    "AriaForConditionalGeneration": "aria_text", "AudioFlamingo3ForConditionalGeneration": "qwen2",
    "AyaVisionForConditionalGeneration": "cohere2", "BeeForConditionalGeneration": "qwen3",
    "Blip2ForConditionalGeneration": "opt", "Cohere2VisionForConditionalGeneration": "cohere2",
    "Cosmos3OmniForConditionalGeneration": "qwen3_vl_text", "DeepseekOCR2ForCausalLM": "deepseek_ocr2_text",
    "DeepseekOCRForCausalLM": "deepseek_ocr2_text",
    "DeepseekOcr2ForConditionalGeneration": "deepseek_ocr2_text",
    "DeepseekVLForConditionalGeneration": "llama", "DeepseekVLHybridForConditionalGeneration": "llama",
    "DeepseekVLV2ForCausalLM": "deepseek_v2", "DotsOCRForCausalLM": "qwen2",
    "Emu3ForConditionalGeneration": "emu3_text_model", "Exaone4_5_ForConditionalGeneration": "exaone4",
    "FastVlmForConditionalGeneration": "qwen2", "FunAsrNanoForConditionalGeneration": "qwen3",
    "FuyuForCausalLM": "persimmon", "Glm46VForConditionalGeneration": "glm4v_text",
    "Glm4vForConditionalGeneration": "glm4v_text", "Glm4vMoeForConditionalGeneration": "glm4v_moe_text",
    "Glm5vForConditionalGeneration": "glm_moe_dsa", "GlmAsrForConditionalGeneration": "llama",
    "GlmOcrForConditionalGeneration": "glm_ocr_text", "GotOcr2ForConditionalGeneration": "qwen2",
    "Granite4VisionForConditionalGeneration": "granite4_vision_text",
    "GraniteDoclingForConditionalGeneration": "granite_docling_text",
    "GraniteSpeechForConditionalGeneration": "granite",
    "GraniteSpeechPlusForConditionalGeneration": "granite", "H2OVLChatModel": "llama",
    "HCXVisionForCausalLM": "llama", "HCXVisionV2ForCausalLM": "hyperclovax",
    "HYV4VLForConditionalGeneration": "hy_v4_vl_text",
    "HunYuanVLForConditionalGeneration": "hunyuan_vl_text",
    "HyperCLOVAXVisionV2ForConditionalGeneration": "hyperclovax",
    "Idefics2ForConditionalGeneration": "mistral", "Idefics3ForConditionalGeneration": "llama",
    "InstructBlipForConditionalGeneration": "opt", "InstructBlipVideoForConditionalGeneration": "opt",
    "InternS1ForConditionalGeneration": "qwen3",
    "InternVLChatModel": "qwen2",
    "InternVLForConditionalGeneration": "qwen2", "JanusForConditionalGeneration": "llama",
    "KeyeForConditionalGeneration": "qwen3", "KeyeVL1_5ForConditionalGeneration": "qwen3",
    "KimiK25ForConditionalGeneration": "deepseek_v3", "KimiVLForConditionalGeneration": "deepseek_v3",
    "Kimi_K25ForConditionalGeneration": "deepseek_v3", "LLaVAOneVision1_5_ForConditionalGeneration": "qwen3",
    "Lfm2VlForConditionalGeneration": "lfm2", "Lfm3VlForConditionalGeneration": "lfm3",
    "LightOnOCRForConditionalGeneration": "qwen3", "LightOnOcrForConditionalGeneration": "qwen3",
    "Llama_Nemotron_Nano_VL": "llama", "LlavaForConditionalGeneration": "llama",
    "LlavaLlamaForCausalLM": "llama", "LlavaMistralForCausalLM": "mistral",
    "LlavaNextForConditionalGeneration": "llama", "LlavaNextVideoForConditionalGeneration": "llama",
    "LlavaOnevisionForConditionalGeneration": "qwen2", "LlavaQwen2ForCausalLM": "qwen2",
    "LlavaQwenForCausalLM": "qwen2", "MantisForConditionalGeneration": "llama", "MiniCPMO": "qwen2",
    "MiniCPMOcrForConditionalGeneration": "qwen3_5_text", "MiniCPMV": "llama",
    "MiniCPMV4_6ForConditionalGeneration": "qwen3_5_text",
    "MiniCPMV4_7ForConditionalGeneration": "qwen3_5_text",
    "MiniMaxM3SparseForConditionalGeneration": "minimax_m3_vl_text",
    "Mistral3ForConditionalGeneration": "mistral",
    "MossTranscribeDiarizeForConditionalGeneration": "qwen3", "MultiModalityCausalLM": "llama",
    "MusicFlamingoForConditionalGeneration": "qwen2", "NVLM_D": "qwen2",
    "NemotronH_Nano_Omni_Reasoning_V3": "nemotron_h", "NemotronH_Nano_VL_V2": "nemotron_h",
    "NemotronH_Omni_Reasoning_V3": "nemotron_h", "OmniASRForConditionalGeneration": "llama",
    "OpenCUAForConditionalGeneration": "qwen2", "Ovis": "llama", "Ovis2ForConditionalGeneration": "qwen2",
    "Ovis2_5": "qwen3", "PaddleOCRVLForConditionalGeneration": "paddleocr_vl_text",
    "PaliGemmaForConditionalGeneration": "gemma", "PerceptionLMForConditionalGeneration": "llama",
    "Phi3VForCausalLM": "phi3", "Phi4ForCausalLMV": "phi3", "QianfanOCRForConditionalGeneration": "qwen3",
    "Qwen2AudioForConditionalGeneration": "qwen2", "Qwen2VLForConditionalGeneration": "qwen2_vl_text",
    "Qwen2_5OmniForConditionalGeneration": "qwen2_5_omni_text", "Qwen2_5OmniModel": "qwen2_5_omni_text",
    "Qwen2_5OmniThinkerForConditionalGeneration": "qwen2_5_omni_text",
    "Qwen2_5_VLForConditionalGeneration": "qwen2_5_vl_text", "Qwen3ASRForConditionalGeneration": "qwen3",
    "Qwen3OmniMoeForConditionalGeneration": "qwen3_omni_moe_text",
    "Qwen3OmniMoeThinkerForConditionalGeneration": "qwen3_omni_moe_text",
    "Qwen3VLForConditionalGeneration": "qwen3_vl_text",
    "Qwen3VLMoeForConditionalGeneration": "qwen3_vl_moe_text", "RForConditionalGeneration": "qwen3",
    "Sarashina2VisionForCausalLM": "llama", "SkyworkR1VChatModel": "qwen2",
    "SmolVLMForConditionalGeneration": "llama", "Step3p7ForConditionalGeneration": "step3p5",
    "StepVLForConditionalGeneration": "qwen3", "TarsierForConditionalGeneration": "qwen2",
    "VibeVoiceAsrForConditionalGeneration": "qwen2", "VideoLlama3ForConditionalGeneration": "qwen2",
    "VideoLlavaForConditionalGeneration": "llama", "VipLlavaForConditionalGeneration": "llama",
    "VoxtralForConditionalGeneration": "llama",
}  # fmt: skip
"""The class of the whole -> the `model_type` of its text model where config.json does not say."""
_TIED = {
    "AyaVisionForConditionalGeneration", "Blip2ForConditionalGeneration",
    "Cohere2VisionForConditionalGeneration", "FunAsrNanoForConditionalGeneration",
    "GotOcr2ForConditionalGeneration", "GraniteDoclingForConditionalGeneration",
    "GraniteSpeechForConditionalGeneration", "GraniteSpeechPlusForConditionalGeneration",
    "HunYuanVLForConditionalGeneration", "InstructBlipForConditionalGeneration",
    "InstructBlipVideoForConditionalGeneration", "InternVLForConditionalGeneration",
    "Lfm2VlForConditionalGeneration", "Lfm3VlForConditionalGeneration",
    "LightOnOcrForConditionalGeneration", "MossTranscribeDiarizeForConditionalGeneration",
    "Ovis2ForConditionalGeneration",
    "PaddleOCRVLForConditionalGeneration", "PaliGemmaForConditionalGeneration",
    "Qwen3ASRForConditionalGeneration",
}  # fmt: skip
"""Those whose tables are tied where config.json does not say."""
_INTERLEAVED = {"paddleocr_vl_text": False, "hy_v4_vl_text": True}
"""Text models whose rope is interleaved or not, unlike that of the class that runs them alone."""
_SECTIONS: Mapping[str, tuple[tuple[int, int, int], bool]] = {
    "qwen2_vl_text": ((16, 24, 24), False), "qwen2_5_vl_text": ((16, 24, 24), False),
    "glm4v_text": ((8, 12, 12), False), "glm4v_moe_text": ((8, 12, 12), False),
    "qwen3_vl_text": ((24, 20, 20), True), "qwen3_vl_moe_text": ((24, 20, 20), True),
}  # fmt: skip
"""Text models with sections of rotary positions: the usual ones, and whether they are interleaved."""
_TIED_ALONE = ("qwen2_5_omni_text", "qwen3_vl_moe_text")
"""Text models that say true where it does not hold for the whole."""
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "FunAsrNanoForConditionalGeneration": {
        "hidden_size": 1024, "num_hidden_layers": 28, "intermediate_size": 3072, "num_attention_heads": 16,
        "num_key_value_heads": 8, "max_position_embeddings": 40960,
    },
    "GlmAsrForConditionalGeneration": {
        "num_key_value_heads": 4, "rms_norm_eps": 1e-5, "max_position_embeddings": 8192,
    },
    "OmniASRForConditionalGeneration": {
        "vocab_size": 11984, "hidden_size": 4096, "intermediate_size": 2816, "num_hidden_layers": 12,
        "num_attention_heads": 8, "rms_norm_eps": 1e-5, "max_position_embeddings": 8192,
    },
    "PaliGemmaForConditionalGeneration": {
        "hidden_size": 2048, "num_hidden_layers": 18, "intermediate_size": 16384, "num_attention_heads": 8,
        "num_key_value_heads": 1, "vocab_size": 257152,
    },
    "VoxtralForConditionalGeneration": {
        "num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5, "rope_theta": 1e8,
        "max_position_embeddings": 131072,
    },
    "aria_text": {"vocab_size": 32000},
    "deepseek_ocr2_text": {
        "vocab_size": 102400, "intermediate_size": 11008, "n_routed_experts": 64, "n_shared_experts": 2,
    },
    "emu3_text_model": EMU_3,
    "glm4v_moe_text": {"attention_bias": True, "max_position_embeddings": 65536},
    "glm4v_text": {"rms_norm_eps": 1e-5, "max_position_embeddings": 32768},
    "glm_ocr_text": {
        "attention_bias": False, "rms_norm_eps": 1e-5, "num_key_value_heads": 8, "partial_rotary_factor": 1.0,
    },
    "granite_docling_text": {
        "num_key_value_heads": 4, "rms_norm_eps": 1e-5, "embedding_multiplier": 12.0, "logits_scaling": 4.0,
        "residual_multiplier": 0.263, "attention_multiplier": 0.015625, "max_position_embeddings": 32768,
    },
    "hy_v4_vl_text": {"moe_intermediate_size": 2048, "q_lora_rank": 2048, "index_n_heads": 32},
    "llama": {"intermediate_size": 11008, "vocab_size": 32000},
    "ministral3": {"num_hidden_layers": 34, "intermediate_size": 14336, "vocab_size": 131072},
    "mistral": {"intermediate_size": 14336, "vocab_size": 32000},
    "mistral4": {"num_hidden_layers": 36, "intermediate_size": 12288, "vocab_size": 131072},
    "opt": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12},
    "persimmon": {"num_hidden_layers": 36, "num_attention_heads": 64},
    "qwen2": {"intermediate_size": 22016, "vocab_size": 151936},
    "qwen2_5_omni_text": {"num_key_value_heads": 4, "rope_theta": 1e6},
    "qwen2_5_vl_text": {"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1e6},
    "qwen2_vl_text": {"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1e6},
    "qwen3": {"intermediate_size": 22016, "vocab_size": 151936},
    "qwen3_omni_moe_text": {"norm_topk_prob": True, "rope_theta": 1e6},
    "qwen3_vl_moe_text": {
        "norm_topk_prob": True, "num_key_value_heads": 16, "num_experts_per_tok": 4,
        "moe_intermediate_size": 1408, "max_position_embeddings": 128000, "rope_theta": 5e5,
    },
    "qwen3_vl_text": {"max_position_embeddings": 128000, "rope_theta": 5e5},
}  # fmt: skip
"""What folders leave out because it is the default of a class, or of all with a text model of this kind,
where that of the text model alone is another or it has none.
"""
_COMMON = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
_OF_THE_WHOLE = ("_name_or_path", "torch_dtype", "dtype", "quantization_config")
_THINKER = "thinker_config"
"""The part of Qwen's models that also speak which writes text."""
PARTS = ("text_config", "llm_config", "language_config")
"""Where config.json has the text model's keys."""
_PREFIXES = (
    "", "language_model.", "-model.language_model.", "model.language_model.", "-model.text_model.",
    "text_model.", "thinker.", "llm.", "language.",
    "-thinker.model.language_model.", "-",
)  # fmt: skip

_Adapt = Callable[[TensorNames, Mapping[str, RawTensor]], TensorNames]


def text_architecture(config: Mapping[str, Any], name: str) -> Architecture:
    """The architecture of the text model of a folder whose class is `name`.

    Raises `UnsupportedModel` for an unknown text model, and `BadCheckpoint`.
    """
    keys = Keys(config, "config.json").inner(_THINKER)
    inner = text_keys(keys)
    kind = inner.text("model_type", WITH_PICTURES[name]) if inner is not keys else _flat_kind(name, keys)
    if kind == "deepseek_v2" and not inner.flag("use_mla", True):
        kind = "deepseek_ocr2_text"
    if kind not in TEXT_MODELS:
        raise UnsupportedModel(
            _(
                "The model's text part is of the type {kind!r}, which this version of the program "
                "cannot run in a {name}. Choose another model.",
                kind=kind,
                name=name,
            )
        )
    found = architecture_of("safetensors", TEXT_MODELS[kind])
    assert found is not None
    adapt = _ADAPTED.get(kind, found.adapt)
    return replace(found, from_hf=partial(_from_hf, found, kind), prefixes=_PREFIXES, adapt=adapt)


def _flat_kind(name: str, keys: Keys) -> str:
    """The `model_type` of a text model whose keys stand beside those of the whole: of each version of
    MiniCPM-V and MiniCPM-o another one. The first versions do not say which they are.
    """
    if name not in ("MiniCPMV", "MiniCPMO"):
        return WITH_PICTURES[name]
    stated = keys.raw("version")
    if stated is None and name == "MiniCPMV":
        return "minicpm" if keys.has("scale_emb") else "llama"
    version = "2.6" if stated is None else str(stated)
    kinds = {"2.0": "minicpm", "2": "minicpm", "2.5": "llama", "2.6": "qwen2", "4.0": "llama", "4": "llama"}
    return {**kinds, "4.5": "qwen3"}.get(version, f"{name} {version}")


def text_keys(keys: Keys) -> Keys:
    """The keys of the text model; those of the whole where it has no object of its own."""
    keys = keys.inner(_THINKER)
    return next((inner for name in PARTS if (inner := keys.table(name)) is not None), keys)


def _from_hf(found: Architecture, kind: str, keys: Keys) -> ModelConfig:
    keys = keys.inner(_THINKER)
    inner = text_keys(keys)
    outer_tied, inner_tied = (each.raw("tie_word_embeddings") for each in (keys, inner))
    for tied in (outer_tied, inner_tied):
        if tied is not None and type(tied) is not bool:
            raise BadCheckpoint(
                _(
                    "config.json: tie_word_embeddings is {tied!r}, but true or false was expected; "
                    "the file is damaged.",
                    tied=tied,
                )
            )
    tied, name = outer_tied or (inner_tied and kind not in _TIED_ALONE), hf_architecture(keys.source)
    if outer_tied is None and inner_tied is None:
        tied = name in _TIED
    whole = {name: keys.raw(name) for name in _OF_THE_WHOLE if keys.has(name)}
    inner = inner.over(_COMMON | dict(_DEFAULTS.get(kind, {})) | dict(_DEFAULTS.get(name, {})))
    own = Keys({**inner.source, **whole}, "config.json").replaced("tie_word_embeddings", bool(tied))
    if kind in ("glm4v_text", "glm_ocr_text") and own.raw("head_dim") is None:
        width, heads = own.integer("hidden_size", 1, 1 << 20), own.integer("num_attention_heads", 1, 1 << 14)
        own = own.replaced("head_dim", width // heads)
    assert found.from_hf is not None
    config = found.from_hf(own.replaced("architectures", [TEXT_MODELS[kind]]))
    if kind in _SECTIONS:
        usual, in_turn = _SECTIONS[kind]
        config = replace(config, rope=usual_sections(config.rope, usual, interleaved=in_turn))
    if kind in _INTERLEAVED and config.rope is not None:
        config = replace(config, rope=replace(config.rope, interleaved=_INTERLEAVED[kind]))
    if kind == "hy_v4_vl_text" and config.latent is not None and config.indexer is not None:
        return replace(
            config, latent=replace(config.latent, norm_eps=config.norm_eps),
            indexer=replace(config.indexer, interleaved=True),
        )  # fmt: skip
    return replace(config, logit_scale=1.0) if kind == "cohere2" else config


def _stacks(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """Stacks of experts may be transposed, as the authors of Qwen3-VL have them."""
    stack = tensors.get(names.layer.format(0) + names.expert_gate_up)
    table = tensors.get(names.embed + ".weight")
    if stack is None or table is None or len(stack.shape) != 3:
        return names
    return replace(names, stacks_transposed=stack.shape[1] == table.shape[-1])


_ADAPTED: Mapping[str, _Adapt] = {"qwen3_vl_moe_text": _stacks, "qwen3_vl_text": named_as_made}
"""What suits the names to a file, by the `model_type` of the text model."""
