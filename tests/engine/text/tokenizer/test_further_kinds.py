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
