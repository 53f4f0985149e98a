"""The forms in which models write calls of tools, as data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from engine.lazy_dataclass import dataclass
from engine.text.template.channels import CALL_BEGIN, CALL_END, HARMONY, ID, KIMI, MUSE, SOLAR, ChannelFormat

__all__ = [
    "CDATA",
    "CHANNELS",
    "CHANNEL_FORMS",
    "CONTROL",
    "HERMES",
    "KNOWN",
    "CallForm",
    "Kind",
    "known_form",
]

Kind = Literal["object", "named", "tagged", "elements", "braces", "python"]

CONTROL = re.compile(r"<[|｜][^<>]+[|｜]\w*>|\[[A-Z_]+\]")
"""What is written like a control token, and thus stands in no text but as one."""
_MARKER = re.compile(r"<[^<>\s]*>|\[[A-Z_]{3,}\]|\S+")


@dataclass(frozen=True, slots=True)
class CallForm:
    """How calls are written, in the white space of the template; readers ignore white space at their edges.

    `section` stands around all calls, `call` around each, `between` between two; before a name, `ID` stands
    for any id. `notice` is the marker, where that is longer than one token. Inside a call:

    - "object": a JSON object with the tool's name under `name_key` and its arguments under `arguments_key`;
      without `name_key`, the tool's name is itself the key of its arguments. `before` and `after` are further
      keys, with strings as values.
    - "named": the name, `after_name` (two texts with an id of letters and digits between them, or none), then
      the arguments as JSON.
    - "tagged": the name, `after_name` as above, then for each argument `parameter[0]`, its name,
      `parameter[1]`, its value, `parameter[2]`. Strings are written as they are, perhaps between the two
      texts `wrapped`, or as JSON if `quoted`; other values as JSON, after `json_value` if that is not empty.
    - "elements": as "tagged", but the name stands again in what ends a value: `parameter[0]`, the name,
      `parameter[1]`, the value, `parameter[2]`, the name, `parameter[1]`. A value may itself consist of such
      elements: an object of one for each member, a list of one for each item, all named `item`.
    - "braces": `name{key:value,...}` with bare keys; strings stand between two `quote`.
    - "python": `name(key=value, ...)` with Python literals; with `unquoted`, the template writes strings
      without quotes.

    Where `begun` is not empty, prompts end with it, and a call has the rest of `opening`, while a text begins
    with `answer`. With `in_order`, arguments and members stand in the order of their names. With
    `within_line`, a call without a marker may stand right after a text. `native` is another form that counts,
    too: that of the vocabulary's control tokens, where prompts explain this one.
    """

    kind: Kind
    section: tuple[str, str] = ("", "")
    call: tuple[str, str] = ("", "")
    between: str = ""
    name_key: str = "name"
    arguments_key: str = "arguments"
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    after_name: tuple[str, str] = ("", "")
    parameter: tuple[str, str, str] = ("", "", "")
    json_value: str = ""
    wrapped: tuple[str, str] = ("", "")
    quoted: bool = False
    quote: str = ""
    unquoted: bool = False
    notice: str = ""
    item: str = "item"
    begun: str = ""
    answer: str = ""
    in_order: bool = False
    within_line: bool = False
    native: CallForm | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts that are neither names nor values."""
        return (*self.section, *self.call, self.between, *self.after_name, *self.parameter, self.json_value,
                self.quote)  # fmt: skip

    @property
    def opening(self) -> str:
        """All that stands before the first call's name or object."""
        return self.section[0] + self.call[0]

    @property
    def marker(self) -> str:
        """The text by which the first call is noticed; empty if only the beginning of a reply shows it."""
        found = re.match(re.escape(self.notice), self.opening) if self.notice else None
        found = found or _MARKER.match(self.opening.strip().partition(ID)[0])
        return found[0] if found is not None and found[0] not in ("[", "{") else ""

    @property
    def bare(self) -> CallForm | None:
        """A call without the first tag of its opening, which some models leave out; None where no tag of
        another beginning follows it, nor a word as in Gemma's.
        """
        opening = self.opening.strip()
        marker = re.match(r"<[^<>\s]*>", opening) if self.kind == "braces" else None
        rest = opening.removeprefix(marker[0] if marker else self.marker).lstrip()
        if not self.marker or not (rest.startswith("<") or (marker and rest.endswith(":"))):
            return None
        found = replace(self, section=("", self.section[1]), call=(rest, self.call[1]), notice="")
        return None if self.marker.startswith(found.marker) else found

    def ends_thoughts(self, tokens: Iterable[str]) -> bool:
        """Whether the marker, if one of these tokens is a part of it, begins a call inside a thought, too."""
        return self.has_control_marker and any(text in self.marker for text in tokens)

    @property
    def has_word_marker(self) -> bool:
        """Whether the marker is a word of its own, `call:`, which counts at the beginning of a line only."""
        return self.kind == "braces" and self.marker[:1].isalpha()

    @property
    def has_control_marker(self) -> bool:
        """Whether the marker is written like a control token."""
        return CONTROL.fullmatch(self.marker) is not None


CDATA = ("<![CDATA[", "]]>")
"""What stands around a text with signs of XML."""

HERMES = CallForm("object", call=("<tool_call>\n", "\n</tool_call>"), between="\n")
"""The most common form, which models without tools of their own are asked to write."""

CHANNELS = CallForm("named", call=(CALL_BEGIN, CALL_END), after_name=("\n", ""))
"""Calls of models with OpenAI's channels, as `Channels` writes them."""

CHANNEL_FORMS: Mapping[ChannelFormat, CallForm] = {
    HARMONY: CHANNELS,
    MUSE: CallForm(
        "tagged", after_name=('">\n', ""), parameter=('<atem:parameter name="', '">', "</atem:parameter>\n"),
        call=('<atem:function_calls>\n<atem:invoke name="', "</atem:invoke>\n</atem:function_calls>"),
    ),
    SOLAR: CallForm(
        "named", call=(f"<|tool_call:begin|>{ID}<|tool_call:name|>", "<|tool_call:end|>"),
        after_name=("<|tool_call:args|>", ""),
    ),
    KIMI: CallForm(
        "tagged", ("<|open|>tools<|sep|>", "<|close|>tools<|sep|>"),
        ('<|open|>call tool="', "<|close|>call<|sep|>"), after_name=('" index="', '"<|sep|>'),
        parameter=('<|open|>argument key="', '" type="string"<|sep|>', "<|close|>argument<|sep|>"),
        json_value=f'" type="{ID}"<|sep|>', notice="<|open|>tools<|sep|>",
    ),
}  # fmt: skip
"""How calls are written in channels."""

KNOWN: tuple[tuple[str, CallForm], ...] = (
    ("<|tool_calls_section_begin|>", CallForm(
        "named", ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        ("<|tool_call_begin|>functions.", "<|tool_call_end|>"),
        after_name=(":", "<|tool_call_argument_begin|>"),
    )),
    ("<｜tool▁calls▁begin｜>", CallForm(
        "named", ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
        ("<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```<｜tool▁call▁end｜>"), "\n",
        after_name=("\n```json\n", ""),
    )),
    ("<|START_ACTION|>", CallForm(
        "object", ("<|START_ACTION|>[", "]<|END_ACTION|>"), between=", ", name_key="tool_name",
        arguments_key="parameters", before=("tool_call_id",),
    )),
    ("<|tool_call_start|>", CallForm(
        "python", ("<|tool_call_start|>[", "]<|tool_call_end|>"), between=", ",
    )),
    ("<|/tool_call|>", CallForm("object", ("<|tool_call|>[", "]<|/tool_call|>"), between=", ")),
    ("<|tool_call|>", CallForm("object", ("<|tool_call|>[", "]"), between=", ")),
    ("[TOOL_CALLS]", CallForm("object", ("[TOOL_CALLS][", "]"), between=", ", after=("id",))),
    ("functools[", CallForm("object", ("functools[", "]"), between=", ")),
    ("<start_function_call>", CallForm(
        "braces", call=("<start_function_call>call:", "<end_function_call>"), quote="<escape>",
    )),
    ("<arg_key>", CallForm(
        "tagged", call=("<tool_call>", "\n</tool_call>"), between="\n", after_name=("\n", ""),
        parameter=("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n"),
    )),
    ("<function=", CallForm(
        "tagged", call=("<tool_call>\n<function=", "</function>\n</tool_call>"), between="\n",
        after_name=(">\n", ""), parameter=("<parameter=", ">\n", "\n</parameter>\n"),
    )),
    ("<tool_call>", HERMES),
)  # fmt: skip
"""Forms by a text that their templates or vocabularies have; for templates that offer tools, but do not write
calls themselves."""


def known_form(source: str, control: Sequence[str] = ()) -> CallForm | None:
    """The form that a template's source speaks of, or one whose marker is among the control tokens."""
    return next((form for text, form in KNOWN if text in source or text in control), None)
