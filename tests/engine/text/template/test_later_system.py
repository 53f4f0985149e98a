"""System messages that a template leaves out, or refuses, are carried in a form that it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from engine.core import Message
from engine.text.template.encoding import encode_chat
from engine.text.template.fallback import fallback_source
from engine.text.template.template import ChatTemplate
from engine.text.template.turns import carry_system
from engine.text.tokenizer.tokenizer import Tokenizer
from tests.engine.text.template.chat_templates import TEMPLATES
from tests.engine.text.template.test_real_templates import FOLDER, FORMATS, NAMES
from tests.engine.text.tokenizer.vocabularies import byte_level_metadata

S, U, A = (
    lambda text, role=role: {"role": role, "content": text} for role in ("system", "user", "assistant")
)
FIRST, ASK, TELL, LATER, MORE = (
    S("First rule."),
    U("Ask one."),
    A("Told you."),
    S("Later rule."),
    U("Ask more."),
)
CHATS: dict[str, Sequence[Mapping[str, Any]]] = {
    "between turns": [FIRST, ASK, TELL, LATER, MORE],
    "before the reply": [FIRST, ASK, LATER],
    "only later": [ASK, TELL, LATER, MORE],
    "two at once": [FIRST, LATER, ASK],
    "three": [FIRST, ASK, TELL, LATER, MORE, A("Again."), S("Last rule."), U("Ask last.")],
}
SOURCES = {
    **{name: (FOLDER / f"{name}.jinja").read_text(encoding="utf-8") for name in NAMES},
    **{f"style {name}": source for name, source in TEMPLATES.items()},
    **{f"fallback {name}": fallback_source(name) for name in FORMATS},
}


@pytest.mark.parametrize("name", SOURCES)
def test_no_template_loses_a_system_message(name: str) -> None:
    template = ChatTemplate(SOURCES[name], "<s>", "</s>")
    for kind, turns in CHATS.items():
        for given in (turns, [Message(turn["role"], turn["content"]) for turn in turns]):
            text = template.render(given)
            for turn in turns:
                assert turn["content"] in text, (kind, turn)


SILENT = (
    "{% for m in messages %}{% if (m.role == 'system' and KEPT) or m.role in ['user', 'assistant'] %}"
    "[{{ m.role }}:{{ m.content }}]{% endif %}{% endfor %}"
)


def test_a_later_one_is_given_where_it_stands() -> None:
    template = ChatTemplate(SILENT.replace("KEPT", "loop.first"), None, None)
    start = "[system:First rule.][user:Ask one."
    assert [
        template.render(CHATS[kind]) for kind in ("between turns", "before the reply", "two at once")
    ] == [
        f"{start}][assistant:Told you.][user:Later rule.\n\nAsk more.]",
        f"{start}\n\nLater rule.]",
        "[system:First rule.\n\nLater rule.][user:Ask one.]",
    ]
    assert template.render([ASK, LATER], continue_last=False) == "[user:Ask one.\n\nLater rule.]"
    assert template.render([FIRST, ASK, LATER, TELL], continue_last=True).endswith(
        "[user:Ask one.\n\nLater rule.][assistant:Told you."
    )


def test_a_template_that_refuses_later_ones_has_them_where_they_stand() -> None:
    source = (
        "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('first') }}"
        "{% endif %}[{{ m.role }}:{{ m.content }}]{% endfor %}"
    )
    assert ChatTemplate(source, None, None).render(CHATS["between turns"]) == (
        "[system:First rule.][user:Ask one.][assistant:Told you.][user:Later rule.\n\nAsk more.]"
    )


def test_a_template_without_system_messages_has_them_before_the_first_question() -> None:
    template = ChatTemplate(SILENT.replace("KEPT", "false"), None, None)
    assert template.render([FIRST, ASK, TELL]) == "[user:First rule.\n\nAsk one.][assistant:Told you.]"


def test_a_template_that_takes_several_at_the_beginning_has_these_as_they_are() -> None:
    kept = "loop.first or messages[loop.index0 - 1].role == 'system'"
    template = ChatTemplate(SILENT.replace("KEPT", kept), None, None)
    begun = "[system:First rule.][system:Later rule.][user:Ask one."
    assert template.render([FIRST, LATER, ASK]) == f"{begun}]"
    assert template.render([FIRST, LATER, ASK, LATER]) == f"{begun}\n\nLater rule.]"


def test_an_empty_one_is_lost_nowhere_and_stays_as_it_is() -> None:
    source = "{% if messages[0].role != 'system' %}[system:Help.]{% endif %}" + SILENT.replace(
        "KEPT", "false"
    )
    template = ChatTemplate(source, None, None)
    assert template.render([S(""), ASK]) == "[user:Ask one.]"
    assert template.render([FIRST, ASK]) == "[system:Help.][user:First rule.\n\nAsk one.]"


def test_a_template_that_takes_later_ones_has_them_as_they_are() -> None:
    template = ChatTemplate(SILENT.replace("KEPT", "true"), None, None)
    assert template.render([FIRST, ASK, LATER]) == "[system:First rule.][user:Ask one.][system:Later rule.]"


def test_no_message_comes_between_a_call_and_its_result() -> None:
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "a"}]}
    result = {"role": "tool", "content": "21", "tool_call_id": "a"}
    assert carry_system([ASK, call, LATER, result, TELL]) == [ASK, call, result, U("Later rule."), TELL]


def test_parts_of_messages_stay_parts() -> None:
    picture = {"type": "image"}
    parts = [{"type": "text", "text": "Look."}, picture]
    later = {"role": "system", "content": [{"type": "text", "text": "Later rule."}]}
    assert carry_system([ASK, TELL, later, {"role": "user", "content": parts}]) == [
        ASK, TELL, {"role": "user", "content": [*later["content"], *parts]},
    ]  # fmt: skip
    assert carry_system([FIRST, ASK, TELL]) is None
    tools = {"role": "system", "content": "Later.", "tools": []}
    assert carry_system([ASK, tools]) is None  # what else it has would be lost


NEMO = "mistralai-Mistral-Nemo-Instruct-2407"
CALL: dict[str, Any] = {
    "role": "assistant", "content": "",
    "tool_calls": [
        {"id": "call12345", "type": "function", "function": {"name": "clock", "arguments": {"zone": "UTC"}}}
    ],
}  # fmt: skip
TIME = {"role": "tool", "name": "clock", "tool_call_id": "call12345", "content": "noon"}


@pytest.mark.parametrize("tail", [[TELL], [CALL, TIME]], ids=["a reply", "a result"])
@pytest.mark.parametrize("before", [[], [U("Ask zero."), TELL]], ids=["one question", "two"])
def test_a_system_message_stays_in_the_last_question_whatever_follows(
    tail: list[Any], before: list[Any]
) -> None:
    tokenizer = Tokenizer.from_gguf(byte_level_metadata())
    template = ChatTemplate((FOLDER / f"{NEMO}.jinja").read_text(encoding="utf-8"), "<s>", "</s>")

    def prompt(*turns: Mapping[str, Any]) -> str:
        return encode_chat(tokenizer, template, turns, continue_last=turns[-1] == TELL)[0]

    asked = prompt(FIRST, *before, ASK)
    assert asked.endswith("[INST]First rule.\n\nAsk one.[/INST]")
    assert prompt(FIRST, *before, ASK, *tail).startswith(asked)
    assert prompt({**FIRST, "content": ""}, *before, ASK, *tail) == prompt(*before, ASK, *tail)
