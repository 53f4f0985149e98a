"""ThinkingSwitch: how a chat template is told whether, and how much, the model thinks.

Templates have no standard for this. They read a variable that is true or false (`enable_thinking`,
`thinking`), one word of a list (`reasoning_effort`, `thinking_mode`) or a number of tokens
(`thinking_budget`); or they look for a word such as "/no_think" in the messages. So no list of models is
kept: the variables that a template reads are found in its syntax tree, and a short conversation is rendered
with the values that they may have. A value counts if it changes the prompt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import jinja2.nodes as nodes
from jinja2.meta import find_undeclared_variables

from engine.core import Message, nearest_level
from engine.errors import BadTemplate
from engine.lazy_dataclass import dataclass
from engine.settings.thinking import EFFORTS, OFF, ON
from engine.text.template.sandbox import TemplateOverLimit
from engine.text.template.sandbox_limits import Deadline
from engine.words import _

__all__ = ["Render", "ThinkingSwitch", "Way", "find_switch"]

Render = Callable[[Sequence[Message], Mapping[str, Any]], str]
"""Renders messages with further variables. Raises `BadTemplate`."""

_NAME = re.compile(r"think|thought|reason|effort|(?:^|_)cot(?:_|$)|deliberat", re.IGNORECASE)
_PRINTED = re.compile(r"effort|level|strength", re.IGNORECASE)
"""Variables whose value, printed as it is, tells the model how much to think."""
_REVERSED = {"skip", "no", "non", "not", "disable", "disabled", "without", "hide", "suppress"}
_PLAIN = {
    "think", "thinking", "thought", "thoughts", "reason", "reasoning", "cot", "deliberate", "deliberation",
    "enable", "enabled", "use", "do", "with", "mode", "is", "allow", "force", "add", "on", "include",
    "generate", "generation", "deep", "switch", "flag", "prompt", "model", "should", "want", "activate",
}  # fmt: skip
"""The words that names of variables for the whole of thinking are made of; other names, such as
`thinking_in_english`, mean something else.
"""
_WORDS: dict[str, str] = {
    "none": OFF, "off": OFF, "no_think": OFF, "nothink": OFF, "no_thinking": OFF, "non-thinking": OFF,
    "disabled": OFF, "disable": OFF, "false": OFF, "chat": OFF, "instruct": OFF, "no": OFF,
    **{effort: effort for effort in EFFORTS},
    "on": ON, "think": ON, "thinking": ON, "enabled": ON, "enable": ON, "true": ON, "yes": ON,
}  # fmt: skip
"""The words that templates compare such variables with, and their meaning."""
_USUAL = ("low", "medium", "high")
_BUDGETS = {OFF: 0, "low": 1024, "medium": 8192, "high": 24576}
"""Tokens for thoughts; those of the three levels are Google's (ai.google.dev/gemini-api/docs/openai)."""
_PHRASES = (
    ("/no_think", "/think"),
    ("/nothink", "/think"),
    ("detailed thinking off", "detailed thinking on"),
)
"""What templates look for in messages to switch thinking (off, on)."""
_UNKNOWN = "qzqz"
_TIME_LIMIT = 10.0
"""Seconds of work that all renderings may take; dozens of them take far less."""
_TRIALS = ((Message("user", "Hello"),), (Message("system", "Be brief."), Message("user", "Hello")))


@dataclass(frozen=True, slots=True)
class Way:
    """What sets one level: variables for the template, or a `phrase` for the system message."""

    variables: Mapping[str, Any] = field(default_factory=dict)
    phrase: str = ""

    def messages(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages with the phrase at the end of the system message."""
        if not self.phrase or not messages:
            return messages
        first = messages[0]
        if first.role != "system":
            return (Message("system", self.phrase), *messages)
        return (Message("system", f"{first.content}\n{self.phrase}".lstrip()), *messages[1:])


@dataclass(frozen=True, slots=True)
class ThinkingSwitch:
    """The `levels` of a template, weakest first, each with other prompts, and the one that is the `default`
    ("" for none of them). Both are empty for a template without a switch.
    """

    ways: Mapping[str, Way] = field(default_factory=dict)
    default: str = ""

    @property
    def levels(self) -> tuple[str, ...]:
        """Of `ThinkingSettings.thinking`."""
        return tuple(self.ways)

    def way(self, asked: str) -> Way:
        """How to get a value of `ThinkingSettings.thinking`, or the nearest one that there is."""
        return self.ways.get(nearest_level(asked, self.levels, self.default), Way())


def find_switch(tree: nodes.Template, render: Render) -> ThinkingSwitch:
    """The switch of a template with this syntax tree."""
    try:
        return _Search(tree, render).found()
    except TemplateOverLimit:
        return ThinkingSwitch()


Outcome = tuple[str | None, ...]
"""The prompts of the trial conversations; None where the template refuses one."""


class _Search:
    """Looks for the switch of one template."""

    def __init__(self, tree: nodes.Template, render: Render) -> None:
        self._render = render
        self._texts = {node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)}
        self._tree = tree
        self._names = sorted(name for name in find_undeclared_variables(tree) if _NAME.search(name))
        self._deadline = Deadline(_TIME_LIMIT)
        self._known: dict[object, Outcome] = {}
        self._usual = self._outcome(Way())

    def found(self) -> ThinkingSwitch:
        """The variables come first; a template with those may know phrases too."""
        if not any(self._usual):
            return ThinkingSwitch()
        flags = {name: flag for name in self._names if (flag := self._flag(name)) is not None}
        on = dict(flags)
        off = {name: not flag for name, flag in flags.items()}
        ways: dict[str, Way] = {}
        for name in self._names:
            if name not in flags:
                for level, value in self._values(name, on).items():
                    ways.setdefault(level, Way({**on, name: value} if level != OFF else {name: value}))
        for level, name in self._level_flags(on):
            ways.setdefault(level, Way({**on, name: True}))
        if flags:
            ways |= {OFF: Way(off), ON: Way(on)}
        elif not ways:
            ways = self._phrases()
        return self._switch(ways)

    def _switch(self, ways: Mapping[str, Way]) -> ThinkingSwitch:
        """Those of `ways` that make different prompts, weakest first."""
        made: dict[Outcome, str] = {}
        kept: dict[str, Way] = {}
        for level in (OFF, *EFFORTS, ON):
            if level in ways:
                outcome = self._outcome(ways[level])
                if any(outcome) and outcome not in made:
                    made[outcome] = level
                    kept[level] = ways[level]
        default = made.get(self._usual, "")
        if len(kept) == 1 and not default:
            # the other side is what the template does by itself
            default = ON if OFF in kept else OFF
            kept = {default: Way(), **kept} if default == OFF else {**kept, default: Way()}
        return ThinkingSwitch(kept, default) if len(kept) > 1 else ThinkingSwitch()

    def _outcome(self, way: Way) -> Outcome:
        key = (way.phrase, *((name, type(value), value) for name, value in sorted(way.variables.items())))
        if key not in self._known:
            if self._deadline.passed:
                raise TemplateOverLimit(_("The chat template is too slow to look for its switches."))
            self._known[key] = tuple(self._prompt(way, trial) for trial in _TRIALS)
        return self._known[key]

    def _prompt(self, way: Way, messages: Sequence[Message]) -> str | None:
        try:
            return self._render(way.messages(messages), way.variables)
        except TemplateOverLimit:
            raise
        except BadTemplate:
            return None

    def _flag(self, name: str) -> bool | None:
        """Which value of a variable for true and false switches thinking on; None if it is none."""
        words = set(name.lower().split("_")) - {""}
        if not words <= _PLAIN | _REVERSED or self._values(name, {}):
            return None
        yes, no = self._outcome(Way({name: True})), self._outcome(Way({name: False}))
        unknown = self._outcome(Way({name: _UNKNOWN}))
        if yes == no or not any(yes) or not any(no) or _has(unknown, _UNKNOWN):
            return None
        return not words & _REVERSED

    def _level_flags(self, others: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """(level, name) of variables for true and false that stand for one level, such as `low_effort`, while
        `others` have their values.
        """
        for name in self._names:
            levels = [word for word in name.lower().split("_") if word in EFFORTS]
            yes, no = (self._outcome(Way({**others, name: value})) for value in (True, False))
            if len(levels) == 1 and yes != no:
                yield levels[0], name

    def _values(self, name: str, others: Mapping[str, Any]) -> dict[str, Any]:
        """The values, by level, of a variable for words or numbers, while `others` have theirs."""

        def outcome(value: Any) -> Outcome:
            return self._outcome(Way({**others, name: value}))

        if "budget" in name.lower():
            made = {level: outcome(value) for level, value in _BUDGETS.items()}
            return dict(_BUDGETS) if all(map(any, made.values())) and len(set(made.values())) > 1 else {}
        unknown, without = outcome(_UNKNOWN), self._outcome(Way(others))
        printed = _has(unknown, _UNKNOWN)
        if printed and not _PRINTED.search(name):
            return {}
        found: dict[str, Any] = {}
        for word, level in _WORDS.items():
            if word not in self._texts and not (printed and word in _USUAL):
                continue
            now = outcome(word)
            same = now == unknown
            if printed and word not in EFFORTS:  # it counts if more changes than what is printed
                same = now == tuple(prompt and prompt.replace(_UNKNOWN, word) for prompt in unknown)
            if any(now) and not same:
                found.setdefault(level, word)
        if found and unknown == without:
            # an unknown word becomes the default, whose own word thus changes nothing
            for word in sorted(self._compared(name)):
                if word in _WORDS and outcome(word) == unknown:
                    found.setdefault(_WORDS[word], word)
        return found

    def _compared(self, name: str) -> set[str]:
        """The texts that a variable is compared with, or set to."""
        places = [
            *(node for node in self._tree.find_all(nodes.Compare) if _reads(node, name)),
            *(node for node in self._tree.find_all(nodes.Assign) if _reads(node.target, name)),
        ]
        texts = (text.value for place in places for text in place.find_all(nodes.Const))
        return {text for text in texts if isinstance(text, str)}

    def _phrases(self) -> dict[str, Way]:
        """Phrases in messages that the template looks for: they change more of the prompt than themselves."""
        for off, on in _PHRASES:
            if not any(text.strip() == off for text in self._texts):
                continue
            ways = {OFF: Way(phrase=off), ON: Way(phrase=on)}
            plain = [
                tuple((text or "").replace(way.phrase, "") for text in self._outcome(way))
                for way in ways.values()
            ]
            if plain[0] != plain[1]:
                return ways
        return {}


def _has(outcome: Outcome, text: str) -> bool:
    return any(text in prompt for prompt in outcome if prompt is not None)


def _reads(node: nodes.Node, name: str) -> bool:
    found = (node,) if isinstance(node, nodes.Name) else node.find_all(nodes.Name)
    return any(each.name == name for each in found)
