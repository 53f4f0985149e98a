"""Which models may guess for which, judged by tokenizers and by files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from engine.speculation.compatible import draft_problem, draft_problem_between
from engine.text.tokenizer.tokenizer import Tokenizer
from tests.engine.text.tokenizer.vocabularies import byte_level_metadata
from tests.tiny import TINY, tiny_tokenizer, write_folder, write_gguf

KEY = "tokenizer.ggml."


def changed(**changes: Any) -> dict[str, Any]:
    return byte_level_metadata() | {KEY + name: value for name, value in changes.items()}


def with_tokens(tokens: list[str], kinds: list[int] | None = None) -> Tokenizer:
    types = list(byte_level_metadata()[KEY + "token_type"])
    return Tokenizer.from_gguf(
        changed(tokens=tokens, token_type=kinds or types + [1] * (len(tokens) - len(types)))
    )


@pytest.fixture(scope="module")
def target() -> Tokenizer:
    return Tokenizer.from_gguf(byte_level_metadata())


def tokens() -> list[str]:
    return list(byte_level_metadata()[KEY + "tokens"])


def test_a_model_can_guess_for_one_with_the_same_vocabulary(target: Tokenizer) -> None:
    assert draft_problem(target, Tokenizer.from_gguf(byte_level_metadata())) == ""


def test_the_first_token_that_differs_is_named(target: Tokenizer) -> None:
    texts = tokens()
    place = next(i for i, text in enumerate(texts) if text.startswith("Ġ") and len(text) > 3)
    texts[place] = "Ġbar!"
    other = with_tokens(texts)
    expected = (
        f"Token {place} is {target.texts[place].replace('Ġ', ' ')!r} in the model but ' bar!' in the draft "
        "model."
    )
    assert draft_problem(target, other) == expected


@pytest.mark.parametrize("extra", [1, 128])
def test_a_few_tokens_more_on_either_side_do_no_harm(target: Tokenizer, extra: int) -> None:
    larger = with_tokens([*tokens(), *(f"more{i}" for i in range(extra))])
    assert draft_problem(target, larger) == ""
    assert draft_problem(larger, target) == ""


def test_many_tokens_more_are_a_problem_unless_they_are_padding(target: Tokenizer) -> None:
    count, size = 200, len(tokens())
    larger = with_tokens([*tokens(), *(f"more{i}" for i in range(count))])
    assert (
        draft_problem(target, larger)
        == f"The draft model has 200 tokens that the model lacks, such as 'more0' (token {size})."
    )
    assert (
        draft_problem(larger, target)
        == f"The model has 200 tokens that the draft model lacks, such as 'more0' (token {size})."
    )
    padded = with_tokens([*tokens(), *(f"[PAD{size + i}]" for i in range(count))])
    assert draft_problem(target, padded) == draft_problem(padded, target) == ""


@pytest.mark.parametrize(
    "name",
    ["[PAD7]", "<unused3>", "<|reserved_special_token_9|>", "<|finetune_right_pad_id|>", "<extra_id_1>"],
)
def test_a_placeholder_may_have_been_given_a_name(target: Tokenizer, name: str) -> None:
    texts = tokens()
    texts[-1] = name
    assert draft_problem(target, with_tokens(texts)) == ""
    texts[-1] = name.strip("<|[]>") + "x"
    assert "in the model but" in draft_problem(target, with_tokens(texts))


def test_another_kind_of_tokens_is_reported_as_such(target: Tokenizer) -> None:
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁a", "a"]
    types = [2, 3, 3, *[6] * 256, 1, 1, 1]
    metadata = {"model": "llama", "tokens": pieces, "token_type": types, "scores": [0.0] * len(pieces)}
    other = Tokenizer.from_gguf({KEY + name: value for name, value in metadata.items()})
    problem = draft_problem(target, other)
    assert problem == (
        "The draft model has a different kind of tokens (SentencePiece) from the model (byte-level BPE); "
        "choose a smaller model of the same family."
    )


def test_other_ends_of_a_turn_are_a_problem(target: Tokenizer) -> None:
    texts = tokens()
    ends = [texts.index("<|endoftext|>"), texts.index("<|end|>")]
    one, other = (
        Tokenizer.from_gguf(changed(eos_token_id=end) | {"tokenizer.chat_template": ""}) for end in ends
    )
    assert draft_problem(one, other) == (
        f"The model ends a turn with '<|endoftext|>' (token {ends[0]}), but the draft model with '<|end|>' "
        f"(token {ends[1]})."
    )
    assert draft_problem(one, one) == ""


def test_files_and_folders_are_compared_without_their_weights(tmp_path: Path) -> None:
    folder, file = (
        write_folder(tmp_path / "folder", TINY),
        write_gguf(tmp_path / "file.gguf", TINY.but(seed=2), "Q8_0"),
    )
    weights = next(folder.glob("*.safetensors"))  # stands for its folder
    assert draft_problem_between(folder, file) == draft_problem_between(file, folder) == ""
    assert draft_problem_between(weights, file) == ""
    definition = tiny_tokenizer()
    vocab = definition["model"]["vocab"]
    text = next(text for text, i in vocab.items() if i == 300)
    vocab["changed"] = vocab.pop(text)
    definition["model"]["merges"] = [m for m in definition["model"]["merges"] if text not in (*m, "".join(m))]
    (folder / "tokenizer.json").write_text(json.dumps(definition), "utf-8")
    # a copy may be as old as one likes: any other time is another file
    os.utime(folder / "tokenizer.json", ns=(1, 1))
    shown = text.replace("Ġ", " ")
    problem = f"Token 300 is 'changed' in the model but {shown!r} in the draft model."
    assert draft_problem_between(folder, file) == draft_problem_between(weights, file) == problem
    file.write_bytes(b"GGUF" + bytes(40))
    assert draft_problem_between(folder, file) not in ("", problem)


def test_a_file_that_cannot_be_read_is_a_problem_in_its_own_words(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "file.gguf", TINY, "Q8_0")
    assert "There is no file or folder" in draft_problem_between(file, tmp_path / "none.gguf")
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(40))
    assert draft_problem_between(file, broken) != ""
    assert draft_problem_between(broken, file) != ""
