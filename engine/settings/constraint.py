"""What a reply must look like, and what it must not contain."""

from __future__ import annotations

from dataclasses import dataclass

from engine.fields import Settings, setting


@dataclass(frozen=True)
class ConstraintSettings(Settings):
    """What a reply must look like, and what it must not contain."""

    format: str = setting(
        "none",
        "Format",
        "A form that the whole reply is forced into.",
        choices=(
            ("none", "Free"),
            ("json", "JSON"),
            ("json_schema", "JSON schema"),
            ("regex", "Regular expression"),
            ("grammar", "Lark grammar"),
            ("choices", "One of these lines"),
        ),
    )
    pattern: str = setting(
        "",
        "Schema, expression, grammar or lines",
        "The text of the chosen format.",
        neutral="",
        multiline=True,
    )
    begin_with: str = setting(
        "",
        "The reply begins with",
        "The reply is forced to begin with this text.",
        neutral="",
        multiline=True,
    )
    banned_strings: tuple[str, ...] = setting(
        (),
        "Banned strings",
        "These texts never appear: the reply goes back and takes other words.",
        multiline=True,
    )
    ban_ignore_case: bool = setting(
        True, "Ignore case", "Banned strings are found in capital and small letters alike."
    )
    logit_bias: tuple[str, ...] = setting(
        (),
        "Token bias",
        "One a line: a token's text or its id, an equals sign, and what is added to its score; for example: "
        "' sure' = -5.",
        multiline=True,
        advanced=True,
        escaped=True,
    )
    allowed_tokens: tuple[int, ...] = setting(
        (), "Allowed token ids", "Only these tokens may be drawn.", low=0, advanced=True
    )
    banned_tokens: tuple[int, ...] = setting(
        (), "Banned token ids", "These tokens are never drawn.", low=0, advanced=True
    )
    heal: bool = setting(
        False,
        "Token healing",
        "When a reply is continued, its last token is chosen again, so that a word cut short can be "
        "completed well.",
        neutral=False,
        advanced=True,
    )
