"""Constraints: which tokens may follow in a reply, and how it must end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from engine.errors import BadSetting
from engine.words import _

if TYPE_CHECKING:
    from engine.constraint.grammar import GrammarFilter
    from engine.constraint.grammar_source import GrammarSource
    from engine.constraint.prefix import PrefixFilter
    from engine.constraint.select import SelectFilter
    from engine.settings import ConstraintSettings
    from engine.text.tokenizer.tokenizer import Tokenizer

__all__ = ["check_constraint", "format_source", "make_filters"]


def make_filters(
    settings: ConstraintSettings, tokenizer: Tokenizer
) -> list[GrammarFilter | SelectFilter | PrefixFilter]:
    """The filters of the settings: one for the format, one for the beginning, if these are set.

    Raises `BadSetting` with a sentence to show: for an invalid schema, expression or grammar, for no choices,
    and for a beginning that the format does not allow.
    """
    from engine.constraint.prefix import PrefixFilter

    form = _form_filter(settings.format, settings.pattern, tokenizer)
    filters: list[GrammarFilter | SelectFilter | PrefixFilter] = [] if form is None else [form]
    if settings.begin_with:
        filters.append(PrefixFilter(tokenizer, settings.begin_with))
        if form is not None and not form.can_begin(settings.begin_with.encode("utf-8", "replace")):
            shown = _short(settings.begin_with)
            raise BadSetting(
                _(
                    "The reply must start with {shown}, which its format does not allow; change one of them.",
                    shown=shown,
                )
            )
    return filters


def check_constraint(format: str, pattern: str) -> str:
    """What is wrong with a format and its text, as a sentence to show, or "". Needs no model."""
    try:
        if format == "choices":
            _lines(pattern)
        elif format != "none":
            _source(format, pattern)
    except BadSetting as error:
        return str(error)
    return ""


def format_source(settings: ConstraintSettings) -> GrammarSource | None:
    """The grammar of the settings' format; None for none. Raises `BadSetting` as `make_filters` does."""
    if settings.format == "none":
        return None
    if settings.format == "choices":
        choices = " | ".join(json.dumps(line, ensure_ascii=False) for line in _lines(settings.pattern))
        return _source("grammar", f"start: {choices}")
    return _source(settings.format, settings.pattern)


def _form_filter(format: str, pattern: str, tokenizer: Tokenizer) -> GrammarFilter | SelectFilter | None:
    from engine.constraint.grammar import GrammarFilter
    from engine.constraint.select import SelectFilter

    if format == "none":
        return None
    if format == "choices":
        return SelectFilter(tokenizer, _lines(pattern))
    return GrammarFilter(tokenizer, _source(format, pattern))


def _source(format: str, pattern: str) -> GrammarSource:
    from engine.constraint.grammar_source import json_source, lark_source, regex_source, schema_source

    if format == "json":
        return json_source()
    sources = {"json_schema": schema_source, "regex": regex_source, "grammar": lark_source}
    if format not in sources:
        raise BadSetting(
            _(
                "{format!r} is not a reply format; it must be none, json, json_schema, regex, "
                "grammar or choices.",
                format=format,
            )
        )
    return sources[format](pattern)


def _lines(pattern: str) -> list[str]:
    lines = [line.strip() for line in pattern.splitlines() if line.strip()]
    if not lines:
        raise BadSetting(_("There are no choices for the reply; write one per line."))
    return lines


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:39] + "…")
