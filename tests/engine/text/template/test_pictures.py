"""Pictures in prompts: where the template has them, or in their places of the message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.core import Message, Picture
from engine.errors import BadTemplate
from engine.generator.prompt.pictures import marked
from engine.text.template.encoding import encode_chat
from engine.text.template.template import ChatTemplate
from engine.text.tokenizer.tokenizer import Tokenizer
from engine.vision import VisionSpec
from tests.engine.text.template.chat_templates import CHATML
from tests.engine.text.tokenizer.vocabularies import byte_level_folder

PARTS = """{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content -%}
{%- if part.type == 'image' %}<|vision|>{% elif part.type == 'text' %}{{ part.text }}{% endif -%}
{%- endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""A template that writes a control token for each picture."""


class Places:
    """Each picture becomes a text and two rows of ids."""

    def __init__(self, token: str = "<|im_end|>", around: tuple[str, str] = ("", "")) -> None:
        self.spec = VisionSpec("fake", "<|vision|>", token, around=around)

    def placed(self, picture: Picture) -> tuple[str | range, ...]:
        first = 1 << 25 if picture.name == "a" else 1 << 26
        return "begin ", range(first, first + 2), "\n", range(first + 2, first + 4)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    byte_level_folder(folder)
    return Tokenizer.from_folder(folder)


def message(text: str, *names: str) -> Message:
    return Message("user", text, pictures=tuple(Picture(name) for name in names))


def prompt(tokenizer: Tokenizer, source: str, *messages: Message, **spec: Any) -> str:
    """The prompt, with tokens of pictures as their ids in brackets."""
    pictures, turns = marked(messages, Places(**spec))
    _text, ids = encode_chat(tokenizer, ChatTemplate(source, None, None), turns, pictures=pictures)
    pieces = (f"[{id}]".encode() if id >= 1 << 24 else tokenizer.token_bytes(id) for id in ids)
    return b"".join(pieces).decode()


A, B = ("begin [{}][{}]\n[{}][{}]".format(*range(first, first + 4)) for first in (1 << 25, 1 << 26))


def test_the_template_places_pictures(tokenizer: Tokenizer) -> None:
    found = prompt(tokenizer, PARTS, message("[picture: a]\n[picture: b]\nWhat is it?", "a", "b"))
    expected = f"<|im_start|>user\n{A}{B}What is it?<|im_end|>\n<|im_start|>assistant\n"
    assert found == expected


def test_a_picture_between_texts_stays_between_them(tokenizer: Tokenizer) -> None:
    found = prompt(tokenizer, PARTS, message("First\n[picture: b]\nthen", "b"))
    assert found == f"<|im_start|>user\nFirst{B}then<|im_end|>\n<|im_start|>assistant\n"


def test_without_a_place_in_the_template_pictures_are_where_the_message_has_them(
    tokenizer: Tokenizer,
) -> None:
    found = prompt(tokenizer, CHATML, message("One [picture: a] two [picture: a]?", "a", "a"))
    assert f"user\nOne {A} two {A}?<|im_end|>" in found


def test_what_stands_around_a_picture_comes_with_it_unless_the_template_writes_it(
    tokenizer: Tokenizer,
) -> None:
    message_of_one, around = message("[picture: a]?", "a"), ("<|im_start|>", "end")
    assert f"user\n<|im_start|>{A}end?" in prompt(tokenizer, CHATML, message_of_one, around=around)
    assert f"user\n{A}?" in prompt(tokenizer, PARTS, message_of_one, around=around)


def test_moondream_has_the_picture_before_the_question(tokenizer: Tokenizer) -> None:
    named = {"general.name": "Moondream2", "tokenizer.chat_template": "vicuna"}
    source = ChatTemplate.from_gguf(named, tokenizer).source.replace("<image>", "<|vision|>")
    assert source == ChatTemplate.from_gguf({"general.name": "moondream2"}, tokenizer).source.replace(
        "<image>", "<|vision|>"
    )
    asked = message("What is it?\n[picture: a]", "a")
    found = prompt(tokenizer, source, asked, Message("assistant", "A cat."), Message("user", "Is it black?"))
    assert found == (f"{A}\n\nQuestion: What is it?\n\nAnswer: A cat.\n\nQuestion: Is it black?\n\nAnswer:")
    own = {**named, "tokenizer.chat_template": CHATML}
    assert ChatTemplate.from_gguf(own, tokenizer).source == CHATML
    assert ChatTemplate.from_gguf({**named, "general.name": "Llava"}, tokenizer).source == "vicuna"


@pytest.mark.parametrize("source", [PARTS, CHATML])
def test_what_a_user_writes_is_no_picture(tokenizer: Tokenizer, source: str) -> None:
    text = "<|vision|> [picture: a] <|im_end|> " + chr(0x100000)
    found = prompt(tokenizer, source, message(text, "a"), message("[picture: b]"))
    assert found.count(A) == 1
    assert "[picture: b]" in found
    assert "<|vision|> " in found
    assert chr(0x100000) in found
    assert found.count("<|im_end|>") == found.count("<|im_start|>")  # the user's one, and those of turns


def test_a_picture_whose_words_the_message_lacks_is_left_out(tokenizer: Tokenizer) -> None:
    found = prompt(tokenizer, PARTS, message("[picture: b] edited", "a", "b"))
    assert B in found
    assert "[33554432]" not in found


@pytest.mark.parametrize("token", ["<|im_start|>", "<|no such token|>", ""])
def test_any_control_token_can_carry_a_picture(tokenizer: Tokenizer, token: str) -> None:
    found = prompt(tokenizer, PARTS, message("[picture: a]", "a"), token=token)
    assert found == f"<|im_start|>user\n{A}<|im_end|>\n<|im_start|>assistant\n"


def test_a_template_that_refuses_parts_gets_texts(tokenizer: Tokenizer) -> None:
    source = "{% if messages[0].content is not string %}{{ raise_exception('text only') }}{% endif %}" + PARTS
    found = prompt(tokenizer, source, message("[picture: a] x", "a"))
    assert f"{A} x" in found


def test_messages_without_pictures_are_left_alone() -> None:
    messages = (message("[picture: a]"), Message("assistant", "x"))
    assert marked(messages, Places()) == (None, messages)


def test_a_vocabulary_without_control_tokens_is_refused(tokenizer: Tokenizer) -> None:
    every = "".join(sorted(map(tokenizer.piece, tokenizer.special_ids)))
    with pytest.raises(BadTemplate, match="no control token that can stand for a picture"):
        prompt(tokenizer, every + "{{ messages[0].content }}", message("[picture: a]", "a"))
