"""A model's form of calls, found by rendering calls with its chat template."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from engine.errors import BadTemplate
from engine.lazy_dataclass import dataclass
from engine.text.template.channels import ID
from engine.text.template.template import ChatTemplate
from engine.text.tools.form import CDATA, CONTROL, HERMES, CallForm, known_form
from engine.text.tools.rendered import common_start, shared_end, without_start, without_thought
from engine.text.tools.system_tools import SystemTools, system_tools

__all__ = ["ToolStyle", "named_id", "tool_style"]

_NAMES, _KEYS, _VALUES = ("qfirst", "qsecond"), ("qalpha", "qbeta", "qgamma"), ("qvone", "qvtwo", "qvthree")
_RESULT, _ASKED, _PLAIN, _THOUGHT = "qresult", "qasked", "qplain", "qthought"
_IDS = ("call00001", "call00002")
_ARGUMENTS: tuple[dict[str, Any], ...] = (
    {_KEYS[0]: _VALUES[0], _KEYS[1]: _VALUES[1]},
    {_KEYS[2]: _VALUES[2]},
)
_OFFERED = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "A tool.",
            "parameters": {
                "type": "object",
                "properties": {key: {"type": "string", "description": "A text."} for key in keys},
                "required": list(keys),
            },
        },
    }
    for name, keys in zip(_NAMES, _ARGUMENTS, strict=True)
]

_OBJECT = re.compile(r'\{\s*((?:"\w+"\s*:\s*"[^"]*"\s*,\s*)*)(?:"(\w+)"\s*:\s*)?"$')
_KEY = re.compile(r'"(\w+)"\s*:\s*"[^"]*"')
_TO_ARGUMENTS = re.compile(r'"\s*(?:,\s*"(\w+)"\s*)?:\s*\{\s*"$')
_AFTER_OBJECT = re.compile(r'"\s*\}((?:\s*,\s*"\w+"\s*:\s*"[^"]*")*)\s*\}')


@dataclass(frozen=True, slots=True)
class ToolStyle:
    """How a model calls tools: the `form`; whether the template itself shows the tools, writes calls, and
    writes results; whether it takes `arguments` as a JSON text instead of an object; whether it takes no more
    than `one_call` of a message; whether it writes a call's id in place of the name, so that with `named_ids`
    the id has the name in it; whether it looks for the tools in the system message, under `tools`, and there
    for a "list" of them or a "text"; whether calls without a text need `null_content`, and calls with one are
    `calls_alone`: the template leaves them out; whether it leaves out, or refuses, the text beside a thought
    and calls, so that `thoughts_hold_texts`, and `drops_texts` beside calls without a thought, too.
    """

    form: CallForm
    offers: bool
    writes_calls: bool
    writes_results: bool
    arguments_as_text: bool = False
    one_call: bool = False
    named_ids: bool = False
    system_tools: SystemTools = ""
    null_content: bool = False
    calls_alone: bool = False
    thoughts_hold_texts: bool = False
    drops_texts: bool = False


def named_id(name: str, place: int) -> str:
    """The id of a call, the one at `place` in the chat, as Kimi K2 writes it."""
    return f"functions.{name}:{place}"


def tool_style(template: ChatTemplate, control: Sequence[str] = (), stops: Sequence[str] = ()) -> ToolStyle:
    """How a model with this template, these control tokens and the stop tokens `stops` calls tools.

    Templates without tools get the most common form, which the system message then explains.
    """
    style = _style(template, control)
    if not style.offers and (kind := system_tools(template, _OFFERED, _NAMES[0])):
        known = style.form if style.writes_calls else known_form(template.source, control)
        if known is not None:  # else the form has to be explained, too
            style = replace(style, form=known, offers=True, system_tools=kind)
    form = _up_to_stop(style.form, stops)
    native = None if style.offers or style.writes_calls else known_form("", control)
    if native is not None and native.has_control_marker:
        form = replace(form, native=_up_to_stop(native, stops))
    return replace(style, form=form)


def _up_to_stop(form: CallForm, stops: Sequence[str]) -> CallForm:
    return replace(
        form,
        section=(form.section[0], _before_stop(form.section[1], stops)),
        call=(form.call[0], _before_stop(form.call[1], stops)),
    )


def _before_stop(text: str, stops: Sequence[str]) -> str:
    """`text` up to the first stop token in it, which ends the reply."""
    return text[: min([at for stop in stops if stop and (at := text.find(stop)) >= 0], default=len(text))]


def _style(template: ChatTemplate, control: Sequence[str]) -> ToolStyle:
    offers = _NAMES[0] in _rendered(template, [_user()])
    results = _RESULT in _rendered(template, [_user(), _calls(1), _result()])
    writes = False
    for named, as_text, count in product((False, True), (False, True), (2, 1)):
        turn = _calls(count, as_text, named)
        text = _rendered(template, [_user(), turn])
        writes = writes or (not as_text and _NAMES[0] in text and _VALUES[0] in text)
        if not all(part in text for part in (*_NAMES[:count], _KEYS[0], _VALUES[0])):
            continue
        said = _rendered(template, [_user(), {**turn, "content": _PLAIN}])
        bare = _rendered(template, [_user(), {**turn, "content": None}])
        null = _VALUES[0] in bare and len(bare) < len(text)  # "" was a message of its own
        form = _form(template, bare if null else text, count, said)
        # without a text before the name, and without braces, a call looks like any text
        if form is not None and (form.opening.strip() or form.kind in ("object", "python")):
            results = results or _RESULT in _rendered(
                template, [_user(), _calls(1, as_text, named), _result(named)]
            )
            described = None if form.marker else known_form(template.source)  # in what it says of tools
            if _sorts(template, as_text):
                form = replace(form, in_order=True)
            before_call = said.rpartition(_PLAIN)[2].partition(_NAMES[0])
            if before_call[1] and "\n" not in before_call[0] and not form.marker:
                form = replace(form, within_line=True)
            return ToolStyle(
                described or form, offers, True, results, as_text, count == 1, named,
                null_content=null, calls_alone=_PLAIN in said and _VALUES[0] not in said,
                thoughts_hold_texts=_holds_texts(template, turn), drops_texts=_PLAIN not in said,
            )  # fmt: skip
    form = known_form(template.source, control) if offers else None
    return ToolStyle(form or HERMES, offers, writes and offers, results and offers)


def _holds_texts(template: ChatTemplate, turn: dict[str, Any]) -> bool:
    """Whether the thought before the calls of a message is shown, but no text beside it."""
    thought = {**turn, "reasoning_content": _THOUGHT}
    both = _rendered(template, [_user(), {**thought, "content": _PLAIN}])
    return _PLAIN not in both and _THOUGHT in _rendered(template, [_user(), thought])


def _user() -> dict[str, Any]:
    return {"role": "user", "content": _ASKED}


def _id(place: int, named: bool) -> str:
    return named_id(_NAMES[place], place) if named else _IDS[place]


def _calls(count: int, as_text: bool = False, named: bool = False) -> dict[str, Any]:
    calls = [
        {
            "id": _id(place, named),
            "type": "function",
            "function": {"name": _NAMES[place], "arguments": json.dumps(given) if as_text else given},
        }
        for place, given in enumerate(_ARGUMENTS[:count])
    ]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def _call_with(given: dict[str, Any] | str) -> dict[str, Any]:
    call = {"id": _IDS[0], "type": "function", "function": {"name": _NAMES[0], "arguments": given}}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def _sorts(template: ChatTemplate, as_text: bool) -> bool:
    """Whether the template writes arguments in the order of their names, as Gemma 4's does."""
    given = dict(zip(_KEYS[1::-1], _VALUES[1::-1], strict=True))
    shown = _rendered(template, [_user(), _call_with(json.dumps(given) if as_text else given)])
    return shown.rfind(_VALUES[0]) < shown.rfind(_VALUES[1])


def _result(named: bool = False) -> dict[str, Any]:
    return {"role": "tool", "name": _NAMES[0], "tool_call_id": _id(0, named), "content": _RESULT}


def _rendered(template: ChatTemplate, turns: list[dict[str, Any]], *, prompt: bool = False) -> str:
    """The prompt; empty where the template refuses it."""
    try:
        return template.trial(turns, add_generation_prompt=prompt, tools=_OFFERED)
    except BadTemplate:
        return ""


def _form(template: ChatTemplate, text: str, count: int, said: str) -> CallForm | None:
    """The form of the calls at the end of `text`; None for one that is not known. In `said`, a text stands
    before the same calls.
    """
    plain = _rendered(template, [_user(), {"role": "assistant", "content": _PLAIN}])
    end_of_turn = plain.rpartition(_PLAIN)[2]
    prompt = _rendered(template, [_user()], prompt=True)
    before = common_start([text, prompt])
    before = re.sub(r"(?:<[^<>]*|\[[^\[\]]*)$", "", before)  # a tag that both begin alike
    # the calls are the last place where the names stand, after the tools that are offered
    start = text.rfind(_NAMES[0])
    if "\\" in text[start:]:  # arguments that were quoted twice
        return None
    head = text[min(len(before), start) : start]
    if len(before) > start:
        return None
    if _ASKED in head:  # the template moves the tools, so that the two texts part before the user's message
        head, asked = head.rpartition(_ASKED)[2], (prompt, plain.rpartition(_PLAIN)[0])
        head = head[max(len(common_start([head, one.rpartition(_ASKED)[2]])) for one in asked) :]
    head = _without_frame(without_thought(without_start(head, prompt), template.tags), said)
    places = [text.find(part, start) for part in (_KEYS[0], _VALUES[0], _KEYS[1], _VALUES[1])]
    if min(places) < 0 or places != sorted(places):
        return None
    key, value, key2, value2 = places
    to_key = text[start + len(_NAMES[0]) : key]
    to_value = text[key + len(_KEYS[0]) : value]
    to_next = text[value + len(_VALUES[0]) : key2]
    rest = text[value2 + len(_VALUES[1]) :]
    middle, tail, second = "", rest, ""
    if count == 2:
        middle, _, second = rest.rpartition(_NAMES[1])
        second, _, tail = second.partition(_VALUES[2])
        second = second.partition(_KEYS[2])[0]
    tail = tail[: len(tail) - len(shared_end(tail, end_of_turn))]
    if _NAMES[0] in head:  # a name that stands twice is like an id at the first place
        head, middle = (part.replace(name, ID) for part, name in zip((head, middle), _NAMES, strict=True))
    parts = _Parts(head, to_key, second, to_value, to_next, middle, tail)
    if re.fullmatch(r'"\s*:\s*"', to_value) and re.search(r'\{\s*"$', to_key):
        if _TO_ARGUMENTS.match(to_key):
            return _object(parts)
        return _named(parts) if head.strip() else _named_in_prompt(parts, prompt, plain)
    if to_key.strip() == "{" and to_value.startswith(":"):
        quote = to_value[1:].strip()
        return _around(parts, CallForm("braces", quote=quote), quote + "}") if quote else None
    if to_key == "(" and re.fullmatch(r"=['\"]?", to_value):
        return _around(parts, CallForm("python", unquoted=to_value == "="), to_value[1:] + ")")
    return _elements(template, parts) or _tagged(template, parts)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What stands around two names, three keys and three values of rendered calls; `middle` and `tail` begin
    right after the last value of a call.
    """

    head: str
    to_key: str
    second_to_key: str
    to_value: str
    to_next: str
    middle: str
    tail: str


def _object(parts: _Parts) -> CallForm | None:
    begins, arguments = _OBJECT.search(parts.head), _TO_ARGUMENTS.match(parts.to_key)
    if begins is None or arguments is None or bool(begins[2]) != bool(arguments[1]):
        return None
    closes = [_AFTER_OBJECT.match(text) if text else None for text in (parts.middle, parts.tail)]
    after = closes[1] or closes[0]
    if after is None:
        return None
    again = _OBJECT.search(parts.middle)
    stripped = _Parts(
        parts.head[: begins.start()], "", "", "", "",
        parts.middle[closes[0].end() : again.start()] if closes[0] and again else "",
        parts.tail[closes[1].end() :] if closes[1] else "",
    )  # fmt: skip
    form = CallForm(
        "object", name_key=begins[2] or "", arguments_key=arguments[1] or "",
        before=tuple(_KEY.findall(begins[1])), after=tuple(_KEY.findall(after[1])),
    )  # fmt: skip
    return _around(stripped, form, "")


def _named(parts: _Parts) -> CallForm | None:
    after_name = re.sub(r'\{\s*"$', "", parts.to_key)
    second = re.sub(r'\{\s*"$', "", parts.second_to_key)
    pair = (after_name, "")
    if second and second != after_name:  # an id or a number, which differs
        first = common_start([after_name, second])
        first = re.sub(r"\w*$", "", first)
        last = common_start([after_name[len(first) :][::-1], second[len(first) :][::-1]])[::-1]
        pair = first, re.sub(r"^\w*", "", last)
    return _around(parts, CallForm("named", after_name=pair), '"}')


def _named_in_prompt(parts: _Parts, prompt: str, plain: str) -> CallForm | None:
    """Calls before whose names stands what prompts end with; `plain` is a chat that ends with a text."""
    begun = common_start([prompt[::-1], parts.middle[::-1]])[::-1].lstrip()
    form = _named(replace(parts, head=begun))
    if form is None or form.opening != begun or not begun or not plain.startswith(prompt):
        return form
    answer = plain.removeprefix(prompt).partition(_PLAIN)[0]
    return replace(form, section=("", ""), call=(begun, form.call[1]), between="", begun=begun, answer=answer)


def _elements(template: ChatTemplate, parts: _Parts) -> CallForm | None:
    """Elements of XML that are named after the arguments, perhaps with a text before each tag."""
    first, second, third = _KEYS
    found = re.fullmatch(rf"(.*)</{first}>\s*(.*)<", parts.to_next, re.DOTALL)
    begins = f"{found[1]}<" if found is not None else ""
    if found is None or found[1] != found[2] or parts.to_value.strip() != ">" or begins not in parts.to_key:
        return None
    last = third if parts.middle else second
    middle, tail = (
        text.partition(f"{begins}/{key}>")[2] for text, key in ((parts.middle, second), (parts.tail, last))
    )
    after_name = parts.to_key[: parts.to_key.rindex(begins)]
    form = CallForm(
        "elements", after_name=(after_name, ""), parameter=(begins, ">", f"{begins}/"), item=_item(template)
    )
    around = _around(replace(parts, middle=middle, tail=tail), form, "")
    return around if around is not None and around.call[1].strip().startswith(f"{begins}/") else None


def _item(template: ChatTemplate) -> str:
    """The name of the elements of a list."""
    shown = _rendered(template, [_user(), _call_with({"qlist": [_VALUES[0]]})])
    found = re.search(rf"<qlist>.*<(\w+)>{_VALUES[0]}", shown, re.DOTALL)
    return found[1] if found is not None else "item"


def _tagged(template: ChatTemplate, parts: _Parts) -> CallForm | None:
    opening = shared_end(parts.to_key, parts.to_next)
    after_value = parts.to_next[: len(parts.to_next) - len(opening)]
    if not opening.strip() or not after_value.strip():
        return None
    other, middle = "", parts.to_value
    if '"' in middle:  # such as string="true": what stands there before a number?
        numbers = _rendered(template, [_user(), _call_with({"qnum": 90017})])
        found = re.search(r"qnum(.{1,40}?)90017", numbers, re.DOTALL)
        other = found[1] if found is not None and found[1] != middle else ""
    quoted = bool(other) and middle == f'{other}"' and after_value.startswith('"')
    form = CallForm(
        "tagged", after_name=(parts.to_key[: len(parts.to_key) - len(opening)], ""),
        parameter=(opening, other, after_value[1:]) if quoted else (opening, middle, after_value),
        json_value="" if quoted else other, wrapped=CDATA if CDATA[0] in template.source else ("", ""),
        quoted=quoted,
    )  # fmt: skip
    return _around(parts, form, after_value)


def _without_frame(head: str, said: str) -> str:
    """The text before a call without control tokens around the text of the reply, which are there even where
    that is empty (Llama 4's), as `said` shows.
    """
    before, text, after = said[: max(said.rfind(_NAMES[0]), 0)].rpartition(_PLAIN)
    frame = head.strip().removesuffix(after.strip()) if text else ""
    if not before or not CONTROL.fullmatch(frame) or head.strip() == frame:
        return head
    return CONTROL.sub("", after, count=1) if CONTROL.match(after) else head


def _around(parts: _Parts, form: CallForm, closing: str) -> CallForm | None:
    """`form` with the texts around its calls; each call's own text ends with `closing`."""
    middle, tail = parts.middle, parts.tail
    if not tail.startswith(closing) or (middle and not middle.startswith(closing)):
        return None
    middle, tail = middle[len(closing) :], tail[len(closing) :]
    if not parts.middle:
        return _with(form, ("", ""), (parts.head, tail), "")
    opening = parts.head if middle.endswith(parts.head) else shared_end(parts.head, middle)
    middle = middle[: len(middle) - len(opening)]
    close = common_start([middle, tail])
    if close.count("<") > close.count(">"):
        close = close[: close.rfind("<")]
    section = parts.head[: len(parts.head) - len(opening)]
    end = tail[len(close) :] if section.strip() else ""
    if not section.strip():
        opening, section = section + opening, ""
    return _with(form, (section, end), (opening, close), middle[len(close) :])


def _with(form: CallForm, section: tuple[str, str], call: tuple[str, str], between: str) -> CallForm:
    return replace(form, section=section, call=call, between=between)
