"""What a server does with a model: found by `probe`, kept, and shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, Self

from engine.lazy_dataclass import dataclass
from engine.printable import one_line
from engine.words import _

CONTINUES_BY_FLAGS, CONTINUES_ALWAYS = "flags", "always"


@dataclass(frozen=True)
class Capabilities:
    """What was found out about one model of a server; a field's default means "it does not", or 0 "unknown".

    Attributes:
        server: what the server says it is.
        context_length: in tokens.
        chat, completions: `/chat/completions` answers; `/completions` does (for notebooks).
        usage: a stream ends with the numbers of tokens.
        limit: the name of the parameter for the most tokens of a reply.
        top_logprobs: the most alternatives that come with each token; -1 for none but the token's own
            probability, 0 for no probabilities.
        several: it gives `n` answers to one request.
        continues: how it continues an unfinished reply: by "flags" (`continue_final_message`), "always", or
            "" for not at all.
        tokenize: whose way it counts tokens: "vllm", "llama.cpp", "llama-cpp-python", or "" for none.
        pictures: whether messages may have pictures: "yes", "no", or "" for unknown.
        pictures_why: what the server says about it.
        reasoning: the name of the field with a model's thoughts; "" for none seen.
        thinking_by, thinking: the parameter that switches thinking (`thinking.Switch`), and its levels.
        schema, regex, grammar: the parameter that constrains replies to a JSON schema, a regular expression,
            a Lark grammar; "" for none.
        tools: it takes `tools` and calls one.
        finishes: a complete reply ends with a `finish_reason`, so one that ends without was broken off.
        stops, stop_reason: it obeys `stop`, and says which of the texts ended the reply.
        taken: the other parameters that it takes, of `request.PARAMETERS`.
        notes: sentences about what could not be found out.
        probed: when, in seconds since 1970.
    """

    server: str = ""
    context_length: int = 0
    chat: bool = False
    completions: bool = False
    usage: bool = False
    limit: str = "max_tokens"
    top_logprobs: int = 0
    several: bool = False
    continues: str = ""
    tokenize: str = ""
    pictures: str = ""
    pictures_why: str = ""
    reasoning: str = ""
    thinking_by: str = ""
    thinking: tuple[str, ...] = ()
    schema: str = ""
    regex: str = ""
    grammar: str = ""
    tools: bool = False
    finishes: bool = False
    stops: bool = False
    stop_reason: bool = False
    taken: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    probed: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """The fields, for a settings file."""
        return {
            **asdict(self), "taken": list(self.taken), "notes": list(self.notes),
            "thinking": list(self.thinking),
        }  # fmt: skip

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """What `to_json` wrote; fields that are unknown or of another type have their defaults."""
        found: dict[str, Any] = {}
        for field in fields(cls):
            value, default = values.get(field.name), field.default
            if isinstance(default, tuple):
                if isinstance(value, list) and all(isinstance(part, str) for part in value):
                    found[field.name] = tuple(value)
            elif isinstance(default, float):
                if isinstance(value, int | float) and not isinstance(value, bool):
                    found[field.name] = float(value)
            elif type(value) is type(default):
                found[field.name] = value
        return cls(**found)

    def rows(self) -> tuple[tuple[str, str], ...]:
        """(what, finding) in words, to be shown."""

        def found(yes: bool, words: str = "yes") -> str:
            return words if yes else "no"

        top = self.top_logprobs
        return (
            (_("Server"), one_line(self.server) or _("not stated by the server")),
            (
                _("Context"),
                _("{context_length:,} tokens", context_length=self.context_length)
                if self.context_length
                else _("does not say"),
            ),
            (_("Chat"), found(self.chat)),
            (_("Plain text, for notebooks"), found(self.completions)),
            (_("Tokens counted in streams"), found(self.usage)),
            (
                _("Probabilities of tokens"),
                _("yes, with up to {top} alternatives", top=top)
                if top > 0
                else found(top < 0, _("of the chosen token only")),
            ),
            (
                _("Continues a reply"),
                {CONTINUES_BY_FLAGS: "yes", CONTINUES_ALWAYS: _("yes, always")}.get(
                    self.continues, _("no, it starts a new one")
                ),
            ),
            (_("Several replies to one request"), found(self.several)),
            (_("Counts the tokens of a text"), found(bool(self.tokenize))),
            (_("Pictures"), self._pictures_found()),
            (
                _("Thoughts"),
                _("yes, as “{reasoning}”", reasoning=self.reasoning) if self.reasoning else _("none seen"),
            ),
            (
                _("Switch for thinking"),
                found(bool(self.thinking), _("yes: {levels}", levels=", ".join(self.thinking))),
            ),
            (_("JSON schema"), found(bool(self.schema))),
            (_("Regular expression"), found(bool(self.regex))),
            (_("Grammar"), found(bool(self.grammar))),
            (_("Tools"), found(self.tools)),
            (
                _("Stop strings"),
                found(self.stops, _("yes, and it says which") if self.stop_reason else "yes"),
            ),
            (_("Other settings"), ", ".join(self.taken) or "none"),
        )

    def _pictures_found(self) -> str:
        if not self.pictures:
            return _("not known; test the model again")
        why = one_line(self.pictures_why)
        return _("no: {why}", why=why) if self.pictures == "no" and why else self.pictures
