"""The families of vision encoders that can be run, one file each."""

from __future__ import annotations

from engine.vision.design import Family
from engine.vision.families.cohere import AYA_VISION, COMMAND_VISION
from engine.vision.families.deepseek_ocr import DEEPSEEK_OCR
from engine.vision.families.deepseek_ocr2 import DEEPSEEK_OCR2
from engine.vision.families.dots_ocr import DOTS_OCR
from engine.vision.families.gemma3 import GEMMA3
from engine.vision.families.gemma3n import GEMMA3N
from engine.vision.families.gemma4 import GEMMA4
from engine.vision.families.glm4v import GLM4V, GLM_OCR
from engine.vision.families.got_ocr2 import GOT_OCR2
from engine.vision.families.idefics2 import IDEFICS2
from engine.vision.families.idefics3 import IDEFICS3
from engine.vision.families.internvl import INTERNVL, QIANFAN_OCR
from engine.vision.families.janus import DEEPSEEK_VL, JANUS
from engine.vision.families.kimi import KIMI_K2_5, KIMI_VL
from engine.vision.families.lfm2_vl import LFM2_VL
from engine.vision.families.llama4 import LLAMA4
from engine.vision.families.llava import LLAVA, VIP_LLAVA
from engine.vision.families.llava_next import LLAVA_NEXT, LLAVA_ONEVISION
from engine.vision.families.minicpm_v import MINICPM_V
from engine.vision.families.minicpm_v4_6 import MINICPM_V4_6
from engine.vision.families.mllama import MLLAMA
from engine.vision.families.molmo2 import MOLMO2
from engine.vision.families.ovis2 import OVIS2
from engine.vision.families.paddle_ocr import PADDLE_OCR
from engine.vision.families.paligemma import PALIGEMMA
from engine.vision.families.phi3_v import PHI3_V
from engine.vision.families.pixtral import LIGHTON_OCR, PIXTRAL
from engine.vision.families.qwen_vl import EXAONE4_5, QWEN2_5_OMNI, QWEN2_5_VL, QWEN2_VL, QWEN3_VL

FAMILIES: tuple[Family, ...] = (
    AYA_VISION, COMMAND_VISION, DEEPSEEK_OCR, DEEPSEEK_OCR2, DEEPSEEK_VL, DOTS_OCR, EXAONE4_5, GEMMA3,
    GEMMA3N, GEMMA4, GLM4V, GLM_OCR, GOT_OCR2, IDEFICS2, IDEFICS3, INTERNVL, JANUS, KIMI_VL, KIMI_K2_5,
    LFM2_VL, LIGHTON_OCR, MLLAMA, LLAMA4, LLAVA, LLAVA_NEXT, LLAVA_ONEVISION, VIP_LLAVA, MINICPM_V,
    MINICPM_V4_6, MOLMO2, OVIS2, PADDLE_OCR, PALIGEMMA, PHI3_V, PIXTRAL, QIANFAN_OCR, QWEN2_VL, QWEN2_5_VL,
    QWEN2_5_OMNI, QWEN3_VL,
)  # fmt: skip
