"""One file for each architecture, and the table of them all.

A file lies in the room that says what sets its models apart from Llama; one that holds both dense models and
mixtures lies with the dense ones.

To add one, write a file like `llama/llama.py` and name it in `_ROOMS`. The file holds two functions that
read config.json and the GGUF metadata into a `ModelConfig` (`engine.models.headers.decoder` reads what is
common), the names of the tensors where they differ from `HF` and `GGUF` of `engine.models.names`, and an
`Architecture`. The parts are built by `engine.models.building.decoder`, so a new file is enough unless the
arithmetic is new. The test is one `Case` in `tests/engine/models/cases`, which compares logits with those of
transformers.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from engine.models.architecture import Architecture

__all__ = ["ARCHITECTURES", "architecture_of"]

_ROOMS = {
    "llama": {
        "llama": "LLAMA LLAMA_EMBEDDING", "qwen": "QWEN_2 QWEN_3 QWEN_3_MIXTURE QWEN_2_MIXTURE MELLUM",
        "granite": "GRANITE GRANITE_MIXTURE GRANITE_SLIDING HYPER_CLOVA", "internlm2": "INTERNLM2",
        "minicpm": "MINICPM", "seed_oss": "SEED_OSS",
        "ernie4_5": "ERNIE_4_5 ERNIE_4_5_MIXTURE ERNIE_4_5_PICTURED", "mistral3": "MISTRAL_3",
        "hunyuan": "HUNYUAN_MIXTURE HUNYUAN", "mllama": "LLAMA_3_2_VISION", "internlm3": "INTERNLM3",
        "exaone": "EXAONE_3", "helium": "HELIUM", "qwen1": "QWEN", "pangu": "PANGU", "cogvlm": "COG_VLM",
    },
    "llama_variants": {
        "phi": "PHI PHI_2 PHI_4_MULTIMODAL", "smollm3": "SMOLLM3", "stablelm": "STABLELM", "arcee": "ARCEE",
        "apertus": "APERTUS APERTUS_1_5", "olmo": "OLMO", "cwm": "CWM", "jais2": "JAIS_2",
        "bitnet": "BITNET", "baichuan": "BAICHUAN BAICHUAN_M1", "orion": "ORION XVERSE",
        "nemotron_nas": "NEMOTRON_NAS", "refact": "REFACT", "openelm": "OPEN_ELM",
        "cosmos3": "COSMOS_3_EDGE", "diffllama": "DIFF_LLAMA", "chameleon": "CHAMELEON",
        "doge": "DOGE", "telechat": "TELE_CHAT", "renamed": "RENAMED INTERNLM K2_HORIZON LILLE",
    },
    "dense": {
        "gemma": "GEMMA GEMMA_2 GEMMA_3 VAULT_GEMMA GEMMA_EMBEDDING", "gemma3n": "GEMMA_3N",
        "gemma4": "GEMMA_4", "olmo2": "OLMO2 OLMO3", "glm": "GLM", "cohere": "COHERE", "exaone4": "EXAONE_4",
        "nemotron": "NEMOTRON", "nanochat": "NANOCHAT", "plamo3": "PLAMO_3", "muse_glimmer": "MUSE_GLIMMER",
        "cohere_compass": "COHERE_COMPASS", "plamo": "PLAMO", "molmo2": "MOLMO_2 MOLMO",
        "hrm_text": "HRM_TEXT", "nanbeige": "NANBEIGE OURO", "spark": "SPARK_X_2_5", "chatglm": "CHAT_GLM",
        "talkie": "TALKIE", "dory": "DORY", "iquest_loop": "IQUEST_LOOP",
    },
    "gpt": {
        "starcoder2": "STARCODER2", "gpt2": "GPT2 GPT_1", "falcon": "FALCON",
        "gpt_neox": "GPT_NEOX PERSIMMON GPT_NEOX_JAPANESE", "opt": "OPT BIO_GPT XGLM",
        "gptj": "GPT_J CODEGEN", "gpt_bigcode": "GPT_BIGCODE", "bloom": "BLOOM", "mpt": "MPT",
        "gpt_neo": "GPT_NEO", "codeshell": "CODE_SHELL", "jais": "JAIS", "ctrl": "CTRL",
    },
    "mixtures": {
        "mixtral": "MIXTRAL", "olmoe": "OLMOE FLEX_OLMO", "glm4_moe": "GLM_4_MIXTURE DOTS_1 SOLAR_OPEN",
        "minimax_m2": "MINIMAX_M2", "phimoe": "PHI_MIXTURE", "bailing": "BAILING BAILING_2 SARVAM",
        "hunyuan_3": "HUNYUAN_3", "deepseek_1": "DEEPSEEK_1 DEEPSEEK_OCR", "dbrx": "DBRX", "aria": "ARIA",
        "jetmoe": "JET_MOE", "grok": "GROK", "arctic": "ARCTIC", "grove_moe": "GROVE_MOE", "zaya": "ZAYA",
        "klear": "KLEAR",
    },
    "windowed_mixtures": {
        "gpt_oss": "GPT_OSS", "llama4": "LLAMA_4", "exaone_moe": "EXAONE_MIXTURE", "afmoe": "TRINITY",
        "smallthinker": "SMALL_THINKER", "cohere2_moe": "COHERE_2_MIXTURE", "mimo_v2": "MIMO_V2_FLASH",
        "step3_5": "STEP_3_5", "laguna": "LAGUNA", "flint": "FLINT", "kolibri": "KOLIBRI_1",
        "minimax_m3": "MINIMAX_M3", "muse_spark": "MUSE_SPARK", "beam": "BEAM", "maple": "MAPLE",
        "inkling": "INKLING", "inkling2": "INKLING_2 INKLING_2_MINI",
    },
    "latent": {
        "minicpm3": "MINICPM_3", "deepseek": "DEEPSEEK_2 DEEPSEEK_3 GLM_4_FLASH YOUTU",
        "mistral4": "MISTRAL_4", "a_x_k1": "A_X_K1", "deepseek_sparse": "DEEPSEEK_3_2 GLM_5",
        "a_x_k2": "A_X_K2", "plm": "PLM", "mistral_large4": "MISTRAL_LARGE_4", "deepseek_v4": "DEEPSEEK_4",
        "hunyuan_4": "HUNYUAN_4", "dots3": "DOTS_3", "xing4": "XING_4", "longcat": "LONG_CAT LONG_CAT_LITE",
    },
    "recurrent": {
        "lfm2": "LFM2 LFM2_MIXTURE LFM3", "qwen3_5": "QWEN_3_5 QWEN_3_5_MIXTURE QWEN_3_NEXT",
        "granite_hybrid": "GRANITE_4", "nemotron_h": "NEMOTRON_H", "falcon_h1": "FALCON_H1",
        "mamba2": "MAMBA_2 BAMBA", "mamba": "MAMBA JAMBA", "kimi_linear": "KIMI_LINEAR",
        "kimi_k3": "KIMI_K3", "olmo_hybrid": "OLMO_HYBRID", "rwkv7": "RWKV_7 ARWKV_7",
        "lara_mini": "LARA_MINI", "bailing_hybrid": "BAILING_HYBRID", "ling_linear": "LING_LINEAR",
        "minimax": "MINIMAX", "qwen4": "QWEN_4", "glm5_next": "GLM_5_NEXT", "zamba": "ZAMBA_2 ZAMBA",
        "recurrent_gemma": "RECURRENT_GEMMA", "plamo2": "PLAMO_2", "rwkv6": "RWKV_6 RWKV_6_CONVERTED",
        "rwkv4": "RWKV_4", "xlstm": "X_LSTM", "gear": "GEAR",
    },
    "encoders": {
        "modernbert": "MODERN_BERT_DECODER MODERN_BERT NOMIC_BERT EURO_BERT NOMIC_MIXTURE",
        "bert": "BERT ROBERTA JINA_BERT_2 JINA_3", "bert_variants": "MP_NET DISTIL_BERT ELECTRA",
        "gte": "GTE",
    },
}  # fmt: skip
"""The files of each room, and the architectures in each file. A file is imported when it is looked into:
there are many, and a model needs one.
"""
_FILES = {f"{room}.{file}": held for room, files in _ROOMS.items() for file, held in files.items()}

ARCHITECTURES: tuple[Architecture, ...]
"""All of them; made on first use."""


def architecture_of(format: str, name: str) -> Architecture | None:
    """The architecture that a checkpoint of this `format` names; None if there is none of this name.

    Files whose names `name` begins with are looked into first, such as `qwen` for "qwen3moe".
    """
    plain = name.lower().replace("-", "").replace("_", "")
    for file in sorted(
        _FILES, key=lambda file: not plain.startswith(file.partition(".")[2].replace("_", ""))
    ):
        for each in _held(file):
            if name in (each.gguf if format == "gguf" else each.hf):
                return each
    return None


def _held(file: str) -> list[Architecture]:
    module = import_module(f"{__name__}.{file}")
    return [getattr(module, each) for each in _FILES[file].split()]


def __getattr__(name: str) -> Any:
    if name != "ARCHITECTURES":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, tuple(each for file in _FILES for each in _held(file)))
