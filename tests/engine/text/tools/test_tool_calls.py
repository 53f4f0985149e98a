"""Calls of tools: the forms of published templates, read back from their own text however it is cut."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core import CallPiece, Tool
from engine.text.template.channels import SOLAR
from engine.text.template.template import ChatTemplate
from engine.text.tools.detect import named_id, tool_style
from engine.text.tools.form import CDATA, CHANNEL_FORMS, HERMES, KNOWN, CallForm, known_form
from engine.text.tools.parser import ToolParser
from engine.text.tools.writing import written_calls

FOLDER = Path(__file__).parents[3] / "golden" / "templates"
# harmony's headers are no form of this room; functionary's template takes arguments as a text; GigaChat's
# writes only the first call
NAMES = sorted({path.stem for path in FOLDER.glob("*.jinja")} - {
    "openai-gpt-oss-120b", "meetkai-functionary-medium-v3.2", "GigaChat3-10B-A1.8B",
})  # fmt: skip
SCHEMA = json.dumps({"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}})
TOOLS = (Tool("weather", "The weather.", SCHEMA), Tool("clock"))
ARGUMENTS: tuple[dict[str, Any], ...] = ({"city": "Köln, a < b", "days": 2}, {})
THINK = ("<think>", "</think>")


def read(form: CallForm, pieces: list[str], *, cut: bool = False) -> tuple[str, list[tuple[str, str]]]:
    """The text of a reply, and the names and arguments of its calls."""
    parser = ToolParser(form, TOOLS, (THINK,))
    text, calls = "", list[tuple[str, str]]()
    for piece in [one for part in pieces for one in parser.feed(part)] + parser.finish(cut=cut):
        if isinstance(piece, str):
            text += piece
        elif piece.name:
            assert piece.index == len(calls)
            assert piece.id.startswith("call_")
            calls.append((piece.name, piece.arguments))
        else:
            assert piece == CallPiece(len(calls) - 1, arguments=piece.arguments)
            calls[-1] = calls[-1][0], calls[-1][1] + piece.arguments
    assert parser.calls == len(calls)
    return text, calls


@pytest.mark.slow_after(12)
@pytest.mark.parametrize("name", NAMES)
def test_a_template_s_own_calls_are_read_back(name: str) -> None:
    template = ChatTemplate((FOLDER / f"{name}.jinja").read_text("utf-8"), "<s>", "</s>")
    style = tool_style(template)
    if not style.writes_calls:
        assert style.form in (HERMES, *(form for _, form in KNOWN))
        return
    calls = [
        {
            "id": named_id(tool.name, place) if style.named_ids else f"call0000{place}",
            "type": "function",
            "function": {"name": tool.name, "arguments": given},
        }
        for place, (tool, given) in enumerate(zip(TOOLS, ARGUMENTS, strict=True))
    ]
    offered = [
        {"type": "function", "function": {"name": tool.name, "description": "A tool.", "parameters": {
            "type": "object", "properties": {}, "required": []}}}
        for tool in TOOLS
    ]  # fmt: skip
    turns: list[dict[str, Any]] = [
        {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "", "tool_calls": calls},
    ]  # fmt: skip
    text = template.render(turns, add_generation_prompt=False, tools=offered)
    written = text[text.rfind(style.form.marker, 0, text.rfind("weather")) :]
    found = read(style.form, [written])[1]
    assert [(name, json.loads(given)) for name, given in found] == [
        (tool.name, given) for tool, given in zip(TOOLS, ARGUMENTS, strict=True)
    ]


REPLY = (
    '<think>no <tool_call> here</think>Look: <tool_call> is a tag. <tool_call>\n{"name": "weather", '
    '"arguments": {"city": "K\\u00f6ln \\"x\\"", "days": [1.5, null]}}\n</tool_call>\n'
    '<tool_call>{"arguments": {}, "name": "clock"}</tool_call> Done.'
)


@given(st.sets(st.integers(1, len(REPLY) - 1)))
def test_any_cut_gives_the_same(cuts: set[int]) -> None:
    ends = [0, *sorted(cuts), len(REPLY)]
    text, calls = read(HERMES, [REPLY[a:b] for a, b in pairwise(ends)])
    assert text == "<think>no <tool_call> here</think>Look: <tool_call> is a tag. Done."
    assert calls == [("weather", '{"city": "K\\u00f6ln \\"x\\"", "days": [1.5, null]}'), ("clock", "{}")]


@given(st.integers(0, len(REPLY)))
def test_arguments_cut_off_anywhere_are_left_incomplete(end: int) -> None:
    whole = read(HERMES, [REPLY])[1]
    cut = read(HERMES, [REPLY[:end]])[1]
    for (name, arguments), expected in zip(cut, whole, strict=False):
        assert name == expected[0]
        assert expected[1].startswith(arguments)
    assert all(found == expected for found, expected in zip(cut[:-1], whole, strict=False))


def test_the_opening_of_a_call_that_is_cut_off_is_no_text() -> None:
    call = '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'
    begun = call.index(": {}")  # the arguments
    for end in range(len(call) + 1):
        text, calls = read(HERMES, ["So ", call[:end]], cut=True)
        assert text.rstrip() == ("So <" if end == 1 else "So")  # a lone < may be a text's
        assert [name for name, _ in calls] == ["clock"] * (end >= begun + 3)
        assert read(HERMES, ["So ", call[:end]])[0].rstrip() == f"So {'' if calls else call[:end]}".rstrip()
    two = f"{call}\n{call}"
    for end in range(len(call) + 2, len(two)):
        text, calls = read(HERMES, list(two[:end]), cut=True)
        assert text in ("", "\n<" if end == len(call) + 2 else "")
        assert len(calls) == 1 + (end - len(call) - 1 >= begun + 3)
    assert read(HERMES, ["a <b"], cut=True) == ("a <b", [])
    assert read(HERMES, ["<tool_call>{no"], cut=True) == ("<tool_call>{no", [])
    assert read(CallForm("object"), ['{"name": "Ann'], cut=True) == ('{"name": "Ann', [])


@pytest.mark.parametrize(
    ("written", "text", "arguments"),
    [
        ('{"name": "clock", "arguments": {"a": tru!}}</tool_call> b', '"a": tru!}}</tool_call> b', "{}"),
        ('{"name": "clock", "arguments": {"a": [1, nope]}}', ", nope]}}", '{"a": [1]}'),
        ('{"name": "clock", "arguments": {"a": "x"} oops', " oops", '{"a": "x"}'),
    ],
)
def test_arguments_that_go_wrong_are_closed_and_the_rest_is_text(
    written: str, text: str, arguments: str
) -> None:
    assert read(HERMES, list("<tool_call>" + written)) == (text, [("clock", arguments)])


def test_a_section_that_a_stop_token_ends_leaves_no_text() -> None:
    form = dict(KNOWN)["<|START_ACTION|>"]
    call = '<|START_ACTION|>[{"tool_name": "clock", "parameters": {}}'
    for rest in ("", "]", "]<|END", ', {"tool_name": "wea'):
        assert read(form, list(call + rest)) == ("", [("clock", "{}")])
    assert read(form, list(call + "?")) == ("?", [("clock", "{}")])


@pytest.mark.parametrize("ends", [False, True])
def test_the_marker_of_a_call_may_end_a_thought(ends: bool) -> None:
    form = dict(KNOWN)["<|START_ACTION|>"]
    reply = '<think>Hm <|START <b <|START_ACTION|>[{"tool_name": "clock", "parameters": {}}]<|END_ACTION|> so'
    ends_thoughts = [form.ends_thoughts([one.marker]) for one in (form, HERMES)]
    assert [*ends_thoughts, form.ends_thoughts([])] == [True, False, False]
    split = CallForm("object", call=("<｜DSML｜calls>", ""))
    assert split.ends_thoughts(["｜DSML｜"])
    for pieces in ([reply], list(reply)):
        parser = ToolParser(form, TOOLS, (THINK,), in_thoughts=ends)
        found = [one for piece in pieces for one in parser.feed(piece)] + parser.finish()
        text = "".join(one for one in found if isinstance(one, str))
        assert text == ("<think>Hm <|START <b  so" if ends else reply)
        assert parser.calls == ends


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "unknown", "arguments": {"a": 1}}\n</tool_call>',
        "<tool_call>no JSON</tool_call>",
        '<tool_call>{"arguments": {"a": 1}}</tool_call>',
        '<tool_call>{"name": "clock", "arguments": 7}</tool_call>',
        "<tool_call",
        "a <b> {} \n",
    ],
)
def test_what_is_no_call_stays_text(text: str) -> None:
    assert read(HERMES, list(text)) == (text, [])


def test_a_form_without_marker_begins_the_reply() -> None:
    form = CallForm("object", arguments_key="parameters")
    call = '{"name": "clock", "parameters": {}}'
    assert read(form, list(call)) == ("", [("clock", "{}")])
    assert read(form, [f"It is {call}"]) == (f"It is {call}", [])
    assert read(form, list('{"name": "Ann"}')) == ('{"name": "Ann"}', [])


def test_a_form_without_marker_that_begins_like_a_tag() -> None:
    for kind, call in (("python", "[clock()]"), ("object", '[{"name": "clock", "arguments": {}}]')):
        parser = ToolParser(CallForm(kind, ("[", "]"), between=", "), TOOLS, (THINK, ("[THINK]", "[/THINK]")))
        found = [one for char in call for one in parser.feed(char)] + parser.finish()
        assert [one.name for one in found if isinstance(one, CallPiece) and one.name] == ["clock"]
        assert "".join(one for one in found if isinstance(one, str)) == ""


def test_python_calls() -> None:
    form = dict(KNOWN)["<|tool_call_start|>"]
    escaped = r'<|tool_call_start|>[weather(city="\ud83d\ude00 a\/b \\/ \u00e9")]<|tool_call_end|>'
    assert json.loads(read(form, list(escaped))[1][0][1]) == {"city": "😀 a/b \\/ é"}
    loose = r"<|tool_call_start|>[weather(city='\d+')]<|tool_call_end|>"
    assert json.loads(read(form, list(loose))[1][0][1]) == {"city": "\\d+"}
    text = 'Hm <|tool_call_start|>[weather(city="a)b\'", days=None), clock()]<|tool_call_end|> ok'
    assert read(form, list(text)) == (
        "Hm ok", [("weather", '{"city": "a)b\'", "days": null}'), ("clock", "{}")],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("'one\n  two\r\n'", "one\n  two\r\n"),
        ('"one\n)]"', "one\n)]"),
        ("'''it's\n\"two\" )'''", 'it\'s\n"two" )'),
        ('"""a""\n\\"""b"""', 'a""\n"""b'),
        ("''", ""),
        ("'a\\'b'", "a'b"),
        ("'a\\nb'", "a\nb"),
        ("'it's \"so\" 'b' (c), d'", "it's \"so\" 'b' (c), d"),  # as LFM2.5's template writes it
        ('"say "a" then""', 'say "a" then"'),
        ("''tis'", "'tis"),
        ("'one'\n    \"two\"", "onetwo"),
    ],
)
def test_strings_of_python_may_have_line_breaks_and_three_quotes(written: str, text: str) -> None:
    form = dict(KNOWN)["<|tool_call_start|>"]
    reply = f"<|tool_call_start|>[weather(city={written}, days=1), clock()]<|tool_call_end|>"
    said, calls = read(form, list(reply))
    assert (said, [json.loads(arguments) for _, arguments in calls]) == ("", [{"city": text, "days": 1}, {}])


@pytest.mark.parametrize(
    ("written", "city", "days"),
    [
        ("city='Oslo', days='2'", "Oslo", 2),
        ("days='two', city=75", "75", "two"),
        ("city=0.50, days=2.5", "0.50", 2.5),
        ("city=None, days=True", None, True),
    ],
)
def test_values_of_python_are_of_the_types_of_the_schema(written: str, city: object, days: object) -> None:
    calls = read(dict(KNOWN)["<|tool_call_start|>"], [f"<|tool_call_start|>[weather({written})]"])[1]
    assert json.loads(calls[0][1]) == {"city": city, "days": days}


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | st.text(st.characters(codec="utf-8"), max_size=8)
    | st.sampled_from(["a <b> \"c\" \\ 'd'", "é\n漢", "1", "null", "</tool_call>"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.text("abc_-", min_size=1, max_size=4), inner, max_size=3
    ),
    max_leaves=6,
)  # fmt: skip


@pytest.mark.slow
@given(st.lists(st.dictionaries(st.sampled_from(["city", "days"]), VALUES), min_size=1, max_size=3))
def test_written_calls_are_read_back(given_: list[dict[str, Any]]) -> None:
    for form in [one for one in (HERMES, *dict(KNOWN).values()) if one.kind in ("object", "named")]:
        text, calls = read(form, [written_calls(form, [("clock", one) for one in given_])])
        assert text == ""
        assert [json.loads(arguments) for _, arguments in calls] == given_


@pytest.mark.parametrize("form", [form for _, form in KNOWN], ids=[text for text, _ in KNOWN])
def test_every_known_form_is_read_as_it_is_written(form: CallForm) -> None:
    given_ = {"city": "Köln <b>", "days": 2}
    text, calls = read(form, list(written_calls(form, [("weather", given_), ("weather", {"city": "x"})])))
    assert (text, [json.loads(one) for _, one in calls]) == ("", [given_, {"city": "x"}])


def test_what_stands_behind_a_stop_token_is_no_part_of_a_form() -> None:
    name = "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B"
    template = ChatTemplate((FOLDER / f"{name}.jinja").read_text("utf-8"), "<s>", "</s>")
    form = tool_style(template, stops=("<｜end▁of▁sentence｜>",)).form
    assert form.section == ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")


def form_of(source: str) -> CallForm:
    return tool_style(ChatTemplate(source, "<s>", "</s>"), stops=("<|end|>",)).form


def test_a_thought_before_calls_is_no_part_of_the_form() -> None:
    source = (
        "{{ tools | tojson }}{% for m in messages %}<|{{ m.role }}|>{% if m.tool_calls %}"
        "<|START_THINKING|>{{ m.reasoning_content }}<|END_THINKING|><|START_ACTION|>[\n"
        '{% for c in m.tool_calls %}    {"tool_name": "{{ c.function.name }}", "parameters": '
        "{{ c.function.arguments | tojson }}}{% if not loop.last %},{% endif %}\n{% endfor %}]<|END_ACTION|>"
        "{% else %}{{ m.content }}{% endif %}<|end|>{% endfor %}<|assistant|>"
    )
    form = form_of(source)
    assert (form.section[0].strip(), form.section[1].strip()) == ("<|START_ACTION|>[", "]<|END_ACTION|>")
    assert (form.marker, form.name_key) == ("<|START_ACTION|>", "tool_name")


def test_tools_beside_the_last_question_are_no_part_of_the_form() -> None:
    source = (
        "{% for m in messages %}{% if m.role == 'user' %}{% if tools and messages | length > 1 %}[TOOLS]"
        "{{ tools | tojson }}[/TOOLS]{% endif %}[INST]{{ m.content }}[/INST]{% elif m.tool_calls %}"
        '[TOOL_CALLS][{% for c in m.tool_calls %}{"name": "{{ c.function.name }}", "arguments": '
        "{{ c.function.arguments | tojson }}}{% if not loop.last %}, {% endif %}{% endfor %}]</s>"
        "{% else %}{{ m.content }}</s>{% endif %}{% endfor %}"
    )
    form = form_of(source)
    assert form.section == ("[TOOL_CALLS][", "]")


MINICPM = CallForm(
    "tagged", call=('<function name="', "</function>"), after_name=('">', ""),
    parameter=('<param name="', '">', "</param>"), wrapped=CDATA,
)  # fmt: skip


@pytest.mark.parametrize(
    "city", ["", "a", "a < b & c", "</param>", "<b>", "<![CDAT", "a <![CDATA[b", "]] >\n<", "x]]", "<]]"]
)
def test_wrapped_strings_are_unwrapped(city: str) -> None:
    for given_ in ({"city": city, "days": 2}, {"other": city}):
        text = written_calls(MINICPM, [("weather", given_)])
        for pieces in ([text], list(text)):
            rest, [(_, arguments)] = read(MINICPM, pieces)
            assert (rest, json.loads(arguments)) == ("", given_)


TURNS = (
    "{{ tools | tojson }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% for c in m.tool_calls %}CALL{% endfor %}<|end|>{% endfor %}<|assistant|>"
)


@pytest.mark.parametrize(
    ("call", "kind", "marker", "written"),
    [
        ("{{ c.function.name }}({% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}"
         "{% if not loop.last %}, {% endif %}{% endfor %})", "python", "", 'clock(city="x")'),
        ('<call> {{ {"name": c.function.name, "arguments": c.function.arguments} | tojson }}', "object",
         "<call>", '<call>{"name": "clock", "arguments": {"city": "x"}}'),
    ],
)  # fmt: skip
def test_forms_beside_backslashes_and_without_quotes(call: str, kind: str, marker: str, written: str) -> None:
    source = "Answer with \\ and \\\\." + TURNS.replace("CALL", call)
    if kind == "python":
        source = source.replace("{% for c", "{% if m.tool_calls %}[{% endif %}{% for c").replace(
            "{% endfor %}<|end|>",
            "{% if not loop.last %}, {% endif %}{% endfor %}{% if m.tool_calls %}]{% endif %}<|end|>",
        )
    form = form_of(source)
    assert (form.kind, form.marker) == (kind, marker)
    assert read(form, list(f"[{written}]" if kind == "python" else written)) == (
        "", [("clock", '{"city": "x"}')],
    )  # fmt: skip


def test_a_form_that_the_template_names_beats_one_without_a_marker() -> None:
    source = 'Write functools[{"name": ...}].' + TURNS.replace(
        "CALL", '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}'
    )
    assert form_of(source) == dict(KNOWN)["functools["]


def test_the_beginning_of_a_reply_is_no_part_of_a_call() -> None:
    source = (
        "{{ tools | tojson }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
        '{% for c in m.tool_calls %}\nAction: {"name": "{{ c.function.name }}", "arguments": '
        "{{ c.function.arguments | tojson }}}{% endfor %}<|end|>{% endfor %}Be careful.<|assistant|>"
    )
    assert form_of(source).marker == "Action:"


def test_braces_in_braces_and_lists_are_closed_where_they_end() -> None:
    form = known_form("<start_function_call>")
    assert form is not None
    given = "{place:{city:<escape>Köln<escape>,at:[50,{north:true},[]]},days:2}"
    text = f"<start_function_call>call:weather{given}<end_function_call>"
    want = {"place": {"city": "Köln", "at": [50, {"north": True}, []]}, "days": 2}
    for pieces in ([text], list(text)):
        ((name, arguments),) = read(form, pieces)[1]
        assert (name, json.loads(arguments)) == ("weather", want)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ('{"city": "Köln" "days": 2}', {"city": "Köln"}),
        ('{"city" 1}', {}),
        ('{"at": [1 2], "days": 3}', {"at": [1]}),
        ('{"city": tru}', {}),
    ],
)
def test_arguments_end_before_what_is_no_json(given: str, kept: dict[str, Any]) -> None:
    """They are completed, and what follows them is text: nothing is lost and nothing is guessed."""
    reply = f'<tool_call>\n{{"name": "weather", "arguments": {given}}}\n</tool_call>'
    text, ((name, arguments),) = read(HERMES, [reply])
    assert (name, json.loads(arguments)) == ("weather", kept)
    assert reply.endswith(text)
    assert text.endswith("</tool_call>")
    assert read(HERMES, list(reply)) == (text, [(name, arguments)])


def test_null_is_no_arguments_however_the_reply_is_cut() -> None:
    reply = '<tool_call>\n{"name": "clock", "arguments": null}\n</tool_call>\n'
    reply += '<tool_call>{"arguments": null, "name": "weather"}</tool_call> Done'
    expected = (" Done", [("clock", "{}"), ("weather", "{}")])
    assert read(HERMES, list(reply)) == expected
    assert all(read(HERMES, [reply[:at], reply[at:]]) == expected for at in range(len(reply)))
    bare = "<|tool_call:begin|>a1<|tool_call:name|>clock<|tool_call:args|>null<|tool_call:end|>"
    assert read(CHANNEL_FORMS[SOLAR], list(bare)) == ("", [("clock", "{}")])
    wrong = '<tool_call>{"name": "clock", "arguments": nil}</tool_call>'
    assert read(HERMES, [wrong]) == (wrong, [])
