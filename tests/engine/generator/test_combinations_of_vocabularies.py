"""The promises of `test_combinations` with other vocabularies than byte-level ones."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.text.tokenizer.tokenizer import Tokenizer
from tests.engine.generator import fakes, test_combinations
from tests.engine.text.tokenizer.test_further_kinds import least_cost, words
from tests.engine.text.tokenizer.vocabularies import (
    byte_level_metadata,
    metaspace_json,
    sentencepiece_metadata,
    unigram_model,
)

Maker = Callable[[Path], Tokenizer]


def tekken(folder: Path) -> Tokenizer:
    """The words of the byte-level vocabulary as ranks, as Mistral AI's tekken.json has them."""
    known = Tokenizer.from_gguf(byte_level_metadata())
    texts = [known.token_bytes(id) for id in range(known.vocab_size) if id not in known.special_ids]
    ranks = [bytes([byte]) for byte in range(256)]
    ranks += dict.fromkeys(text for text in texts if len(text) > 1)
    special = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", *(f"<SPECIAL_{place}>" for place in range(5, 20))]
    config = {
        "pattern": r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        "num_vocab_tokens": len(ranks), "default_vocab_size": len(ranks) + len(special),
        "default_num_special_tokens": len(special), "version": "v7",
    }  # fmt: skip
    vocab = [
        {"rank": rank, "token_bytes": base64.b64encode(text).decode(), "token_str": None}
        for rank, text in enumerate(ranks)
    ]
    marks = [{"rank": rank, "token_str": text, "is_control": True} for rank, text in enumerate(special)]
    data = {"config": config, "vocab": vocab, "special_tokens": marks}
    (folder / "tekken.json").write_text(json.dumps(data), encoding="utf-8")
    (folder / "params.json").write_text(json.dumps({"vocab_size": len(ranks) + len(special)}))
    return Tokenizer.from_folder(folder)


def from_file(name: str, content: Callable[[], bytes]) -> Maker:
    """A folder with this file of a vocabulary."""

    def made(folder: Path) -> Tokenizer:
        (folder / name).write_bytes(content())
        (folder / "config.json").write_text(json.dumps({"bos_token_id": 1, "eos_token_id": 2}))
        return Tokenizer.from_folder(folder)

    return made


VOCABULARIES: dict[str, Maker] = {
    "SentencePiece": lambda folder: Tokenizer.from_gguf(sentencepiece_metadata()),
    "SentencePiece without its first space": lambda folder: Tokenizer.from_gguf(
        sentencepiece_metadata(False)
    ),
    "unigram": from_file("tokenizer.model", unigram_model),
    "Metaspace": from_file("tokenizer.json", lambda: metaspace_json().encode()),
    "Tekken": tekken,
    "PLaMo 2": lambda folder: Tokenizer.from_gguf(least_cost()),
    "words": lambda folder: Tokenizer.from_gguf(words()),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", VOCABULARIES)
def test_the_promises_hold(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = VOCABULARIES[name](tmp_path)
    for module in (fakes, test_combinations):
        monkeypatch.setattr(module, "tokenizer", lambda: found)
    for number in range(200, 212):
        test_combinations.check(number)
