"""What a reply must look like, and what it must not contain."""

from __future__ import annotations

from engine.fields import Settings, setting
from engine.lazy_dataclass import dataclass


@dataclass(frozen=True)
class ConstraintSettings(Settings):
    """What a reply must look like, and what it must not contain."""

    format: str = setting(
        "none",
        "Format",
        "A format that the whole reply must follow.",
        choices=(
            ("none", "Free text"),
            ("json", "JSON"),
            ("json_schema", "JSON schema"),
            ("regex", "Regular expression"),
            ("grammar", "Lark or GBNF grammar"),
            ("choices", "Choices"),
        ),
    )
    pattern: str = setting(
        "",
        "Schema, expression, grammar or choices",
        "The pattern for the chosen format.",
        neutral="",
        multiline=True,
    )
    begin_with: str = setting(
        "", "Start of the reply", "The reply must start with this text.", neutral="", multiline=True
    )
    banned_strings: tuple[str, ...] = setting(
        (),
        "Banned strings",
        "Texts that never appear in a reply. When one comes up, the reply backs up and continues "
        "with other words.",
        multiline=True,
    )
    ban_ignore_case: bool = setting(True, "Ignore case", "Find banned strings in uppercase and lowercase.")
    logit_bias: tuple[str, ...] = setting(
        (),
        "Token bias",
        "Values to add to the scores of tokens, one per line: a token's text or id, an equals sign "
        "and a number. For example: ' sure' = -5.",
        multiline=True,
        advanced=True,
        escaped=True,
    )
    allowed_tokens: tuple[int, ...] = setting(
        (), "Allowed token ids", "Only these tokens can be sampled.", low=0, advanced=True
    )
    banned_tokens: tuple[int, ...] = setting(
        (), "Banned token ids", "These tokens are never sampled.", low=0, advanced=True
    )
    heal: bool = setting(
        False,
        "Token healing",
        "Sample the last token again when a reply is continued, so that a word that was cut short "
        "can be completed properly.",
        neutral=False,
        advanced=True,
    )
