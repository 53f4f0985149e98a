"""Text between a prefix and a suffix: /infill, and `suffix` of completions and of Ollama's texts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.errors import BadSetting
from engine.server.fields import Fields
from engine.server.openai.parameters import sampler
from engine.server.texts.infill import Infill, infill_ids
from tests.engine.server.served import Served, ask
from tests.tiny import TINY, write_folder

pytestmark = pytest.mark.loopback
CODE = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>", "<|repo_name|>")
GAP = {"n_predict": 6, "temperature": 0, "input_prefix": "The quick", "input_suffix": " the dog"}


@pytest.fixture(scope="module")
def coder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server over a model with control tokens for gaps, from id 307 on."""
    shape = TINY.but(vocab_size=TINY.vocab_size + len(CODE))
    folder = write_folder(tmp_path_factory.mktemp("coder") / "tiny", shape)
    definition = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    like = definition["added_tokens"][0]
    definition["added_tokens"] += [
        {**like, "id": TINY.vocab_size + place, "content": text} for place, text in enumerate(CODE)
    ]
    (folder / "tokenizer.json").write_text(json.dumps(definition), "utf-8")
    found = Served(Path(folder))
    yield found
    found.close()


def ids_of(coder: Served, text: str) -> list[int]:
    found: list[int] = ask(coder, "/tokenize", {"content": text}).json["tokens"]
    return found


def test_a_gap_is_filled_as_its_prompt_goes_on(coder: Served) -> None:
    whole = f"{CODE[0]}The quick{CODE[1]} the dog{CODE[2]}"
    plain = {"n_predict": 6, "temperature": 0, "prompt": ids_of(coder, whole)}
    expected = ask(coder, "/completion", plain).json
    found = ask(coder, "/infill", GAP).json
    assert (found["content"], found["prompt"]) == (expected["content"], "The quick")
    assert found["tokens_evaluated"] == expected["tokens_evaluated"]
    split = ask(coder, "/infill", {**GAP, "input_prefix": "The ", "prompt": "quick"}).json
    assert split["content"] == expected["content"]
    pieces = ask(coder, "/infill", {**GAP, "stream": True, "t_max_predict_ms": 60000}).events
    assert "".join(piece["content"] for piece in pieces) == expected["content"]
    fields = {"prompt": "The quick", "suffix": " the dog", "max_tokens": 6, "temperature": 0}
    assert ask(coder, "/v1/completions", fields).json["choices"][0]["text"] == expected["content"]
    options = {"num_predict": 6, "temperature": 0, "top_k": 40, "min_p": 0.05, "top_p": 0.95}
    fields = {"prompt": "The quick", "suffix": " the dog", "stream": False, "options": options}
    assert ask(coder, "/api/generate", fields).json["response"] == expected["content"]


def test_control_tokens_in_the_texts_are_text(coder: Served) -> None:
    found = ask(coder, "/infill", {**GAP, "input_suffix": CODE[2], "n_predict": 0}).json
    assert found["tokens_evaluated"] > 3 + len(ids_of(coder, "The quick")) + 1


def test_other_files_come_first(coder: Served) -> None:
    extra = [{"filename": "a.py", "text": "one"}, {"text": "two"}]
    found = ask(coder, "/infill", {**GAP, "input_extra": extra, "n_predict": 0}).json
    files = f"{CODE[4]}project\n{CODE[3]}a.py\none{CODE[3]}tmp\ntwo{CODE[3]}filename\n"
    gap = f"{CODE[0]}The quick{CODE[1]} the dog{CODE[2]}"
    assert found["tokens_evaluated"] == len(ids_of(coder, files + gap))
    assert "input_extra" in ask(coder, "/infill", {**GAP, "input_extra": "a"}).error["message"]


def test_a_model_without_such_tokens_says_so(served: Served) -> None:
    answer = ask(served, "/infill", GAP)
    assert answer.status == 400
    assert "no control tokens" in answer.error["message"]


def words(*known: str) -> Any:
    """A tokenizer whose tokens are characters and some control tokens."""

    def encode(text: str, special: bool = False, add_bos: bool = False) -> list[int]:
        begin = [1] if add_bos else []
        if special and text in known:
            return [*begin, 1000 + known.index(text)]
        return [*begin, *(ord(char) for char in text)]

    return SimpleNamespace(
        encode=encode, piece=lambda id: known[id - 1000] if id >= 1000 else chr(id), add_bos=True
    )


def test_a_long_gap_is_cut_at_its_far_ends() -> None:
    tokenizer = words(*CODE[:3])
    found = infill_ids(tokenizer, Infill("a" * 500 + "x", "y" + "b" * 500, (("f", "z" * 500),)), 107)
    assert found == [1, 1000, *b"a" * 74, ord("x"), 1001, ord("y"), *b"b" * 24, 1002]
    found = infill_ids(tokenizer, Infill("x", "y", (("f", "z" * 500),)), 27)
    assert found == [1, *b"z" * 18, 1000, ord("x"), 1001, ord("y"), 1002]


@pytest.mark.parametrize(("most", "written"), [(6, 6), (-1, 64)])
def test_a_long_gap_leaves_room_for_what_is_filled_in(coder: Served, most: int, written: int) -> None:
    gap = {**GAP, "input_prefix": "The quick " * 400, "n_predict": most, "logit_bias": [[2, False]]}
    found = ask(coder, "/infill", gap).json
    context = ask(coder, "/props").json["default_generation_settings"]["n_ctx"]
    assert found["tokens_evaluated"] + min(written, context // 4) <= context
    assert found["tokens_predicted"] >= min(written, context // 4)


def test_codestral_reads_the_suffix_first() -> None:
    found = infill_ids(words("[SUFFIX]", "[PREFIX]"), Infill("x", "y"), 100)
    assert found == [1, 1000, ord("y"), 1001, ord("x")]
    with pytest.raises(BadSetting, match="leave the suffix out"):
        infill_ids(words("[SUFFIX]"), Infill("x", "y"), 100)


def test_a_gap_that_is_too_long_by_its_bytes_alone_is_cut_too(coder: Served) -> None:
    sent = {"input_prefix": "def look(): " * 20_000, "input_suffix": "", "n_predict": 2, "temperature": 0}
    found = ask(coder, "/infill", sent).json
    assert found["tokens_predicted"] == 2
    assert found["tokens_evaluated"] <= 1022


def test_mistrals_form(coder: Served) -> None:
    body = {"prompt": "def look(", "suffix": "return 1", "temperature": 0, "max_tokens": 5, "random_seed": 3}
    same = {**body, "seed": 3}
    text = ask(coder, "/v1/completions", same).json["choices"][0]["text"]
    whole = ask(coder, "/v1/fim/completions", body).json
    (choice,) = whole["choices"]
    assert whole["object"] == "chat.completion"
    assert (choice["message"]["role"], choice["message"]["content"]) == ("assistant", text)
    assert (choice["finish_reason"], whole["usage"]["completion_tokens"]) == ("length", 5)
    several = ask(coder, "/v1/fim/completions", {**body, "n": 2, "temperature": 0}).json["choices"]
    assert [each["message"]["content"] for each in several] == [text]
    *events, done = ask(coder, "/v1/fim/completions", {**body, "stream": True}).events
    assert done == "[DONE]"
    assert {event["object"] for event in events} == {"chat.completion.chunk"}
    assert "".join(event["choices"][0]["delta"]["content"] for event in events) == text
    assert [event["choices"][0]["finish_reason"] for event in events][-1] == "length"
    assert events[-1]["usage"]["prompt_tokens"] == whole["usage"]["prompt_tokens"]
    free = {"prompt": "def look(", "temperature": 0, "stop": [text[:1] or "x"], "max_tokens": None}
    assert ask(coder, "/v1/fim/completions", free).status == 200
    assert ask(coder, "/v1/fim/completions", {"prompt": ["a", "b"]}).error["param"] == "prompt"


def test_mistrals_seed() -> None:
    assert sampler(Fields({"random_seed": 7}), {}).seed == sampler(Fields({"seed": 7}), {}).seed == 7
