"""The window's own settings, and the table of panes: each title with the dataclass that its form is built
from.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.settings import (
    AdapterSettings,
    CacheSettings,
    ConstraintSettings,
    GuidanceSettings,
    LoadSettings,
    OutputSettings,
    SamplerSettings,
    Settings,
    SpeculationSettings,
    StopSettings,
    ThinkingSettings,
    setting,
)

__all__ = [
    "CONVERSATION_SETTINGS",
    "KEPT_FOR_MODELS",
    "MODEL_SETTINGS",
    "PANES",
    "SAVED_SETTINGS",
    "Appearance",
    "Behaviour",
    "LocalServerSettings",
]


@dataclass(frozen=True)
class Appearance(Settings):
    """How the window looks."""

    theme: str = setting(
        "system",
        "Theme",
        "Light or dark colours, or what the system uses.",
        choices=(("system", "Like the system"), ("light", "Light"), ("dark", "Dark")),
    )
    text_scale: int = setting(
        100, "Text size", "Size of all text in the window.", low=80, high=200, step=10, unit="%"
    )
    unfold_thoughts: bool = setting(
        True,
        "Show thoughts as they come",
        "A model's thoughts are shown while it thinks, and folded when it has thought.",
        neutral=True,
    )
    motion: str = setting(
        "system",
        "Motion",
        "Short fades show where something came from; without motion everything appears at once.",
        choices=(("system", "Like the system"), ("calm", "Calm"), ("none", "None")),
    )
    token_colours: str = setting(
        "off",
        "Token colours",
        "Show replies as their tokens, coloured by how likely each was or how unsure the model was there.",
        choices=(("off", "Off"), ("probability", "Probability"), ("entropy", "Entropy")),
        neutral="off",
    )


@dataclass(frozen=True)
class Behaviour(Settings):
    """How the window behaves."""

    send_with: str = setting(
        "enter",
        "Send with",
        "Which key sends the message; Shift+Enter always breaks the line.",
        choices=(("enter", "Enter"), ("ctrl+enter", "Ctrl+Enter")),
    )
    makers_advice: bool = setting(
        True,
        "Sample as the makers advise",  # short, because the label of a check box does not wrap
        "Use the sampling that a model's makers advise, where it comes with the model, instead of your "
        "saved defaults; what is kept for the model and what you set in a chat come first.",
    )
    trash_days: int = setting(
        30,
        "Keep deleted chats",
        "Chats are deleted for good after this many days in the trash; 0 keeps them until you empty it.",
        low=0,
        high=365,
        step=1,
        words=((0, "always"),),
        unit="days",
    )
    backups: bool = setting(
        True,
        "Back up the chats automatically",
        "Copies of all chats of the last hours, days and weeks are kept beside them; File > Restore from a "
        "backup brings one back.",
    )
    notify_after: int = setting(
        20,
        "Tell of long replies",
        "A notification appears when a reply that took at least this long ends while the window is in the "
        "background.",
        low=0,
        high=3600,
        slider_high=120,
        step=5,
        words=((0, "off"),),
        unit="s",
    )
    model_titles: bool = setting(
        True,
        "Name chats by their topic",
        "After the first reply of a chat, a model on this computer writes a short title for it while nothing "
        "else is written. Chats that you name, and temporary ones, are left alone. Otherwise a chat has its "
        "first words as its title.",
    )
    weekly_check: bool = setting(
        False,
        "Look for updates once a week",
        "A minute after the start, a signed list of versions is read from where this program was published, "
        "and a notice appears if there is a newer one. Nothing is installed unless you say so.",
        neutral=False,
    )
    several: int = setting(
        4,
        "Several replies",
        "How many replies “Write several replies” writes at the same time, for you to choose from.",
        low=2,
        high=8,
        step=1,
    )
    show_advanced: bool = setting(
        False,
        "Show advanced settings",
        "The panes show every setting, also those that are seldom changed.",
        neutral=False,
    )


@dataclass(frozen=True)
class LocalServerSettings(Settings):
    """The server for other programs; its window shows these."""

    on: bool = setting(False, "On", "Other programs may use the loaded model.")
    port: int = setting(
        1337, "Port", "The port that the server listens on; 0 takes a free one.", low=0, high=65535
    )
    network: bool = setting(
        False, "Open to the network", "Other computers may use the server too, with the token."
    )
    token: str = setting("", "Token", "What programs must send as their API key.")


PANES: tuple[tuple[str, type[Settings]], ...] = (
    ("Sampling", SamplerSettings),
    ("Drafting", SpeculationSettings),
    ("Stop conditions", StopSettings),
    ("Constraints", ConstraintSettings),
    ("Guidance", GuidanceSettings),
    ("Thinking", ThinkingSettings),
    ("Context", CacheSettings),
    ("Output", OutputSettings),
    ("Adapters", AdapterSettings),
    ("Model", LoadSettings),
    ("Appearance", Appearance),
    ("Behaviour", Behaviour),
)
"""Title and settings class of every pane, in the order they are shown."""

SAVED_SETTINGS: tuple[type[Settings], ...] = (*(cls for _, cls in PANES), LocalServerSettings)
"""Whose defaults the user can change."""

CONVERSATION_SETTINGS: tuple[type[Settings], ...] = (
    SamplerSettings, SpeculationSettings, StopSettings, ConstraintSettings, GuidanceSettings, OutputSettings,
    AdapterSettings, ThinkingSettings,
)  # fmt: skip
"""Stored per conversation, over the saved defaults; all others apply to the whole program."""

MODEL_SETTINGS: tuple[type[Settings], ...] = (CacheSettings, LoadSettings)
"""Take effect when a model is loaded."""

KEPT_FOR_MODELS: tuple[type[Settings], ...] = (SamplerSettings, CacheSettings, LoadSettings)
"""Can be saved for a single model, between the defaults and the conversation's own settings."""
