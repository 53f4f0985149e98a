"""Forms of calls that need more than a marker: nested elements, names in the prompt, tools as a text."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from engine.constraint import format_source
from engine.constraint.calls.grammar import CallGrammar, trigger
from engine.constraint.grammar import GrammarFilter
from engine.core import CallPiece, Message, Rendered, Tool, ToolCall
from engine.settings import ConstraintSettings
from engine.text.template.channels import ID, KIMI
from engine.text.template.template import ChatTemplate
from engine.text.tools.detect import tool_style
from engine.text.tools.form import CHANNEL_FORMS, CallForm
from engine.text.tools.messages import conversation
from engine.text.tools.parser import ToolParser
from engine.text.tools.values import argument_types, keyword_of
from engine.text.tools.writing import written_calls
from tests.engine.generator.fakes import tokenizer
from tests.engine.test_tool_calls import ask, fake_chat

SCHEMA = {
    "properties": {
        "city": {"type": "string"}, "days": {"type": "integer"}, "ok": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}}, "deep": {"$ref": "#/$defs/Deep"},
        "some": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/Deep"}}, {"type": "null"}]},
    },
    "required": ["city"],
    "$defs": {"Deep": {"type": "object", "properties": {"x": {"type": "number"}, "k": {"type": "string"}}}},
}  # fmt: skip
TOOLS = (Tool("weather", "Tells the weather.", json.dumps(SCHEMA)), Tool("clock"))
WHOLE = {
    "city": "Köln\n <b>", "days": -2, "ok": True, "tags": ["7", ""], "deep": {"x": 1.5, "k": "true"},
    "some": [{"x": 2, "k": ""}, {"x": 0}],
}  # fmt: skip


def read(form: CallForm, pieces: list[str], *, begun: bool = False) -> tuple[str, list[tuple[str, str]]]:
    """The text, and the calls with their arguments as they are written."""
    parser, text, calls = ToolParser(form, TOOLS, begun=begun), "", list[tuple[str, str]]()
    for piece in [one for part in pieces for one in parser.feed(part)] + parser.finish():
        if isinstance(piece, str):
            text += piece
        elif piece.name:
            calls.append((piece.name, piece.arguments))
        elif isinstance(piece, CallPiece):
            calls[-1] = calls[-1][0], calls[-1][1] + piece.arguments
    return text, calls


def follows(form: CallForm, text: str, *, begun: bool = False, content: Any = None) -> bool:
    """Whether a whole reply in which a call is required, or one of this format, may be `text`."""
    filter = GrammarFilter(tokenizer(), CallGrammar(form, TOOLS, begun=begun).whole(content=content))
    return filter.follow(text.encode()) and filter.may_end


def check_cuts(form: CallForm, reply: str, *, begun: bool = False) -> list[tuple[str, Any]]:
    """The calls of a reply, which is read alike in any two pieces, and whose beginning has the same calls."""
    text, calls = read(form, [reply], begun=begun)
    assert read(form, list(reply), begun=begun) == (text, calls)
    for cut in range(len(reply)):
        assert read(form, [reply[:cut], reply[cut:]], begun=begun) == (text, calls)
        for (name, arguments), whole in zip(read(form, [reply[:cut]], begun=begun)[1], calls, strict=False):
            assert name == whole[0]
            assert whole[1].startswith(arguments)
    return [(name, json.loads(arguments)) for name, arguments in calls]


# -- nested elements

NESTED = (
    "{% macro xml(v) %}{% if v is mapping %}{% for k, x in v.items() %}=<{{ k }}>{{ xml(x) }}=</{{ k }}>"
    "{% endfor %}{% elif v is iterable and v is not string %}{% for x in v %}=<one>{{ xml(x) }}=</one>"
    "{% endfor %}{% elif v is string %}{{ v }}{% else %}{{ v | tojson }}{% endif %}{% endmacro %}"
    "{{ tools | tojson }}{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}</mm:think>"
    "{% endif %}{{ m.content }}{% if m.tool_calls %}=<calls>\n{% for c in m.tool_calls %}"
    '=<call of="{{ c.function.name }}">{{ xml(c.function.arguments) }}=</call>\n{% endfor %}=</calls>'
    "{% endif %}[end]\n{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
    "{# <mm:think> #}"
)


@pytest.fixture(scope="module")
def nested() -> CallForm:
    return tool_style(ChatTemplate(NESTED, None, None)).form


def test_elements_are_found_in_a_template(nested: CallForm) -> None:
    assert (nested.kind, nested.marker, nested.item) == ("elements", "=<calls>", "one")
    assert nested.parameter == ("=<", ">", "=</")


def test_nested_elements_are_read_by_their_schema(nested: CallForm) -> None:
    reply = "Look: " + written_calls(nested, [("weather", WHOLE), ("clock", {}), ("weather", {"city": "="})])
    assert check_cuts(nested, reply) == [("weather", WHOLE), ("clock", {}), ("weather", {"city": "="})]
    assert read(nested, [reply])[0] == "Look:"
    loose = (
        '=<calls>=<call of="weather">\n=<deep>\n=<x>1=</x>\n=</deep>\n=<tags>=</tags>=<more>=<a>b=</a>'
        "=</more>=<list>=<one>3=</one>=</list>=<some>null=</some>\n=</call>=</calls>"
    )
    assert check_cuts(nested, loose) == [
        ("weather", {"deep": {"x": 1}, "tags": [], "more": {"a": "b"}, "list": [3], "some": None})
    ]


def test_the_grammar_of_nested_elements(nested: CallForm) -> None:
    assert follows(nested, written_calls(nested, [("weather", WHOLE), ("clock", {})]).strip())
    for wrong in ({}, {"city": "x", "days": 1.5}, {"city": "x", "deep": {"x": "y"}}, {"city": "x", "no": 1}):
        assert not follows(nested, written_calls(nested, [("weather", wrong)]).strip()), wrong


def test_a_closing_tag_alone_may_stand_before_a_required_call(nested: CallForm) -> None:
    tags, call = (("<mm:think>", "</mm:think>"),), written_calls(nested, [("clock", {})]).strip()
    for lead in ("", "</mm:think>", "<mm:think>Hm</mm:think>"):
        filter = GrammarFilter(tokenizer(), CallGrammar(nested, TOOLS).whole(tags))
        assert filter.follow((lead + call).encode())
        assert filter.may_end


# -- names in the prompt

RECIPIENTS = (
    "{{ tools | tojson }}{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}"
    "{% if m.content %}>>>all\n{{ m.content }}{% endif %}{% for c in m.tool_calls %}"
    ">>>{{ c.function.name }}\n{{ c.function.arguments + '' }}{% endfor %}{% else %}{{ m.content }}"
    "{% endif %}[end]{% endfor %}{% if add_generation_prompt %}[assistant]>>>{% endif %}"
)
"""As Functionary's."""
ROLES = (
    "{{ tools | tojson }}{% for m in messages %}{% if m.tool_calls %}{% for c in m.tool_calls %}<|assistant|>"
    "{{ c.function.name }}\n{{ c.function.arguments | tojson }}{% endfor %}{% else %}<|{{ m.role }}|>\n"
    "{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""As GLM-4's."""
OSLO = '{"city": "Oslo"}'


def test_names_after_the_prompt_are_found() -> None:
    form = tool_style(ChatTemplate(RECIPIENTS, None, None)).form
    assert (form.kind, form.opening, form.begun, form.answer) == ("named", ">>>", ">>>", "all\n")
    calls = check_cuts(form, f"weather\n{OSLO}>>>clock\n{{}}", begun=True)
    assert calls == [("weather", {"city": "Oslo"}), ("clock", {})]
    reply = f"all\nLook:\n>>>weather\n{OSLO}"
    assert check_cuts(form, reply, begun=True) == calls[:1]
    assert read(form, [reply], begun=True)[0] == "Look:"
    for text in ("weather is fine", "nothing\n{}", "clock", ">>> a"):
        assert read(form, list(text), begun=True) == (text, [])
    assert follows(form, f"clock\n{{}}>>>weather\n{OSLO}", begun=True)
    assert not follows(form, "all\nHi", begun=True)
    content = format_source(ConstraintSettings(format="regex", pattern="[0-9]+"))
    assert follows(form, "all\n12", begun=True, content=content)
    assert follows(form, "clock\n{}", begun=True, content=content)


@pytest.mark.parametrize(("source", "lead"), [(RECIPIENTS, "all\n"), (ROLES, "\n")], ids=["text", "token"])
def test_replies_whose_prompt_ends_before_a_name(source: str, lead: str) -> None:
    again = ">>>" if source == RECIPIENTS else "<|assistant|>"
    calls = [("weather", OSLO), ("clock", "{}")]
    for choice in ("auto", "required"):
        chat = fake_chat(f"weather\n{OSLO}{again}clock\n{{}}", source)
        assert ask(chat, tool_choice=choice)[:2] == ("", calls)
    assert ask(fake_chat(f"weather\n{OSLO}", source), tool_choice="weather")[:2] == ("", calls[:1])
    text, found, _ = ask(fake_chat(f"{lead}It rains.", source))
    assert (text.strip(), found) == ("It rains.", [])


def test_arguments_are_enforced_after_a_name_in_the_prompt() -> None:
    text, calls, _ = ask(fake_chat('weather\n{"days": "x"}', RECIPIENTS))
    assert text == ""
    assert calls[0][0] == "weather"
    assert '"days": "x"' not in calls[0][1]


def test_without_tools_the_prompt_begins_the_answer() -> None:
    chat = fake_chat("It rains.", RECIPIENTS)
    text, calls, events = ask(chat, tools=(), report_prompt=True)
    assert (text, calls) == ("It rains.", [])
    ids = next(event.ids for event in events if isinstance(event, Rendered))
    assert tokenizer().decode(ids).endswith("[assistant]>>>all\n")


# -- names that stand twice, markers of several words

LISTED = (
    "{{ tools | tojson }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% if m.tool_calls %}FIRST"
    "{% for c in m.tool_calls %}CALL{% if not loop.last %}BETWEEN{% endif %}{% endfor %}LAST{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)
TWICE = (
    "<|call|>{{ c.function.name }}{{ '\n' }}<invoke name=\"{{ c.function.name }}\">{% for k, v in "
    'c.function.arguments.items() %}<value of="{{ k }}">{{ v }}</value>{% endfor %}</invoke><|end|>'
)
"""As Step 3's."""
QUOTED = (
    "<call>{{ c.function.name }}{% for k, v in c.function.arguments.items() %}<key>{{ k }}</key><value>"
    "{{ v | tojson }}</value>{% endfor %}</call>"
)
"""As HyperCLOVA X's."""
WORDS = "**Tool Call:**{{ '\n' }}{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }};"
"""As RWKV-7's."""


@pytest.mark.parametrize(
    ("first", "call", "between", "last", "reply"),
    [
        (
            "<|calls|>", TWICE, "", "<|over|>",
            '<|calls|><|call|>weather\n<invoke name="weather"><value of="city">Oslo</value></invoke><|end|>'
            '<|call|>clock\n<invoke name="clock"></invoke><|end|><|over|>',
        ),
        (
            "", WORDS, "{{ '\n' }}", "",
            f'**Tool Call:**\n{{"name": "weather", "arguments": {OSLO}}};\n'
            '**Tool Call:**\n{"name": "clock", "arguments": {}};',
        ),
        (
            "", QUOTED, "", "",
            '<call>weather<key>city</key><value>"Oslo"</value></call><call>clock</call>',
        ),
    ],
    ids=["name twice", "several words", "quoted"],
)  # fmt: skip
def test_texts_before_a_name(first: str, call: str, between: str, last: str, reply: str) -> None:
    source = LISTED.replace("FIRST", first).replace("CALL", call).replace("BETWEEN", between)
    form = tool_style(ChatTemplate(source.replace("LAST", last), None, None)).form
    for text in ("", "Look: "):
        assert check_cuts(form, text + reply) == [("weather", {"city": "Oslo"}), ("clock", {})]
        assert read(form, [text + reply])[0] == text.rstrip()
    assert follows(form, reply)


def test_an_id_in_what_a_call_begins_with() -> None:
    source = (
        LISTED.replace("FIRST", "")
        .replace("LAST", "")
        .replace("BETWEEN", "")
        .replace("CALL", "to={{ c.function.name }};" + QUOTED)
    )
    form = tool_style(ChatTemplate(source, None, None)).form
    assert (form.call[0], form.marker) == (f"to={ID};<call>", "to=")
    call = 'to=weather;<call>weather<key>city</key><value>"Oslo"</value></call>'
    assert check_cuts(form, f"Go to=x {call}") == [("weather", {"city": "Oslo"})]
    pattern, by_marker = trigger(form, TOOLS, {})
    found = pattern.search(f"Go to=x {call}".encode())
    assert found is not None
    assert (found[0].strip(), by_marker) == (b"to=weather;<call>weather", False)


def test_strings_in_quotes_are_read_with_and_without() -> None:
    source = LISTED.replace("CALL", QUOTED).replace("FIRST", "").replace("LAST", "").replace("BETWEEN", "")
    form = tool_style(ChatTemplate(source, None, None)).form
    assert (form.quoted, form.parameter) == (True, ("<key>", "</key><value>", "</value>"))
    given = {"city": 'a "b" \n </value>', "days": 3, "tags": ["x"], "deep": {"x": 1, "k": "y"}}
    assert check_cuts(form, written_calls(form, [("weather", given)])) == [("weather", given)]
    assert follows(form, written_calls(form, [("weather", given)]))
    assert not follows(form, written_calls(form, [("weather", {"city": "x", "days": "3"})]))
    bare = "<call>weather<key>city</key><value>New York</value><key>other</key><value>7</value></call>"
    assert check_cuts(form, bare) == [("weather", {"city": "New York", "other": 7})]


@pytest.mark.parametrize(("named", "value"), [("string", '"75"'), ("number", "75")])
def test_a_value_has_the_type_that_the_call_itself_names(named: str, value: str) -> None:
    reply = (
        '<|open|>tools<|sep|><|open|>call tool="look" index="0"<|sep|><|open|>argument key="of" '
        f'type="{named}"<|sep|>75<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>'
    )
    tool = Tool("look", "", json.dumps({"properties": {"of": {"type": ["string", "integer"]}}}))
    (call,) = ToolParser(CHANNEL_FORMS[KIMI], (tool,)).feed(reply)
    assert isinstance(call, CallPiece)
    assert call.arguments == f'{{"of": {value}}}'


# -- names in ids

IDS = (
    "{{ tools | tojson }}{% for m in messages %}[{{ m.role }}]{% if m.role == 'tool' %}Return of "
    "{{ m.tool_call_id }}: {% endif %}{{ m.content }}{% if m.tool_calls %}<|calls|>"
    "{% for c in m.tool_calls %}<|call|>{{ c.id }}<|args|>{{ c.function.arguments | tojson }}<|end|>"
    "{% endfor %}<|over|>{% endif %}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)
"""As Kimi K2's."""


def test_a_template_that_writes_ids_gets_them_with_the_name() -> None:
    template = ChatTemplate(IDS, None, None)
    style = tool_style(template)
    assert (style.writes_calls, style.writes_results, style.named_ids) == (True, True, True)
    assert style.form.call == ("<|call|>functions.", "<|end|>")
    assert style.form.after_name == (":", "<|args|>")
    first, second = f"functions.weather:7<|args|>{OSLO}", "functions.clock:8<|args|>{}"
    reply = f"<|calls|><|call|>{first}<|end|><|call|>{second}<|end|>"
    assert check_cuts(style.form, reply) == [("weather", {"city": "Oslo"}), ("clock", {})]
    assert follows(style.form, reply + "<|over|>")
    both = (ToolCall("a", "weather", OSLO), ToolCall("b", "clock", "{}"))
    messages = [
        Message("user", "Hi"), Message("assistant", "", both), Message("tool", "12:00", tool_call_id="b"),
        Message("tool", "rain", tool_call_id="a"), Message("assistant", "", both[:1]),  # the same id again
        Message("tool", "sun", tool_call_id="a"),
    ]  # fmt: skip
    turns, tools = conversation(messages, TOOLS, style)
    text = template.render(turns, tools=tools)
    places = [
        "<|call|>functions.weather:0<|args|>", "<|call|>functions.clock:1<|args|>",
        "Return of functions.clock:1: 12:00", "Return of functions.weather:0: rain",
        "<|call|>functions.weather:2<|args|>", "Return of functions.weather:2: sun",
    ]  # fmt: skip
    assert [text.index(place) for place in places] == sorted(text.index(place) for place in places)


# -- tools as a text


def test_a_template_that_reads_its_tools_as_a_text() -> None:
    source = (
        "{{ 'Functions: ' + functions + ' Today is ' + datetime }}{% for m in messages %}[{{ m.role }}]"
        "{{ m.content }}{% if m.tool_calls %} functools[{% for c in m.tool_calls %}"
        '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}'
        "{% if not loop.last %}, {% endif %}{% endfor %}]{% endif %}{% endfor %}[assistant]"
    )
    template = ChatTemplate(source, None, None)
    style = tool_style(template)
    assert (style.offers, style.writes_calls, style.form.marker) == (True, True, "functools[")
    tools = [{"type": "function", "function": {"name": "f", "description": "é"}}]
    given = {"functions": "[]", "datetime": "today"}
    assert template.render([Message("user", "x")], tools=tools, variables=given).startswith("Functions: []")
    text = template.render([Message("user", "x")], tools=tools)
    listed, _, rest = text.removeprefix("Functions: ").partition(" Today is ")
    assert json.loads(listed) == [tools[0]["function"]]
    assert rest[:4].isdecimal()
    assert rest.endswith("[user]x[assistant]")
    assert template.render([Message("user", "x")]).startswith("Functions:  Today is ")


def test_a_template_that_can_do_without_such_a_text_gets_none() -> None:
    source = "{% if functions %}{{ functions }}{% endif %}{{ datetime }}{{ messages[0].content }}"
    assert ChatTemplate(source, None, None).render([Message("user", "x")], tools=[{"name": "y"}]) == "x"


# -- the order of arguments, and loose white space

SORTED = (
    "{{ tools | tojson }}{% for m in messages %}{% if m.role == 'user' %}<|user|>{{ m.content }}{% else %}"
    "   <|bot|></think>    {{ m.content }}{% for c in m.tool_calls %}<call>"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson(sort_keys=true) }}}'
    "</call>{% endfor %}[end]{% endif %}{% endfor %}{% if add_generation_prompt %} <|bot|>  "
    "</think>{% endif %}"
)


def test_arguments_keep_the_order_that_a_template_gives_them() -> None:
    form = tool_style(ChatTemplate(SORTED, None, None)).form
    assert (form.kind, form.marker, form.in_order) == ("object", "<call>", True)
    assert not tool_style(ChatTemplate(SORTED.replace("sort_keys=true", ""), None, None)).form.in_order
    given = {"ok": True, "deep": {"x": 2.5, "k": "y"}, "days": 1, "city": "x"}
    call = written_calls(form, [("weather", given)]).strip()
    assert '"deep": {"k": "y", "x": 2.5}' in call
    assert follows(form, call)
    assert not follows(form, written_calls(replace(form, in_order=False), [("weather", given)]).strip())


FRAMED = (
    "{{ tools | tojson }}{% for m in messages %}<|{{ m.role }}|>{% if m.tool_calls %}<|start|>{{ m.content }}"
    '<|end|>{% for c in m.tool_calls %}{"name": "{{ c.function.name }}", "parameters": '
    "{{ c.function.arguments | tojson }}}{% endfor %}{% else %}{{ m.content }}{% endif %}<|eot|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""As Llama 4's."""


def test_tokens_around_an_empty_text_are_no_part_of_a_call() -> None:
    form = tool_style(ChatTemplate(FRAMED, None, None)).form
    assert (form.kind, form.opening, form.marker) == ("object", "", "")
    assert check_cuts(form, f'{{"name": "weather", "parameters": {OSLO}}}') == [("weather", {"city": "Oslo"})]
    # a tag right after the text is one of the call
    tagged = FRAMED.replace("<|start|>{{ m.content }}<|end|>", "{{ m.content }}<|call|>")
    assert tool_style(ChatTemplate(tagged, None, None)).form.marker == "<|call|>"


def test_branches_that_refer_to_their_own_schema_are_looked_at_once() -> None:
    some: dict[str, Any] = {"type": ["string", "null"], "anyOf": [{"$ref": "#/properties/some"}] * 12}
    others: dict[str, Any] = {
        "anyOf": [{"type": "null"}, {"allOf": [{"properties": {}}, {"properties": {"a": some}}]}]
    }
    root: dict[str, Any] = {"properties": {"some": some, "others": others}}
    assert argument_types(some, root) == {"string", "null"}
    assert keyword_of(some, root, "items") == {}
    assert keyword_of(others, root, "properties") == {"a": some}
