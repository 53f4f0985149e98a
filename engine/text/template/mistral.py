"""The chat format of models as Mistral AI publishes them: their vocabulary states its version.

Source: mistral-common 1.13, `tokens/tokenizers/instruct.py`: version 1 has plain text, 2 and 3 put the system
prompt into the last message of the user, 7 gives it tokens of its own, 11 writes calls of tools by tokens
instead of JSON, 13 offers tools before the first message and leaves out ids of calls, 15 has model settings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.text.template.fallback import fallback_source

_VERSIONED = re.compile(r"tokenizer\.model\.v(\d{1,3})(?:m\d+)?")


def mistral_source(version: int, gap: str = "", thinks: bool = False, efforts: Sequence[str] = ()) -> str:
    """The template of a version. `gap` is what the vocabulary puts before each text: a space for
    SentencePiece. `thinks`: whether it has tokens for thoughts. `efforts`: the values of `reasoning_effort`,
    the usual one first.
    """
    given = {"version": version, "gap": gap, "thinks": thinks, "efforts": list(efforts)}
    named = "".join(
        f"{{%- set {name} = {str(value).lower() if isinstance(value, bool) else json.dumps(value)} -%}}"
        for name, value in given.items()
    )
    return named + fallback_source("mistral_versions")


def tekken_template(data: Mapping[str, Any]) -> str | None:
    """The template for what tekken.json says; None where it states no version."""
    config = data.get("config")
    version = config.get("version") if isinstance(config, dict) else None
    found = re.fullmatch(r"v(\d{1,3})", version) if isinstance(version, str) else None
    if found is None:
        return None
    entries = data.get("special_tokens") or []
    tokens = {entry.get("token_str") for entry in entries if isinstance(entry, dict)}
    number = int(found[1])
    return mistral_source(
        number, "", number >= 13 and {"[THINK]", "[/THINK]"} <= tokens, _efforts(data) if number >= 15 else ()
    )


def _efforts(data: Mapping[str, Any]) -> list[str]:
    """The values of `reasoning_effort` that a model of version 15 knows; [] if it has none."""
    builder = data.get("model_settings_builder")
    field = builder.get("reasoning_effort") if isinstance(builder, dict) else None
    values = field.get("values") if isinstance(field, dict) else None
    named = [value for value in values if isinstance(value, str)] if isinstance(values, list) else []
    usual = field.get("default") if isinstance(field, dict) else None
    return sorted(named, key=lambda value: (value != usual, value != "none"))


def versioned_vocabulary(folder: Path) -> tuple[Path, int] | None:
    """SentencePiece's model and its version, such as 3 for tokenizer.model.v3: the latest; None if there is
    none.
    """
    found = [
        (int(match[1]), path) for path in folder.glob("tokenizer.model.v*")
        if (match := _VERSIONED.fullmatch(path.name))
    ]  # fmt: skip
    return (max(found)[1], max(found)[0]) if found else None
