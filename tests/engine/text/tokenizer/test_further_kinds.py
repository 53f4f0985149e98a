"""Kinds of tokenizers that few GGUF files have: PLaMo 2's, words without white space, none at all."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.text.tokenizer.tokenizer import Tokenizer
from tests.engine.text.tokenizer.test_ids_by_llama_cpp import by_llama_cpp, texts
from tests.engine.text.tokenizer.vocabularies import byte_level_metadata, corpus, random_text

KEY = "tokenizer.ggml."
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def least_cost(**changes: Any) -> dict[str, Any]:
    """A vocabulary as PLaMo 2's: all short parts of a corpus, with random scores, some of them alike."""
    draw = random.Random(3)
    text = "\n".join(corpus()[:40])
    parts = sorted({text[at : at + size] for at in range(0, len(text), 3) for size in (1, 2, 3, 5, 8)})
    tokens = ["<|plamo:unk|>", "<|plamo:bos|>", "<|plamo:eos|>", "<|plamo:pad|>", *BYTES, *parts]
    scores = [0.0] * 260 + [draw.choice([-4.0, -7.0, draw.uniform(-12, -1)]) for _part in parts]
    types = [2, 3, 3, 3] + [6] * 256 + [1] * len(parts)
    return {
        KEY + "model": "plamo2", KEY + "pre": "default", KEY + "tokens": tokens, KEY + "scores": scores,
        KEY + "token_type": types, KEY + "bos_token_id": 1, KEY + "eos_token_id": 2,
        KEY + "unknown_token_id": 0, KEY + "add_bos_token": False,
    } | changes  # fmt: skip


def words(**changes: Any) -> dict[str, Any]:
    """BPE over letters, with tokens for bytes or without."""
    from tokenizers import Tokenizer as Library
    from tokenizers import models, pre_tokenizers, trainers

    made = Library(models.BPE())
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=["<|b|>", "<|e|>"], show_progress=False)
    made.train_from_iterator(corpus(1), trainer)
    model = json.loads(made.to_str())["model"]
    tokens = sorted(model["vocab"], key=lambda text: model["vocab"][text]) + BYTES
    return {
        KEY + "model": "whitespace", KEY + "pre": "whitespace", KEY + "tokens": tokens,
        KEY + "token_type": [3, 3] + [1] * (len(tokens) - 258) + [6] * 256,
        KEY + "merges": [" ".join(pair) for pair in model["merges"]],
        KEY + "bos_token_id": 0, KEY + "eos_token_id": 1, KEY + "add_bos_token": False,
    } | changes  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("made", "spaced"),
    [
        pytest.param(least_cost, True, id="plamo2"),
        pytest.param(words, False, id="whitespace"),
        pytest.param(lambda: words(**{KEY + "normalizer.lowercase": True}), False, id="small letters"),
    ],
)
def test_ids_are_those_of_llama_cpp(made: Any, spaced: bool, tmp_path: Path) -> None:
    metadata = made()
    ours = Tokenizer.from_gguf(metadata)
    # Of İ the `tokenizers` library makes two small letters; </s> is a control token by its name.
    found = [text.replace("İ", "I").replace("</s>", "") for text in texts(6, 150)]
    chosen = [*found, "", "\ufeffa", "a\ufeff", " a  b "]
    with by_llama_cpp(tmp_path / "m.gguf", metadata) as theirs:
        for text in chosen:
            assert ours.encode(text) == (theirs(text, False) if text else []), repr(text)
    if spaced:
        for text in chosen:
            assert ours.decode(ours.encode(text)) == text.removeprefix("\ufeff")


def test_the_split_with_the_highest_sum_of_scores_is_taken() -> None:
    metadata = least_cost()
    found = {**dict.fromkeys(("ab", "abc", "cd", "d"), -3.0), "x<|plamo:eos|>": -1.0}
    metadata[KEY + "tokens"] = metadata[KEY + "tokens"][:260] + list(found)
    metadata[KEY + "token_type"] = metadata[KEY + "token_type"][:260] + [1] * len(found)
    metadata[KEY + "scores"] = metadata[KEY + "scores"][:260] + list(found.values())
    tokenizer = Tokenizer.from_gguf(metadata)
    assert tokenizer.encode("abcd") == [261, 263], "of equal sums the longer token comes first"
    assert tokenizer.encode("abé") == [260, 4 + 0xC3, 4 + 0xA9]
    assert tokenizer.encode("<|plamo:eos|>", special=True) == [2]
    assert 2 not in tokenizer.encode("<|plamo:eos|>")
    assert tokenizer.decode([260, 4 + 0xC3, 4 + 0xA9]) == "abé"
    assert tokenizer.encode("ab<0x0A>") == [260, *(4 + byte for byte in b"<0x0A>")]


def listed(folder: Path, metadata: dict[str, Any], **config: Any) -> Path:
    """The same vocabulary as PLaMo's makers publish it."""
    kinds = {1: "NORMAL", 2: "UNKNOWN", 3: "CONTROL", 6: "BYTE"}
    parts = (metadata[KEY + name] for name in ("tokens", "scores", "token_type"))
    lines = [[text, score, kinds[kind], "W"] for text, score, kind in zip(*parts, strict=True)]
    lines[3] = ["<|plamo:pad|>", 0.0, "NORMAL"]  # a control token by its name
    rows = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    (folder / "tokenizer.jsonl").write_text(rows + "\n\n", "utf-8")
    roles = {"bos_token": "<|plamo:bos|>", "eos_token": "<|plamo:eos|>", "add_bos_token": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(roles | config), "utf-8")
    return folder


def test_a_folder_of_plamo(tmp_path: Path) -> None:
    metadata = least_cost()
    metadata[KEY + "tokens"][300:302] = ["a\u2028", "\x85b"]
    file = Tokenizer.from_gguf(metadata)
    folder = Tokenizer.from_folder(listed(tmp_path, metadata))
    assert (folder.bos_token_id, folder.eos_token_id, folder.add_bos) == (1, 2, True)
    assert folder.special_ids == file.special_ids == {0, 1, 2, 3}
    assert folder.stop_token_ids == (2,)
    for text in (*texts(7, 100), "\u2028a\x85b", "<|plamo:eos|>"):
        assert folder.encode(text) == file.encode(text)
    assert folder.encode("<|plamo:eos|>", special=True) == [2]


def test_long_runs_are_split_apart_in_folders_of_plamo(tmp_path: Path) -> None:
    metadata = least_cost()
    runs = "xa", "aaaa", "ab", "    ", "aaa", "b"
    metadata[KEY + "tokens"][260:] = ["aa", "aaa", "ab", "   ", " ", "  a", "xa", "a"]
    metadata[KEY + "token_type"][260:] = [1] * 8
    metadata[KEY + "scores"][260:] = [-1.0, -1.2, -0.1, -1.0, -2.0, -0.1, -0.1, -5.0]
    whole = Tokenizer.from_gguf(metadata)
    both = {"break_around_repeated_chars_threshold": 5, "break_around_consecutive_spaces_threshold": 4}
    folder = Tokenizer.from_folder(listed(tmp_path, metadata, **both))
    apart = ["x", "aaaaaa", "b", "    ", "aaab"]
    assert folder.encode("".join(runs)) == [i for part in apart for i in whole.encode(part)]
    assert folder.encode("".join(runs)) != whole.encode("".join(runs))
    assert folder.encode("\n\n\n\n\n\n") == whole.encode("\n\n\n\n\n\n")
    for wrong in ("5", 0, 1.5, True):
        listed(tmp_path, metadata, break_around_repeated_chars_threshold=wrong)
        with pytest.raises(BadCheckpoint):
            Tokenizer.from_folder(tmp_path)


@pytest.mark.parametrize("line", ["[1, 2.0]", "{}", '["a"]', '["a", "b", "NORMAL"]', "no JSON", "7"])
def test_a_broken_list_of_plamo(line: str, tmp_path: Path) -> None:
    path = listed(tmp_path, least_cost()) / "tokenizer.jsonl"
    path.write_text(path.read_text("utf-8") + line, "utf-8")
    with pytest.raises(BadCheckpoint) as error:
        Tokenizer.from_folder(tmp_path)
    assert "\n" not in str(error.value)


def test_a_vocabulary_without_a_byte_is_refused() -> None:
    metadata = least_cost()
    metadata[KEY + "token_type"][10] = 1
    with pytest.raises(BadCheckpoint, match="lacks a token for some bytes"):
        Tokenizer.from_gguf(metadata)


@pytest.mark.parametrize("kind", ["none", "no_vocab"])
def test_a_file_without_a_vocabulary_says_so(kind: str) -> None:
    with pytest.raises(UnsupportedModel, match=f"has no vocabulary .*model is {kind}"):
        Tokenizer.from_gguf({KEY + "model": kind})


def test_merges_of_kimi_k2_follow_from_the_order_of_its_tokens() -> None:
    """As tiktoken merges, which trained vocabularies of BPE agree with for whole words at least."""
    metadata = byte_level_metadata(**{KEY + "pre": "kimi-k2"})
    whole = Tokenizer.from_gguf(metadata)
    bare = {key: value for key, value in metadata.items() if not key.endswith("merges")}
    found, draw = Tokenizer.from_gguf(bare), random.Random(5)
    for _unused in range(40):
        text = random_text(draw)
        assert found.decode(found.encode(text)) == text
    for line in corpus(2, 40):
        assert found.encode(line) == whole.encode(line)
