"""How a reply ended, as the store keeps it (plain JSON) and as a person reads it below the message."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from desktop.items.chats.messages import MessageItem
from desktop.store.conversations.call_words import INSIDE, call_markdown
from desktop.store.conversations.records import LANGUAGE, StoredMessage, code_language
from engine.core import Done, Stats, ToolCall
from engine.core.reasons import reason_words
from engine.units import rate_text
from engine.words import N_, _, dotted, ngettext, translate

__all__ = [
    "LABEL", "avoided_text", "calling_text", "drafting_text", "footer", "message_item", "notice",
    "reason_text", "record", "short", "spoken", "stats_of", "trimmed_text", "unusual_reason",
]  # fmt: skip

_STOPPED = {
    "load": N_("stopped to load a model"), "unload": N_("stopped to unload the model"),
    "close": N_("stopped when Inglenook was closed"),
}  # fmt: skip
"""Words for replies that something else than the user's word ended; see `EngineController.answer`."""
_TRIGGER_CHARACTERS, _NAME_CHARACTERS = 40, 200
_MARK = re.compile(r"<\|?[^<>\s]{1,40}\|?>")
"""A control token, such as <|im_end|> and </s>."""
LABEL = "label"
"""In the record of a reply that was written beside others: how its settings differ from theirs."""


def record(done: Done | None, trimmed: int, error: str, model: str, avoided: int = 0) -> dict[str, Any]:
    """What `ConversationStore.finish` saves: reason, trigger, stats, left-out messages, an error's sentence,
    the model's name, how often a banned text was taken back.
    """
    found: dict[str, Any] = {"model": model}
    if done is not None:
        found |= {"reason": done.reason, "trigger": done.trigger, "stats": dataclasses.asdict(done.stats)}
    elif not error:
        found["reason"] = "cancelled"
    if trimmed:
        found["trimmed"] = trimmed
    if avoided:
        found["avoided"] = avoided
    if error:
        found["error"] = error
    return found


def stats_of(saved: Mapping[str, Any]) -> Stats | None:
    """The `Stats` in a record; None where there are none. Fields of another version are left out."""
    values = saved.get("stats")
    if not isinstance(values, dict):
        return None
    known = {field.name for field in dataclasses.fields(Stats)}
    return Stats(**{name: value for name, value in values.items() if name in known})


def reason_text(saved: Mapping[str, Any]) -> str:
    """Why the reply ended, in a few words; empty where it is not known. The marks with which models end their
    replies are not named.
    """
    reason, trigger = str(saved.get("reason", "")), short(str(saved.get("trigger", "")))
    if reason == "stop_token" and _MARK.fullmatch(trigger):
        trigger = ""
    stopped_by = _STOPPED.get(str(saved.get("stopped_by", ""))) if reason == "cancelled" else None
    return reason_words(reason, trigger) if stopped_by is None else translate(stopped_by)


def short(text: str) -> str:
    """`text` on one line and not too long, for a place among other words."""
    line = " ".join(text.split())
    return line if len(line) <= _TRIGGER_CHARACTERS else line[: _TRIGGER_CHARACTERS - 1].rstrip() + "…"


def spoken(text: str) -> str:
    """`text` without the marks of control tokens, which a screen reader would spell."""
    return _MARK.sub(_("the end marker"), text)


def avoided_text(count: int) -> str:
    """That the reply went back because banned strings had come up; empty when none had."""
    return ngettext("{n} banned phrase avoided", "{n} banned phrases avoided", count) if count > 0 else ""


def calling_text(calls: Sequence[ToolCall]) -> str:
    """What a reply is calling right now; empty for nothing."""
    return _("calling {name}…", name=short(calls[-1].name)) if calls else ""


def unusual_reason(saved: Mapping[str, Any]) -> str:
    """As `reason_text`; empty, too, for a reply that the model ended itself, as nearly all of them end."""
    return "" if saved.get("reason") == "stop_token" else reason_text(saved)


def drafting_text(stats: Stats) -> str:
    """What drafting brought, for example "2.4 tokens per pass, 71 % of drafts accepted"; empty when nothing
    was drafted.
    """
    if not stats.drafted_tokens:
        return ""
    return _(
        "{tokens_per_pass:.1f} tokens per pass, {acceptance_rate:.0f} % of drafts accepted",
        tokens_per_pass=stats.tokens_per_pass,
        acceptance_rate=100 * stats.acceptance_rate,
    )


def footer(saved: Mapping[str, Any]) -> str:
    """For example "42 tokens · 38.1 tok/s · stopped at the token limit"; what matters least stands last,
    where a narrow window cuts it.
    """
    stats = stats_of(saved)
    parts = [str(saved.get(LABEL, ""))]
    if stats is not None and stats.new_tokens:
        parts.append(ngettext("{n} token", "{n} tokens", stats.new_tokens))
    if stats is not None and stats.decode_tokens_per_second > 0:
        parts.append(_("{speed} tok/s", speed=rate_text(stats.decode_tokens_per_second)))
    parts.append(unusual_reason(saved))
    avoided = saved.get("avoided", 0)
    parts.append(avoided_text(avoided) if isinstance(avoided, int) else "")
    parts.append(drafting_text(stats) if stats is not None else "")
    return dotted(*parts)


def notice(message: StoredMessage) -> str:
    """What the reader should know about the message: an error, left-out turns, an interruption; mostly
    empty.
    """
    saved = message.stats
    if message.call is None and message.state == "stopped" and not saved.keys() - {"opened", LANGUAGE}:
        return _("Inglenook ended while this reply was being written. The text written so far was saved.")
    parts = []
    trimmed, tokens = saved.get("trimmed", 0), saved.get("trimmed_tokens", 0)
    if isinstance(trimmed, int) and isinstance(tokens, int):
        parts.append(trimmed_text(trimmed, tokens))
    parts.append(str(saved.get("error", "")))
    return " ".join(part for part in parts if part)


def trimmed_text(count: int, tokens: int = 0) -> str:
    """That the oldest messages, or a number of tokens at a document's beginning, were left out of the prompt;
    empty for nothing.
    """
    if tokens > 0:
        return ngettext(
            "The context was full: the first token of the document was not read.",
            "The context was full: the first {n} tokens of the document were not read.",
            tokens,
        )
    if count <= 0:
        return ""
    return ngettext(
        "The context was full: the oldest message was not read for this reply.",
        "The context was full: the {n} oldest messages were not read for this reply.",
        count,
    )


def _model(message: StoredMessage) -> str:
    """The name of the model that wrote a reply, also of one from another program."""
    model = message.stats.get("model")
    named = message.role == "assistant" and message.call is None and isinstance(model, str)
    return " ".join(str(model).split())[:_NAME_CHARACTERS] if named else ""


def message_item(message: StoredMessage) -> MessageItem:
    """The message as the transcript shows it."""
    call = message.call
    return MessageItem(
        id=message.id,
        role=message.role,
        text=message.text if call is None else call_markdown(call, message.text),
        running=message.state == "running" and call is None,
        variant_index=message.variant_index,
        variant_count=message.variant_count,
        footer=footer(message.stats),
        notice=notice(message),
        opened=str(message.stats.get("opened", "")) if call is None else INSIDE,
        author=message.author.name,
        persona=message.author.persona,
        call=call,
        state="" if call is None else "waiting" if call.waiting else message.state,
        result="" if call is None else message.text,
        language=code_language(message.role, message.stats) if call is None else "",
        written_at=message.created_at,
        model=_model(message),
    )
