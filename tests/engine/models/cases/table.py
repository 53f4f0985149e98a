"""The cases of all architectures, as `tests.engine.models.architectures` describes them."""

from __future__ import annotations

from tests.engine.models.architectures import Case
from tests.engine.models.cases.aria_multimodal import ARIA_MULTIMODAL_CASES
from tests.engine.models.cases.beam import BEAM_CASES
from tests.engine.models.cases.bert_decoders import BERT_DECODER_CASES
from tests.engine.models.cases.chameleon_rwkv_4 import CHAMELEON_RWKV_4_CASES
from tests.engine.models.cases.deepseek_v4 import DEEPSEEK_V4_CASES
from tests.engine.models.cases.dory import DORY_CASES
from tests.engine.models.cases.exaone_mistral_4 import EXAONE_MISTRAL_4_CASES
from tests.engine.models.cases.expert_routing import EXPERT_ROUTING_CASES
from tests.engine.models.cases.falcon_gpt_neox import FALCON_GPT_NEOX_CASES
from tests.engine.models.cases.families_of_2023 import FAMILIES_OF_2023_CASES
from tests.engine.models.cases.flint_gpt import FLINT_GPT_CASES
from tests.engine.models.cases.gemma_3n_4 import GEMMA_3N_4_CASES
from tests.engine.models.cases.gpt_neo_codegen import GPT_NEO_CODEGEN_CASES
from tests.engine.models.cases.inkling import INKLING_CASES
from tests.engine.models.cases.inkling2 import INKLING_2_CASES
from tests.engine.models.cases.latent_attention import LATENT_ATTENTION_CASES
from tests.engine.models.cases.ling_minimax import LING_MINIMAX_CASES
from tests.engine.models.cases.llama import LLAMA_CASES
from tests.engine.models.cases.longcat_emu import LONGCAT_EMU_CASES
from tests.engine.models.cases.mimo_step import MIMO_STEP_CASES
from tests.engine.models.cases.mistral_large_4 import MISTRAL_LARGE_4_CASES
from tests.engine.models.cases.mixture import MIXTURE_CASES
from tests.engine.models.cases.muse_apertus import MUSE_APERTUS_CASES
from tests.engine.models.cases.olmo_3_exaone_4 import OLMO_3_EXAONE_4_CASES
from tests.engine.models.cases.phi_granite import PHI_GRANITE_CASES
from tests.engine.models.cases.qwen_gemma import QWEN_GEMMA_CASES
from tests.engine.models.cases.recurrent import RECURRENT_CASES
from tests.engine.models.cases.selective_scan import SELECTIVE_SCAN_CASES
from tests.engine.models.cases.stream import STREAM_CASES
from tests.engine.models.cases.text_of_multimodal import TEXT_OF_MULTIMODAL_CASES
from tests.engine.models.cases.trinity_hunyuan_3 import TRINITY_HUNYUAN_3_CASES

CASES: tuple[Case, ...] = (
    *LLAMA_CASES,
    *QWEN_GEMMA_CASES,
    *PHI_GRANITE_CASES,
    *RECURRENT_CASES,
    *OLMO_3_EXAONE_4_CASES,
    *GEMMA_3N_4_CASES,
    *FALCON_GPT_NEOX_CASES,
    *LATENT_ATTENTION_CASES,
    *MIXTURE_CASES,
    *EXPERT_ROUTING_CASES,
    *TEXT_OF_MULTIMODAL_CASES,
    *EXAONE_MISTRAL_4_CASES,
    *FAMILIES_OF_2023_CASES,
    *SELECTIVE_SCAN_CASES,
    *TRINITY_HUNYUAN_3_CASES,
    *GPT_NEO_CODEGEN_CASES,
    *ARIA_MULTIMODAL_CASES,
    *MIMO_STEP_CASES,
    *FLINT_GPT_CASES,
    *MUSE_APERTUS_CASES,
    *LING_MINIMAX_CASES,
    *STREAM_CASES,
    *LONGCAT_EMU_CASES,
    *MISTRAL_LARGE_4_CASES,
    *DEEPSEEK_V4_CASES,
    *CHAMELEON_RWKV_4_CASES,
    *BEAM_CASES,
    *DORY_CASES,
    *INKLING_CASES,
    *INKLING_2_CASES,
    *BERT_DECODER_CASES,
)
BY_NAME = {case.name: case for case in CASES}
assert len(BY_NAME) == len(CASES)
