"""Chats with an adapter that has its own tokenizer and template: as with the model that merging makes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.chat.local import LocalChat
from engine.chat.opening import finished, open_chat
from engine.core import ChatRequest, Done, Loading, Message, Text
from engine.errors import BadSetting
from engine.server.replies import Prompted, chat_work
from engine.settings import (
    AdapterSettings,
    CacheSettings,
    LoadSettings,
    SamplerSettings,
    SpeculationSettings,
    StopSettings,
)
from tests.engine.models.lora.test_lora_changes import write
from tests.engine.models.lora.test_lora_vocabulary import CONFIG, changed, write_whole
from tests.tiny import TINY, tiny_tokenizer, write_folder, write_gguf, write_tokenizer

TURN, END = "<|turn|>", "<|done|>"
TEMPLATE = (
    "{% for m in messages %}" + TURN + "{{ m['role'] }}: {{ m['content'] }}" + END + "{% endfor %}"
    "{% if add_generation_prompt %}" + TURN + "assistant: {% endif %}"
)
REQUEST = ChatRequest((Message("user", "tell me a story"),))


def write_text(folder: Path) -> None:
    """A tokenizer with four more tokens, of which one ends a turn, and a template that writes them."""
    definition = tiny_tokenizer()
    definition["added_tokens"] += [
        {"id": 307 + i, "content": text, "special": True, "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False}
        for i, text in enumerate((TURN, END, "<|x|>", "<|y|>"))
    ]  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(definition), "utf-8")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")


def opened(path: Path, **load: Any) -> LocalChat:
    return finished(open_chat(path, LoadSettings(threads=1, **load), CacheSettings(context_length=512)))


def reply(chat: LocalChat, *adapters: str, draft: str = "none") -> tuple[list[int], Done]:
    request = ChatRequest(
        REQUEST.messages, SamplerSettings(temperature=0.0), StopSettings(max_tokens=40),
        speculation=SpeculationSettings(method=draft), adapters=AdapterSettings(adapters),
    )  # fmt: skip
    events = list(chat.stream(request, threading.Event()))
    assert isinstance(events[-1], Done)
    return [token.id for event in events if isinstance(event, Text) for token in event.tokens], events[-1]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["folder", "gguf"])
def test_tokens_and_template_of_an_adapter(tmp_path: Path, form: str) -> None:
    """Prompt and reply are those of the merged model with the adapter's tokenizer (as transformers renders
    it), new tokens are read, written and stop; drafts change nothing. Without the adapter, all is as before.
    """
    from transformers import AutoTokenizer

    path = write_folder(tmp_path / "m") if form == "folder" else write_gguf(tmp_path / "m.gguf", TINY, "F32")
    tensors, weights = changed(TINY, 311)
    write(tmp_path / "a", tensors, CONFIG)
    write_text(tmp_path / "a")
    whole = write_whole(tmp_path / "w", TINY, weights, 311)
    write_text(whole)
    (whole / "generation_config.json").write_text(json.dumps({"eos_token_id": [308, 2, 0]}))
    chat, merged, adapter = opened(path), opened(whole), str(tmp_path / "a")
    before = reply(chat)[0]
    asked = ChatRequest(REQUEST.messages, adapters=AdapterSettings((adapter,)))
    text, ids = chat.render(asked)
    theirs = AutoTokenizer.from_pretrained(tmp_path / "a")
    messages = [{"role": "user", "content": "tell me a story"}]
    assert text == theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert ids == theirs(text, add_special_tokens=False)["input_ids"]
    assert ids[0] == 307 and 308 in ids  # noqa: PT018
    expected, end = reply(merged)
    for draft in ("none", "ngram"):
        found, done = reply(chat, adapter, draft=draft)
        assert (found, done.reason) == (expected, end.reason)
    assert chat.size(asked).prompt == len(ids)
    assert reply(chat)[0] == before
    assert chat.render(REQUEST)[1] != ids
    for _loading in chat.adapters.make_usual((adapter,)):
        pass
    assert chat.render(REQUEST)[1] == ids
    assert chat.tokenizer.vocab_size == 311
    assert chat.template.source == TEMPLATE
    chat.close()
    merged.close()


def test_template_alone(tmp_path: Path) -> None:
    """An adapter without a tokenizer keeps the model's; the user's own template is never replaced, and an
    adapter without either changes neither.
    """
    path = write_gguf(tmp_path / "m.gguf", TINY, "F32")
    for name in "ab":
        write(tmp_path / name, changed(TINY, 307)[0], CONFIG)
    (tmp_path / "a" / "chat_template.jinja").write_text("{{ messages[0]['content'] }}!")
    chat = opened(path)
    plain = chat.render(REQUEST)
    for name, text in (("a", "tell me a story!"), ("b", plain[0])):
        asked = ChatRequest(REQUEST.messages, adapters=AdapterSettings((str(tmp_path / name),)))
        assert chat.render(asked)[0] == text
    chat.close()
    own = opened(path, chat_template="{{ messages[0]['content'] }}?")
    asked = ChatRequest(REQUEST.messages, adapters=AdapterSettings((str(tmp_path / "a"),)))
    assert own.render(asked)[0] == "tell me a story?"
    own.close()


def test_tags_of_thoughts(tmp_path: Path) -> None:
    """The server separates what is written in the tags of the template of its adapters."""
    write(tmp_path / "a", changed(TINY, 307)[0], CONFIG)
    (tmp_path / "a" / "chat_template.jinja").write_text(
        "{% if false %}</monologue>{% endif %}{{ messages[0]['content'] }}<monologue>"
    )
    chat, tag = opened(write_gguf(tmp_path / "m.gguf", TINY, "F32")), ("<monologue>", "</monologue>")
    assert tag not in chat.thinking
    assert chat.described(()) == chat.info
    adapted = chat.described((str(tmp_path / "a"),))
    assert tag in adapted.thinking
    assert (adapted.opens_thought, adapted.name) == (tag[1], chat.info.name)
    for _loading in chat.adapters.make_usual((str(tmp_path / "a"),)):
        pass
    assert tag in chat.thinking
    asked = ChatRequest(REQUEST.messages, stops=StopSettings(max_tokens=2), report_prompt=True)
    events = chat_work(asked, None)(chat, threading.Event())
    assert [event.opened for event in events if isinstance(event, Prompted)] == [tag[1]]
    chat.close()


def test_stopped_while_kernels_are_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The adapters before stay, with their vocabulary, also in passes that are recorded later."""
    for name, size in (("a", 311), ("b", 320)):
        write(tmp_path / name, changed(TINY, size)[0], CONFIG)
    chat = opened(write_gguf(tmp_path / "m.gguf", TINY, "F32"))
    cache, model = chat.generator.cache, chat.generator.model

    def preparing(_dtype: str) -> Iterator[Loading]:
        yield Loading("kernels", 0, 1)

    for before, size in ((), 307), ((str(tmp_path / "a"),), 311):
        expected = reply(chat, *before)[0]
        key = cache.key
        with monkeypatch.context() as patched:
            patched.setattr(model, "prepare", preparing)
            steps = chat.adapters.apply(((str(tmp_path / "b"), 1.0),))
            while next(steps).stage != "kernels":
                pass
            assert model.config.vocab_size == 320
            steps.close()
        assert (model.config.vocab_size, cache.key) == (size, key)
        cache.record_again(f"{key} again")
        cache.key = key
        cache.table.forget()
        assert reply(chat, *before)[0] == expected
    chat.close()


def test_tokenizer_of_another_model(tmp_path: Path) -> None:
    """The model's own tokenizer beside an adapter changes nothing; another vocabulary is refused."""
    chat = opened(write_folder(tmp_path / "m"))
    folder = tmp_path / "a"
    write(folder, changed(TINY, 307)[0], CONFIG)
    write_tokenizer(folder)
    definition = tiny_tokenizer()
    vocab = definition["model"]["vocab"]
    (folder / "tokenizer.json").write_text(json.dumps(definition))
    asked = ChatRequest(REQUEST.messages, adapters=AdapterSettings((str(folder),)))
    assert chat.render(asked) == chat.render(REQUEST)
    numbers = list(vocab.values())
    special = {entry["id"] for entry in definition["added_tokens"]}
    kept = [number for number in numbers if number not in special]
    turned = dict(zip(kept, kept[1:] + kept[:1], strict=True))
    definition["model"]["vocab"] = {text: turned.get(number, number) for text, number in vocab.items()}
    (tmp_path / "b").mkdir()
    write(tmp_path / "b", changed(TINY, 307)[0], CONFIG)
    write_tokenizer(tmp_path / "b")
    (tmp_path / "b" / "tokenizer.json").write_text(json.dumps(definition))
    asked = ChatRequest(REQUEST.messages, adapters=AdapterSettings((str(tmp_path / "b"),)))
    with pytest.raises(BadSetting, match="The adapter b has the tokenizer of another model: token 3 is"):
        chat.render(asked)
    chat.close()


def test_spaces_in_the_tokens_of_both(tmp_path: Path) -> None:
    """Folders write spaces as lower blocks, in the model's vocabulary as in the adapter's."""
    definition = tiny_tokenizer()
    model = definition["model"]
    for pair in model["merges"][-20:]:
        text = "".join(pair if isinstance(pair, list) else pair.split(" "))
        model["vocab"]["\u2581" + text] = model["vocab"].pop(text)
    del model["merges"][-20:]
    path, folder = write_folder(tmp_path / "m"), tmp_path / "a"
    write(folder, changed(TINY, 307)[0], CONFIG)
    write_tokenizer(folder)
    for place in (path, folder):
        (place / "tokenizer.json").write_text(json.dumps(definition))
    chat = opened(path)
    asked = ChatRequest(REQUEST.messages, adapters=AdapterSettings((str(folder),)))
    assert chat.render(asked) == chat.render(REQUEST)
    chat.close()


def test_a_reply_stops_at_the_tokens_of_both(tmp_path: Path) -> None:
    """The adapter's tokenizer says where its replies end, and the model's own ends still count."""
    folder = tmp_path / "a"
    write(folder, changed(TINY, 307)[0], CONFIG)
    write_tokenizer(folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 5]}))
    chat = opened(write_folder(tmp_path / "m"))
    assert chat.tokenizer.stop_token_ids == (2, 0)
    for _loading in chat.adapters.make_usual((str(folder),)):
        pass
    assert chat.tokenizer.stop_token_ids == (2, 5, 0)
    chat.close()
