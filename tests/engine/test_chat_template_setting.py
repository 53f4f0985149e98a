"""`LoadSettings.chat_template`: the user's own template is what the model sees, in place of the file's."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.chat import finished, open_chat
from engine.core import ChatRequest, Message
from engine.errors import BadTemplate
from engine.settings import LoadSettings
from engine.text.template.encoding import encode_chat
from tests.tiny import TINY, write_folder, write_gguf

OWN = (
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if "
    "add_generation_prompt %}<reply>{% endif %}"
)
MESSAGES = [Message("user", "hello")]


@pytest.mark.parametrize("kind", ["folder", "gguf"])
def test_the_prompt_is_the_templates(tmp_path: Path, kind: str) -> None:
    path = (
        write_folder(tmp_path / "tiny")
        if kind == "folder"
        else write_gguf(tmp_path / "tiny.gguf", TINY, "Q8_0")
    )
    texts = []
    for source in ("", "  \n", OWN):
        chat = finished(open_chat(path, LoadSettings(backend="reference", threads=1, chat_template=source)))
        texts.append(encode_chat(chat.tokenizer, chat.template, MESSAGES)[0])
        foreseen = chat.foresee(ChatRequest(tuple(MESSAGES)))
        chat.close()
    assert texts[0] == texts[1] != texts[2]
    assert texts[2].endswith("<user>hello<reply>")
    assert foreseen.prompt_tokens > 0


def test_a_broken_template_is_reported(tmp_path: Path) -> None:
    with pytest.raises(BadTemplate):
        finished(
            open_chat(
                write_folder(tmp_path / "tiny"), LoadSettings(backend="reference", chat_template="{% for %}")
            )
        )
