"""The families of vision encoders that can be run, one file each."""

from __future__ import annotations

from engine.vision.design import Family
from engine.vision.families.idefics3 import IDEFICS3
from engine.vision.families.qwen_vl import QWEN2_5_VL, QWEN2_VL, QWEN3_VL

FAMILIES: tuple[Family, ...] = (IDEFICS3, QWEN2_VL, QWEN2_5_VL, QWEN3_VL)
