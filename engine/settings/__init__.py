"""Every engine setting, declared once, one group a file.

A field made with `setting()` carries its default, label, help, range and neutral value in its dataclass
metadata. The form in the window, the JSON in the store, the flags of the command line, validation and the
table of settings all read that one field. Settings are frozen: a change makes a new object
(`dataclasses.replace`); run-time state lives elsewhere.
"""

from __future__ import annotations

from engine.fields import SettingInfo, Settings, check_value, setting, setting_info
from engine.settings.adapters import AdapterSettings
from engine.settings.cache import CacheSettings
from engine.settings.constraint import ConstraintSettings
from engine.settings.guidance import GuidanceSettings
from engine.settings.load import LoadSettings
from engine.settings.output import OutputSettings
from engine.settings.sampler import SAMPLER_STEP_NAMES, TEMPERATURE_LAST, SamplerSettings
from engine.settings.speculation import SpeculationSettings
from engine.settings.stops import StopSettings
from engine.settings.thinking import ThinkingSettings

__all__ = [
    "SAMPLER_STEP_NAMES", "TEMPERATURE_LAST", "AdapterSettings", "CacheSettings", "ConstraintSettings",
    "GuidanceSettings", "LoadSettings", "OutputSettings", "SamplerSettings", "SettingInfo", "Settings",
    "SpeculationSettings", "StopSettings", "ThinkingSettings", "check_value", "setting", "setting_info",
]  # fmt: skip
