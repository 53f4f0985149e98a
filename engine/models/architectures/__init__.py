"""One file for each architecture, and the table of them all.

To add one, write a file like `llama.py` and add a line to `ARCHITECTURES`. The file holds two functions that
read config.json and the GGUF metadata into a `ModelConfig` (`engine.models.headers.decoder` reads what is
common), the names of the tensors where they differ from `HF` and `GGUF` of `engine.models.names`, and an
`Architecture`. The parts are built by `engine.models.building.decoder`, so a new file is enough unless the
arithmetic is new. The test is one `Case` in `tests/engine/models/cases`, which compares logits with those of
transformers.
"""

from __future__ import annotations

from engine.models.architecture import Architecture
from engine.models.architectures.a_x_k1 import A_X_K1
from engine.models.architectures.a_x_k2 import A_X_K2
from engine.models.architectures.afmoe import TRINITY
from engine.models.architectures.apertus import APERTUS, APERTUS_1_5
from engine.models.architectures.arcee import ARCEE
from engine.models.architectures.arctic import ARCTIC
from engine.models.architectures.aria import ARIA
from engine.models.architectures.baichuan import BAICHUAN
from engine.models.architectures.bailing import BAILING, BAILING_2, SARVAM
from engine.models.architectures.bailing_hybrid import BAILING_HYBRID
from engine.models.architectures.beam import BEAM
from engine.models.architectures.bert import BERT, JINA_3, JINA_BERT_2, ROBERTA
from engine.models.architectures.bert_variants import DISTIL_BERT, ELECTRA, MP_NET
from engine.models.architectures.bitnet import BITNET
from engine.models.architectures.bloom import BLOOM
from engine.models.architectures.chameleon import CHAMELEON
from engine.models.architectures.chatglm import CHAT_GLM
from engine.models.architectures.codeshell import CODE_SHELL
from engine.models.architectures.cogvlm import COG_VLM
from engine.models.architectures.cohere import COHERE
from engine.models.architectures.cohere2_moe import COHERE_2_MIXTURE
from engine.models.architectures.cohere_compass import COHERE_COMPASS
from engine.models.architectures.cosmos3 import COSMOS_3_EDGE
from engine.models.architectures.ctrl import CTRL
from engine.models.architectures.cwm import CWM
from engine.models.architectures.dbrx import DBRX
from engine.models.architectures.deepseek import DEEPSEEK_2, DEEPSEEK_3, GLM_4_FLASH, YOUTU
from engine.models.architectures.deepseek_1 import DEEPSEEK_1, DEEPSEEK_OCR
from engine.models.architectures.deepseek_sparse import DEEPSEEK_3_2, GLM_5
from engine.models.architectures.deepseek_v4 import DEEPSEEK_4
from engine.models.architectures.diffllama import DIFF_LLAMA
from engine.models.architectures.doge import DOGE
from engine.models.architectures.dory import DORY
from engine.models.architectures.dots3 import DOTS_3
from engine.models.architectures.ernie4_5 import ERNIE_4_5, ERNIE_4_5_MIXTURE, ERNIE_4_5_PICTURED
from engine.models.architectures.exaone import EXAONE_3
from engine.models.architectures.exaone4 import EXAONE_4
from engine.models.architectures.exaone_moe import EXAONE_MIXTURE
from engine.models.architectures.falcon import FALCON
from engine.models.architectures.falcon_h1 import FALCON_H1
from engine.models.architectures.flint import FLINT
from engine.models.architectures.gemma import GEMMA, GEMMA_2, GEMMA_3, GEMMA_EMBEDDING, VAULT_GEMMA
from engine.models.architectures.gemma3n import GEMMA_3N
from engine.models.architectures.gemma4 import GEMMA_4
from engine.models.architectures.glm import GLM
from engine.models.architectures.glm4_moe import DOTS_1, GLM_4_MIXTURE, SOLAR_OPEN
from engine.models.architectures.glm5_next import GLM_5_NEXT
from engine.models.architectures.gpt2 import GPT2, GPT_1
from engine.models.architectures.gpt_bigcode import GPT_BIGCODE
from engine.models.architectures.gpt_neo import GPT_NEO
from engine.models.architectures.gpt_neox import GPT_NEOX, GPT_NEOX_JAPANESE, PERSIMMON
from engine.models.architectures.gpt_oss import GPT_OSS
from engine.models.architectures.gptj import CODEGEN, GPT_J
from engine.models.architectures.granite import GRANITE, GRANITE_MIXTURE, GRANITE_SLIDING, HYPER_CLOVA
from engine.models.architectures.granite_hybrid import GRANITE_4
from engine.models.architectures.grok import GROK
from engine.models.architectures.grove_moe import GROVE_MOE
from engine.models.architectures.gte import GTE
from engine.models.architectures.helium import HELIUM
from engine.models.architectures.hrm_text import HRM_TEXT
from engine.models.architectures.hunyuan import HUNYUAN, HUNYUAN_MIXTURE
from engine.models.architectures.hunyuan_3 import HUNYUAN_3
from engine.models.architectures.hunyuan_4 import HUNYUAN_4
from engine.models.architectures.internlm2 import INTERNLM2
from engine.models.architectures.internlm3 import INTERNLM3
from engine.models.architectures.jais import JAIS
from engine.models.architectures.jais2 import JAIS_2
from engine.models.architectures.jetmoe import JET_MOE
from engine.models.architectures.kimi_linear import KIMI_LINEAR
from engine.models.architectures.kolibri import KOLIBRI_1
from engine.models.architectures.laguna import LAGUNA
from engine.models.architectures.lara_mini import LARA_MINI
from engine.models.architectures.lfm2 import LFM2, LFM2_MIXTURE, LFM3
from engine.models.architectures.llama import LLAMA, LLAMA_EMBEDDING
from engine.models.architectures.llama4 import LLAMA_4
from engine.models.architectures.longcat import LONG_CAT
from engine.models.architectures.mamba import JAMBA, MAMBA
from engine.models.architectures.mamba2 import BAMBA, MAMBA_2
from engine.models.architectures.maple import MAPLE
from engine.models.architectures.mimo_v2 import MIMO_V2_FLASH
from engine.models.architectures.minicpm import MINICPM
from engine.models.architectures.minicpm3 import MINICPM_3
from engine.models.architectures.minimax import MINIMAX
from engine.models.architectures.minimax_m2 import MINIMAX_M2
from engine.models.architectures.minimax_m3 import MINIMAX_M3
from engine.models.architectures.mistral3 import MISTRAL_3
from engine.models.architectures.mistral4 import MISTRAL_4
from engine.models.architectures.mistral_large4 import MISTRAL_LARGE_4
from engine.models.architectures.mixtral import MIXTRAL
from engine.models.architectures.mllama import LLAMA_3_2_VISION
from engine.models.architectures.modernbert import (
    EURO_BERT,
    MODERN_BERT,
    MODERN_BERT_DECODER,
    NOMIC_BERT,
    NOMIC_MIXTURE,
)
from engine.models.architectures.molmo2 import MOLMO, MOLMO_2
from engine.models.architectures.mpt import MPT
from engine.models.architectures.muse_glimmer import MUSE_GLIMMER
from engine.models.architectures.muse_spark import MUSE_SPARK
from engine.models.architectures.nanbeige import NANBEIGE, OURO
from engine.models.architectures.nanochat import NANOCHAT
from engine.models.architectures.nemotron import NEMOTRON
from engine.models.architectures.nemotron_h import NEMOTRON_H
from engine.models.architectures.nemotron_nas import NEMOTRON_NAS
from engine.models.architectures.olmo import OLMO
from engine.models.architectures.olmo2 import OLMO2, OLMO3
from engine.models.architectures.olmo_hybrid import OLMO_HYBRID
from engine.models.architectures.olmoe import FLEX_OLMO, OLMOE
from engine.models.architectures.openelm import OPEN_ELM
from engine.models.architectures.opt import BIO_GPT, OPT, XGLM
from engine.models.architectures.orion import ORION, XVERSE
from engine.models.architectures.pangu import PANGU
from engine.models.architectures.phi import PHI, PHI_2, PHI_4_MULTIMODAL
from engine.models.architectures.phimoe import PHI_MIXTURE
from engine.models.architectures.plamo import PLAMO
from engine.models.architectures.plamo2 import PLAMO_2
from engine.models.architectures.plamo3 import PLAMO_3
from engine.models.architectures.plm import PLM
from engine.models.architectures.qwen import MELLUM, QWEN_2, QWEN_2_MIXTURE, QWEN_3, QWEN_3_MIXTURE
from engine.models.architectures.qwen1 import QWEN
from engine.models.architectures.qwen3_5 import QWEN_3_5, QWEN_3_5_MIXTURE, QWEN_3_NEXT
from engine.models.architectures.qwen4 import QWEN_4
from engine.models.architectures.recurrent_gemma import RECURRENT_GEMMA
from engine.models.architectures.refact import REFACT
from engine.models.architectures.rwkv4 import RWKV_4
from engine.models.architectures.rwkv6 import RWKV_6, RWKV_6_CONVERTED
from engine.models.architectures.rwkv7 import ARWKV_7, RWKV_7
from engine.models.architectures.seed_oss import SEED_OSS
from engine.models.architectures.smallthinker import SMALL_THINKER
from engine.models.architectures.smollm3 import SMOLLM3
from engine.models.architectures.spark import SPARK_X_2_5
from engine.models.architectures.stablelm import STABLELM
from engine.models.architectures.starcoder2 import STARCODER2
from engine.models.architectures.step3_5 import STEP_3_5
from engine.models.architectures.talkie import TALKIE
from engine.models.architectures.xlstm import X_LSTM
from engine.models.architectures.zamba import ZAMBA, ZAMBA_2
from engine.models.architectures.zaya import ZAYA

__all__ = ["ARCHITECTURES"]

ARCHITECTURES: tuple[Architecture, ...] = (
    LLAMA, MIXTRAL, QWEN_2, QWEN_3, QWEN_3_MIXTURE, GEMMA, GEMMA_2, GEMMA_3, GEMMA_3N, GEMMA_4, GPT_OSS,
    PHI, SMOLLM3, OLMO2, GRANITE, GLM, COHERE, STARCODER2, GPT2, INTERNLM2, STABLELM, MINICPM, MINICPM_3,
    LFM2, QWEN_3_5, GRANITE_4, OLMO3, EXAONE_4, SEED_OSS, ERNIE_4_5, ARCEE, NEMOTRON, NEMOTRON_H, MISTRAL_3,
    QWEN_3_5_MIXTURE, QWEN_3_NEXT, QWEN_2_MIXTURE, GRANITE_MIXTURE, OLMOE, GLM_4_MIXTURE, DOTS_1,
    LFM2_MIXTURE, ERNIE_4_5_MIXTURE, HUNYUAN_MIXTURE, MINIMAX_M2,
    HUNYUAN, FALCON_H1, FALCON, GPT_NEOX, PHI_2, OPT, GPT_J, GPT_BIGCODE, BLOOM, MPT, APERTUS,
    DEEPSEEK_2, DEEPSEEK_3, GLM_4_FLASH, LLAMA_4, PHI_MIXTURE, BAILING, BAILING_2, LLAMA_3_2_VISION,
    INTERNLM3, EXAONE_3, EXAONE_MIXTURE, MISTRAL_4, MAMBA_2, BAMBA, HELIUM, OLMO, CWM, JAIS_2, BITNET,
    QWEN, BAICHUAN, ORION, XVERSE, MAMBA, JAMBA,
    TRINITY, LFM3, SOLAR_OPEN, HUNYUAN_3, GRANITE_SLIDING, HYPER_CLOVA, VAULT_GEMMA, YOUTU, MELLUM,
    FLEX_OLMO, KIMI_LINEAR, OLMO_HYBRID, NEMOTRON_NAS, RWKV_7, ARWKV_7, SMALL_THINKER,
    GPT_NEO, CODEGEN, BIO_GPT, XGLM, PERSIMMON, NANOCHAT, DEEPSEEK_1, COHERE_2_MIXTURE, DBRX,
    REFACT, ARIA, ERNIE_4_5_PICTURED, PHI_4_MULTIMODAL, PANGU, CODE_SHELL, PLAMO_3,
    JAIS, MIMO_V2_FLASH, STEP_3_5, LAGUNA, A_X_K1, FLINT, MODERN_BERT_DECODER, GPT_1, OPEN_ELM,
    MUSE_GLIMMER, APERTUS_1_5, COHERE_COMPASS, LARA_MINI, KOLIBRI_1,
    BAILING_HYBRID, MINIMAX, DEEPSEEK_3_2, GLM_5, A_X_K2, MINIMAX_M3, QWEN_4, PLAMO, PLM,
    MISTRAL_LARGE_4, DEEPSEEK_4, GLM_5_NEXT,
    MOLMO_2, COSMOS_3_EDGE, HUNYUAN_4, MUSE_SPARK, DOTS_3, HRM_TEXT,
    LONG_CAT, ZAMBA_2, ZAMBA, RECURRENT_GEMMA, JET_MOE, DIFF_LLAMA,
    GPT_NEOX_JAPANESE, CTRL, DEEPSEEK_OCR, GROK, ARCTIC, GROVE_MOE, PLAMO_2, CHAMELEON,
    RWKV_6, RWKV_6_CONVERTED, RWKV_4, X_LSTM, DOGE, ZAYA, BEAM, NANBEIGE, OURO, SARVAM,
    SPARK_X_2_5, MOLMO, CHAT_GLM, MAPLE, COG_VLM, TALKIE, DORY,
    BERT, ROBERTA, JINA_BERT_2, MODERN_BERT, NOMIC_BERT, EURO_BERT, GEMMA_EMBEDDING, MP_NET, DISTIL_BERT,
    ELECTRA, JINA_3, NOMIC_MIXTURE, GTE, LLAMA_EMBEDDING,
)  # fmt: skip
