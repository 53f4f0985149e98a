"""The chat formats of Mistral AI's models by the version of their vocabulary, as mistral-common 1.13.1 writes
them: `golden/mistral_chats.json` holds its prompts, with "@" for the offered tools, made once with its own
vocabularies (the version changed where it has none).
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from engine.errors import BadTemplate
from engine.text.template.mistral import mistral_source, tekken_template, versioned_vocabulary
from engine.text.template.source import folder_template
from engine.text.template.template import ChatTemplate
from engine.text.tokenizer.tokenizer import Tokenizer
from engine.text.tools.detect import tool_style
from tests.engine.text.tokenizer.test_tokenizer_files import model_file, tekken

GOLDEN = json.loads((Path(__file__).parents[3] / "golden" / "mistral_chats.json").read_text("utf-8"))
CASES = [(name, chat) for name, prompts in GOLDEN["prompts"].items() for chat in prompts]


@functools.cache
def template(name: str) -> ChatTemplate:
    kind, version = name.split(" ")
    efforts = ("none", "high") if version == "15" else ()
    source = mistral_source(int(version), " " if kind == "SentencePiece" else "", int(version) >= 13, efforts)
    return ChatTemplate(source, "<s>", "</s>")


@pytest.mark.parametrize(("name", "chat"), CASES)
def test_prompts(name: str, chat: str) -> None:
    given = GOLDEN["chats"][chat]
    prompt = template(name).render(given["messages"], tools=given["tools"])
    assert prompt == GOLDEN["prompts"][name][chat].replace("@", GOLDEN["offer"])


@pytest.mark.parametrize(
    ("name", "opening", "after"),
    [
        ("SentencePiece 3", "[TOOL_CALLS] [", ("id",)),
        ("tekken 7", "[TOOL_CALLS][", ("id",)),
        ("tekken 11", "[TOOL_CALLS]", ("[CALL_ID]", "[ARGS]")),
        ("tekken 13", "[TOOL_CALLS]", ("[ARGS]", "")),
    ],
)
def test_the_form_of_calls_is_known(name: str, opening: str, after: tuple[str, ...]) -> None:
    style = tool_style(template(name))
    assert (style.form.opening, style.offers, style.writes_calls, style.writes_results) == (
        opening, True, True, True,
    )  # fmt: skip
    assert (style.form.after or style.form.after_name) == after


def test_levels_of_thinking() -> None:
    """Of version 15 alone; another level is refused."""
    made, turns = template("tekken 15"), [{"role": "user", "content": "Hello"}]
    assert set(made.switch.ways) == {"off", "high"}
    assert '{"reasoning_effort": "high"}' in made.render(turns, variables={"reasoning_effort": "high"})
    with pytest.raises(BadTemplate, match="no such level"):
        made.render(turns, variables={"reasoning_effort": "low"})
    assert not template("tekken 13").switch.ways
    assert ("[THINK]", "[/THINK]") in made.tags


def test_what_it_does_not_know_is_refused() -> None:
    call = {"id": "a", "function": {"name": "f", "arguments": {}}}
    turns: list[dict[str, Any]] = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "tool_calls": [call]},
    ]
    with pytest.raises(BadTemplate, match="Tools are not supported"):
        template("SentencePiece 1").render(turns)
    with pytest.raises(BadTemplate, match="Messages of the role critic are not supported"):
        template("tekken 7").render([*turns, {"role": "critic", "content": "b"}])


def test_results_that_are_json_stay_json() -> None:
    made = template("tekken 3")
    for content, shown in (
        ('{"a": [1]}', '{"a": [1]}'), ("[1, 2]", "[1, 2]"), ("22", "22"), ("true", "true"),
        ("fine", '"fine"'), ('a "b"', '"a \\"b\\""'), ("", '""'), ("2 of 3", '"2 of 3"'),
    ):  # fmt: skip
        prompt = made.render(
            [{"role": "user", "content": "a"}, {"role": "tool", "tool_call_id": "i", "content": content}]
        )
        assert prompt.endswith(f'{{"content": {shown}, "call_id": "i"}}[/TOOL_RESULTS]')


def write_tekken(folder: Path, version: str = "v11", **changed: Any) -> None:
    data = tekken()
    data["config"]["version"] = version
    (folder / "tekken.json").write_text(json.dumps({**data, **changed}))


def test_tekken_states_the_version(tmp_path: Path) -> None:
    write_tekken(tmp_path)
    assert folder_template(tmp_path) == mistral_source(11)
    tokenizer = Tokenizer.from_folder(tmp_path)
    made = ChatTemplate.from_folder(tmp_path, tokenizer)
    assert made.render([{"role": "user", "content": "Hi"}]) == "<s>[INST]Hi[/INST]"
    assert not made.is_fallback
    write_tekken(tmp_path, "v7  ")  # read again, since it changed
    assert folder_template(tmp_path) is None


def test_tekken_with_thoughts_and_settings() -> None:
    tokens = [{"rank": i, "token_str": text} for i, text in enumerate(["[THINK]", "[/THINK]"])]
    field = {"type": "enum", "values": ["high", "none", "low"], "default": "none"}
    data: dict[str, Any] = {"config": {"version": "v15"}, "special_tokens": tokens}
    assert tekken_template(data) == mistral_source(15, "", True)
    data["model_settings_builder"] = {"reasoning_effort": field}
    assert tekken_template(data) == mistral_source(15, "", True, ["none", "high", "low"])
    assert tekken_template({**data, "config": {"version": "v13"}}) == mistral_source(13, "", True)
    assert tekken_template({**data, "config": {"version": "v11"}}) == mistral_source(11)
    assert tekken_template({"config": {"version": "v13"}}) == mistral_source(13)
    for config in (None, {}, {"version": 7}, {"version": "latest"}):
        assert tekken_template({"config": config}) is None


def test_other_files_come_first(tmp_path: Path) -> None:
    """A template of the folder; a tokenizer.json, as beside the tekken.json of base models."""
    write_tekken(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("own")
    assert folder_template(tmp_path) == "own"
    (tmp_path / "chat_template.jinja").unlink()
    (tmp_path / "config.json").write_text("{}")
    assert folder_template(tmp_path) == mistral_source(11)
    (tmp_path / "tokenizer.json").write_text("{}")
    assert folder_template(tmp_path) is None


def test_sentencepiece_states_the_version_in_its_name(tmp_path: Path) -> None:
    """Only beside params.json; a space is written by the template, not put after every control token."""
    usual = tmp_path / "usual"
    usual.mkdir()
    (usual / "tokenizer.model").write_bytes(model_file("llama"))
    (usual / "tokenizer_config.json").write_text('{"legacy": false}')
    for name in ("tokenizer.model.v1", "tokenizer.model.v3", "tokenizer.model.v7m1"):
        (tmp_path / name).write_bytes(model_file("llama"))
        version = int(re.findall(r"v(\d+)", name)[0])
        assert versioned_vocabulary(tmp_path) == (tmp_path / name, version)
        assert folder_template(tmp_path) is None
        (tmp_path / "params.json").write_text("{}")
        assert folder_template(tmp_path) == mistral_source(version, " ")
        (tmp_path / "params.json").unlink()
    own, twin = Tokenizer.from_folder(tmp_path), Tokenizer.from_folder(usual)
    for text in ("a b", "<s>a b</s>c", "<s> a  b\n</s> c"):
        assert own.encode(text, special=True) == twin.encode(text, special=True)


def test_the_oldest_vocabulary_has_no_version(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(model_file("llama"))
    assert folder_template(tmp_path) is None
    legacy = Tokenizer.from_folder(tmp_path).encode("<s>a b", special=True)
    (tmp_path / "params.json").write_text("{}")
    assert folder_template(tmp_path) == mistral_source(1, " ")
    assert Tokenizer.from_folder(tmp_path).encode("<s> a b", special=True) == legacy
