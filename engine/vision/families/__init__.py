"""The families of vision encoders that can be run, one file each."""

from __future__ import annotations

from engine.vision.design import Family
from engine.vision.families.idefics3 import IDEFICS3

FAMILIES: tuple[Family, ...] = (IDEFICS3,)
