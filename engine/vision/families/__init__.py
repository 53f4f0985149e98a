"""The families of vision encoders that can be run, one file each, in rooms by how a picture is laid out."""

from __future__ import annotations

from engine.vision.design import Family
from engine.vision.families.any_size.dots_ocr import DOTS_OCR
from engine.vision.families.any_size.gemma4 import GEMMA4
from engine.vision.families.any_size.glm4v import GLM4V, GLM_OCR
from engine.vision.families.any_size.hunyuan_vl import HUNYUAN_VL
from engine.vision.families.any_size.kimi import KIMI_K2_5, KIMI_VL
from engine.vision.families.any_size.lfm3_vl import LFM3_VL
from engine.vision.families.any_size.paddle_ocr import PADDLE_OCR
from engine.vision.families.any_size.pixtral import LIGHTON_OCR, PIXTRAL
from engine.vision.families.any_size.qwen_vl import (
    COHERE_COMPASS,
    EXAONE4_5,
    HYPER_CLOVA,
    QWEN2_5_OMNI,
    QWEN2_5_VL,
    QWEN2_VL,
    QWEN3_VL,
)
from engine.vision.families.fixed_size.fast_vlm import FAST_VLM
from engine.vision.families.fixed_size.gemma3 import GEMMA3
from engine.vision.families.fixed_size.gemma3n import GEMMA3N
from engine.vision.families.fixed_size.janus import DEEPSEEK_VL, JANUS
from engine.vision.families.fixed_size.llava import LLAVA, VIP_LLAVA
from engine.vision.families.fixed_size.paligemma import PALIGEMMA
from engine.vision.families.tiled.cohere import AYA_VISION, COMMAND_VISION
from engine.vision.families.tiled.deepseek_ocr import DEEPSEEK_OCR
from engine.vision.families.tiled.deepseek_ocr2 import DEEPSEEK_OCR2
from engine.vision.families.tiled.got_ocr2 import GOT_OCR2
from engine.vision.families.tiled.granite_docling import GRANITE_DOCLING
from engine.vision.families.tiled.idefics2 import IDEFICS2
from engine.vision.families.tiled.idefics3 import IDEFICS3
from engine.vision.families.tiled.internvl import INTERNVL, QIANFAN_OCR
from engine.vision.families.tiled.lfm2_vl import LFM2_VL
from engine.vision.families.tiled.llama4 import LLAMA4
from engine.vision.families.tiled.llava_next import LLAVA_NEXT, LLAVA_ONEVISION
from engine.vision.families.tiled.minicpm_v import MINICPM_V
from engine.vision.families.tiled.minicpm_v4_6 import MINICPM_OCR, MINICPM_V4_6
from engine.vision.families.tiled.minicpm_v4_7 import MINICPM_V4_7
from engine.vision.families.tiled.mllama import MLLAMA
from engine.vision.families.tiled.molmo2 import MOLMO2
from engine.vision.families.tiled.ovis2 import OVIS2
from engine.vision.families.tiled.perception_lm import PERCEPTION_LM
from engine.vision.families.tiled.phi3_v import PHI3_V

FAMILIES: tuple[Family, ...] = (
    AYA_VISION, COHERE_COMPASS, COMMAND_VISION, DEEPSEEK_OCR, DEEPSEEK_OCR2, DEEPSEEK_VL, DOTS_OCR,
    EXAONE4_5, FAST_VLM, GEMMA3, GEMMA3N, GEMMA4, GLM4V, GLM_OCR, GOT_OCR2, GRANITE_DOCLING, HUNYUAN_VL,
    HYPER_CLOVA, IDEFICS2, IDEFICS3, INTERNVL, JANUS, KIMI_VL, KIMI_K2_5, LFM2_VL, LFM3_VL, LIGHTON_OCR,
    MLLAMA, LLAMA4, LLAVA, LLAVA_NEXT, LLAVA_ONEVISION, VIP_LLAVA, MINICPM_OCR, MINICPM_V, MINICPM_V4_6,
    MINICPM_V4_7, MOLMO2, OVIS2, PADDLE_OCR, PALIGEMMA, PERCEPTION_LM, PHI3_V, PIXTRAL, QIANFAN_OCR,
    QWEN2_VL, QWEN2_5_VL, QWEN2_5_OMNI, QWEN3_VL,
)  # fmt: skip
