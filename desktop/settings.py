"""The window's own settings, and two tables: the panes, each title with the dataclass that its form is built
from, and the pages of the Preferences window.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.lazy_dataclass import dataclass
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
from engine.words import N_, language_names

__all__ = [
    "CONVERSATION_SETTINGS",
    "KEPT_FOR_MODELS",
    "MODEL_SETTINGS",
    "PANES",
    "PREFERENCES",
    "SAVED_SETTINGS",
    "Appearance",
    "Behaviour",
    "LocalServerSettings",
    "PreferencePage",
    "ToolSettings",
    "preference_page",
]


@dataclass(frozen=True)
class Appearance(Settings):
    """How the window looks."""

    language: str = setting(
        "system",
        "Language",
        "The language of the window. Models answer in the language that you write in.",
        choices=(("system", "Follow the system"), *language_names()),
    )
    theme: str = setting(
        "system",
        "Theme",
        "Use light or dark colours, or follow the system.",
        choices=(("system", "Follow the system"), ("light", "Light"), ("dark", "Dark")),
    )
    contrast: str = setting(
        "system",
        "Contrast",
        "Use black, white and strong lines for high contrast, or follow the system.",
        choices=(("system", "Follow the system"), ("normal", "Normal"), ("high", "High")),
    )
    text_scale: int = setting(
        100, "Text size", "Size of all text in the window.", low=80, high=200, step=10, unit="%"
    )
    unfold_thoughts: bool = setting(
        True,
        "Show thoughts while thinking",
        "Show a model's thoughts while it thinks, and fold them when it has finished.",
        neutral=True,
    )
    motion: str = setting(
        "system",
        "Motion",
        "Use short fades when parts of the window appear or disappear. Without motion, changes are instant.",
        choices=(("system", "Follow the system"), ("calm", "Calm"), ("none", "None")),
    )
    token_colours: str = setting(
        "off",
        "Token colours",
        "Show replies as tokens, coloured by the probability of each token or by the model's uncertainty.",
        choices=(("off", "Off"), ("probability", "Probability"), ("entropy", "Entropy")),
        neutral="off",
    )


@dataclass(frozen=True)
class Behaviour(Settings):
    """How the window behaves."""

    send_with: str = setting(
        "enter",
        "Send with",
        "The key that sends a message. Shift+Enter always starts a new line.",
        choices=(("enter", "Enter"), ("ctrl+enter", "Ctrl+Enter")),
    )
    makers_advice: bool = setting(
        True,
        "Use recommended sampling",  # short, because the label of a check box does not wrap
        (
            "Use the model author's recommended sampling, if the model includes it, instead of your "
            "saved defaults. Settings saved for the model or changed in a chat take precedence."
        ),
    )
    trash_days: int = setting(
        30,
        "Keep deleted chats",
        "The number of days that deleted chats stay in the trash before they are deleted "
        "permanently. With 0 they stay until you empty the trash.",
        low=0,
        high=365,
        step=1,
        words=((0, "always"),),
        unit="days",
    )
    backups: bool = setting(
        True,
        "Back up chats automatically",
        "Keep copies of all chats from the last hours, days and weeks. To restore one, choose File > "
        "Restore from a backup.",
    )
    notify_after: int = setting(
        20,
        "Notify me about long replies",
        "Show a notification when a reply that took at least this long ends while the window is in "
        "the background.",
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
        "After the first reply in a chat, a model on this computer writes a short title for it when "
        "no other reply is being written. Chats that you name and temporary chats keep their titles. "
        "When this is off, the first words of a chat are its title.",
    )
    follow_ups: bool = setting(
        True,
        N_("Find new passages for later questions"),
        N_(
            "In a chat with a long file, up to five passages go with each later question: those that match "
            "it, unless the model reads them anyway. The message shows them."
        ),
    )
    weekly_check: bool = setting(
        False,
        "Check for updates once a week",
        "Downloads the signed list of versions a minute after the start, and shows a notice if there is a "
        "newer version. Nothing is installed unless you agree.",
        neutral=False,
    )
    announce_replies: str = setting(
        "off",
        "Announce replies",
        "What a screen reader says about a reply besides its beginning and its end. To read it at your own "
        "pace, choose View > Read messages with the caret.",
        choices=(
            ("off", "Nothing else"),
            ("sentence", "Each sentence"),
            ("whole", "The whole reply, at its end"),
        ),
        neutral="off",
    )
    spelling: bool = setting(
        True,
        N_("Check spelling"),
        N_(
            "Underline misspelled words in the message box, with a dictionary of this system. Without one, "
            "nothing is checked."
        ),
    )
    spelling_language: str = setting(
        "",
        N_("Spelling language"),
        N_("The language of the dictionary, such as en_GB. If this is empty, the system's language is used."),
    )
    several: int = setting(
        4,
        "Several replies",
        "The number of replies that “Generate several replies” writes at the same time for you to "
        "choose from.",
        low=2,
        high=8,
        step=1,
    )
    show_advanced: bool = setting(
        False,
        "Show advanced settings",
        "Show every setting in all panes, including those that are rarely changed.",
        neutral=False,
    )


@dataclass(frozen=True)
class ToolSettings(Settings):
    """The tools of a chat; the menu of its Tools button shows them."""

    off: tuple[str, ...] = setting(
        (), "Servers that are off", "The servers whose tools are not offered in this chat."
    )


@dataclass(frozen=True)
class LocalServerSettings(Settings):
    """The server for other programs; its window shows these, too."""

    on: bool = setting(
        False,
        "Let other programs use the model",
        "Programs that use the API of OpenAI, Anthropic or Ollama can use the loaded model. The address and "
        "the token are in the local server's own window.",
    )
    port: int = setting(
        1337,
        "Port",
        "The port that the server listens on. With 0 it uses any free port.",
        low=0,
        high=65535,
        words=((0, "any free port"),),
    )
    network: bool = setting(
        False,
        "Allow other computers",
        "Other computers on this network that have the token can use the server. Requests and replies are "
        "not encrypted.",
    )
    token: str = setting("", "Token", "The API key that programs must send.")


PANES: tuple[tuple[str, type[Settings]], ...] = (
    (N_("Sampling"), SamplerSettings),
    (N_("Drafting"), SpeculationSettings),
    (N_("Stop conditions"), StopSettings),
    (N_("Constraints"), ConstraintSettings),
    (N_("Guidance"), GuidanceSettings),
    (N_("Thinking"), ThinkingSettings),
    (N_("Context"), CacheSettings),
    (N_("Output"), OutputSettings),
    (N_("Adapters"), AdapterSettings),
    (N_("Model"), LoadSettings),
)
"""Title and settings class of every pane beside the chat, in the order they are shown."""


class PreferencePage(NamedTuple):
    """A page of the Preferences window.

    Attributes:
        fields: those of the settings class `cls` that it shows; all of them if it names none.
        commands: the commands of the window that have a button on it.
        words: what else a search finds it by.
    """

    title: str
    cls: type[Settings] | None
    fields: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    words: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The fields that it shows."""
        return self.fields or (tuple(self.cls().to_json()) if self.cls is not None else ())


PREFERENCES: tuple[PreferencePage, ...] = (
    PreferencePage(N_("Appearance"), Appearance),
    PreferencePage(
        N_("Chats"), Behaviour,
        ("send_with", "several", "makers_advice", "model_titles", "follow_ups", "spelling",
         "spelling_language", "show_advanced"),
        ("shortcuts",), "keyboard keys hotkeys",
    ),
    PreferencePage(N_("Notifications"), Behaviour, ("notify_after", "announce_replies")),
    PreferencePage(N_("Models"), None, (), ("library", "servers"),
        "folders directories hub download offline"),
    PreferencePage(N_("Local server"), LocalServerSettings, ("on", "port", "network"), ("local_server",)),
    PreferencePage(
        N_("Data and updates"), Behaviour, ("trash_days", "backups", "weekly_check"),
        ("restore_backup", "move_data", "updates"), "storage privacy version",
    ),
)  # fmt: skip
"""The pages of the Preferences window: what belongs to the program and not to a chat or a model."""


def preference_page(cls: type[Settings], name: str) -> int:
    """The number of the page that shows a field; -1 if none does."""
    shown = (number for number, page in enumerate(PREFERENCES) if page.cls is cls and name in page.names)
    return next(shown, -1)


SAVED_SETTINGS: tuple[type[Settings], ...] = (
    *(cls for _, cls in PANES), Appearance, Behaviour, LocalServerSettings,
)  # fmt: skip
"""Whose defaults the user can change."""

CONVERSATION_SETTINGS: tuple[type[Settings], ...] = (
    SamplerSettings, SpeculationSettings, StopSettings, ConstraintSettings, GuidanceSettings, OutputSettings,
    AdapterSettings, ThinkingSettings, ToolSettings,
)  # fmt: skip
"""Stored per conversation, over the saved defaults; all others apply to the whole program."""

MODEL_SETTINGS: tuple[type[Settings], ...] = (CacheSettings, LoadSettings)
"""Take effect when a model is loaded."""

KEPT_FOR_MODELS: tuple[type[Settings], ...] = (SamplerSettings, CacheSettings, LoadSettings)
"""Can be saved for a single model, between the defaults and the conversation's own settings."""
