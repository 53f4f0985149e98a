"""All cases of `architectures.py`."""

from __future__ import annotations

from tests.engine.models.architectures import Case
from tests.engine.models.autumn_cases import AUTUMN_CASES
from tests.engine.models.beam_cases import BEAM_CASES
from tests.engine.models.compressed_cases import COMPRESSED_CASES
from tests.engine.models.december_cases import DECEMBER_CASES
from tests.engine.models.dense_cases import DENSE_CASES
from tests.engine.models.early_cases import EARLY_CASES
from tests.engine.models.further_cases import FURTHER_CASES
from tests.engine.models.gemma_cases import GEMMA_CASES
from tests.engine.models.late_cases import LATE_CASES
from tests.engine.models.latent_cases import LATENT_CASES
from tests.engine.models.latest_cases import LATEST_CASES
from tests.engine.models.lesser_cases import LESSER_CASES
from tests.engine.models.llama_cases import LLAMA_CASES
from tests.engine.models.mixture_cases import MIXTURE_CASES
from tests.engine.models.newer_cases import NEWER_CASES
from tests.engine.models.november_cases import NOVEMBER_CASES
from tests.engine.models.other_cases import OTHER_CASES
from tests.engine.models.own_cases import OWN_CASES
from tests.engine.models.pictured_cases import PICTURED_CASES
from tests.engine.models.qwen_gemma_cases import QWEN_GEMMA_CASES
from tests.engine.models.recurrent_cases import RECURRENT_CASES
from tests.engine.models.scan_cases import SCAN_CASES
from tests.engine.models.sparse_cases import SPARSE_CASES
from tests.engine.models.stream_cases import STREAM_CASES
from tests.engine.models.today_cases import TODAY_CASES
from tests.engine.models.wider_cases import WIDER_CASES
from tests.engine.models.winter_cases import WINTER_CASES

CASES: tuple[Case, ...] = (
    *LLAMA_CASES,
    *QWEN_GEMMA_CASES,
    *OTHER_CASES,
    *RECURRENT_CASES,
    *FURTHER_CASES,
    *GEMMA_CASES,
    *DENSE_CASES,
    *LATENT_CASES,
    *MIXTURE_CASES,
    *SPARSE_CASES,
    *PICTURED_CASES,
    *NEWER_CASES,
    *EARLY_CASES,
    *SCAN_CASES,
    *TODAY_CASES,
    *LESSER_CASES,
    *WIDER_CASES,
    *OWN_CASES,
    *LATEST_CASES,
    *AUTUMN_CASES,
    *LATE_CASES,
    *STREAM_CASES,
    *NOVEMBER_CASES,
    *DECEMBER_CASES,
    *COMPRESSED_CASES,
    *WINTER_CASES,
    *BEAM_CASES,
)
BY_NAME = {case.name: case for case in CASES}
assert len(BY_NAME) == len(CASES)
