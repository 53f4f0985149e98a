"""A format that a request asks for holds for the answer; the thought before it is free."""

from __future__ import annotations

import dataclasses
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from engine.chat import LocalChat
from engine.core import ChatRequest, Done, Message, Text
from engine.settings import ConstraintSettings, StopSettings
from engine.text.template.reasoning import PLAIN_TAG
from engine.text.template.template import ChatTemplate
from tests.engine.generator import fakes
from tests.engine.test_tool_calls import GREEDY, INFO, Says
from tests.engine.text.template.chat_templates import CHATML
from tests.engine.text.template.test_reasoning import GPT_OSS, HARMONY, tokenizer_with

TWELVE = ConstraintSettings(format="json_schema", pattern='{"const": 12}')
ASKED = (Message("user", "How many?"),)
OPENING = CHATML.replace("<|im_start|>assistant\n", "<|im_start|>assistant\n<think>\n")
MAY_THINK = "{# <think> </think> #}" + CHATML
NO_THOUGHT = OPENING.replace("<think>\n", "<think>\n\n</think>\n\n")


def ask(answer: str, template: str, **fields: Any) -> tuple[str, str]:
    """The text of a reply, whose model would write `answer`, and the reason of its end."""
    generator, _ = fakes.make_dynamic(Says(answer), 4096)
    chat = LocalChat(
        dataclasses.replace(INFO, thinking=(PLAIN_TAG,)), generator, ChatTemplate(template, None, None)
    )
    request = ChatRequest(ASKED, GREEDY, StopSettings(max_tokens=80), constraint=TWELVE)
    events = list(chat.stream(dataclasses.replace(request, **fields), threading.Event()))
    done = events[-1]
    assert isinstance(done, Done)
    return "".join(event.text for event in events if isinstance(event, Text)), done.reason


@pytest.mark.parametrize(
    ("template", "reply"),
    [
        (OPENING, "Seven and five.\n</think>\n\n12"),
        (MAY_THINK, "<think>\nSeven and five.\n</think>\n\n12"),
        (MAY_THINK, "12"),
        (NO_THOUGHT, "12"),
        (CHATML, "12"),
    ],
)
def test_the_answer_has_the_format(template: str, reply: str) -> None:
    assert ask(reply, template) == (reply, "end_filter")
    assert ask(reply.replace("12", "13"), template)[0].endswith("12")


def test_where_no_thought_is_known_none_is_allowed() -> None:
    for template in (CHATML, NO_THOUGHT):
        assert ask("<think>Hm.</think>12", template) == ("12", "end_filter")


def test_a_thought_without_end_is_ended_in_time() -> None:
    text, reason = ask("x" * 500, OPENING)
    thought, closing, answer = text.partition("</think>")
    assert (thought[:9], closing, answer.strip(), reason) == ("xxxxxxxxx", "</think>", "12", "end_filter")


def test_a_continued_reply_is_in_the_thought_or_after_it() -> None:
    def go_on(begun: str, answer: str) -> str:
        messages = (*ASKED, Message("assistant", begun))
        return ask(answer, OPENING, messages=messages, continue_last=True)[0]

    assert go_on("<think>\nSo", " it is.</think>12") == " it is.</think>12"
    assert go_on("<think>\nSo.\n</think>\n\n1", "3") == "2"


def test_a_beginning_is_that_of_the_answer_unless_it_is_a_thought() -> None:
    begins = ConstraintSettings(begin_with="Well")
    assert re.match(r"Hm\.</think>\s+Well", ask("Hm.</think>\nYes", OPENING, constraint=begins)[0])
    assert ask("<think>Hm.</think>Yes", MAY_THINK, constraint=begins)[0].startswith("Well")
    thinks = ConstraintSettings(begin_with="<think>\nWell", format="regex", pattern="(?s:.*)")
    assert ask("Hm.", MAY_THINK, constraint=thinks)[0].startswith("<think>\nWell")


def test_plain_text_has_the_format_as_a_whole() -> None:
    assert ask("Hm.</think>12", OPENING, plain=True, messages=(Message("user", "<think>\n"),))[0] == "12"


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    "reply",
    [
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>12",
        "<|channel|>final <|constrain|>json<|message|>12",
        "<|channel|>final<|message|>12",
    ],
)
def test_in_channels_the_final_message_has_the_format(monkeypatch: pytest.MonkeyPatch, reply: str) -> None:
    found = tokenizer_with(*HARMONY)
    monkeypatch.setattr(fakes, "tokenizer", lambda: found)
    monkeypatch.setattr("tests.engine.test_tool_calls.tokenizer", lambda: found)
    template = Path(GPT_OSS).read_text("utf-8")
    thought = "<think>\nHm.\n</think>\n\n" if "analysis" in reply else ""
    assert ask(reply, template) == (f"{thought}12", "end_filter")
    assert ask(reply.replace("12", "Twelve"), template) == (f"{thought}12", "end_filter")
    long = "<|channel|>analysis<|message|>" + "Hm. " * 200
    text, reason = ask(long, template)
    assert (text[:11], text[-14:], reason) == ("<think>\nHm.", ".\n</think>\n\n12", "end_filter")
