"""WordPiece: tokenizer.json, vocab.txt and GGUF vocabularies against the `tokenizers` library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.errors import BadCheckpoint
from engine.text.tokenizer.tokenizer import Tokenizer
from engine.text.tokenizer.wordpiece import has_capitals
from tests.wordpiece import NAMED, gguf_vocabulary, library_tokenizer, write_wordpiece

TEXTS = (
    "The quick brown Fox jumps!", "  Ünïcode,\tcafé\nÉtude  ", "漢字 and ひらがな", "a\u0301bc \u200d😀 x",
    "don't - stop_here (now) 3.14", "supercalifragilistic", "x" * 130 + " dog", "\u00adsoft \x00 zero", "",
)  # fmt: skip
CLS, SEP = 2, 3


@pytest.fixture(scope="module", params=[True, False], ids=["lower-case", "cased"])
def library(request: pytest.FixtureRequest) -> Any:
    return library_tokenizer(lowercase=request.param)


@pytest.fixture(params=["tokenizer.json", "vocab.txt", "gguf"])
def tokenizer(library: Any, request: pytest.FixtureRequest, tmp_path: Path) -> Tokenizer:
    if request.param == "gguf":
        return Tokenizer.from_gguf(gguf_vocabulary(library))
    if request.param == "tokenizer.json":
        return Tokenizer.from_folder(write_wordpiece(tmp_path, library))
    tokens = sorted(library.get_vocab(), key=library.get_vocab().get)
    (tmp_path / "vocab.txt").write_text("".join(token + "\n" for token in tokens), "utf-8")
    lower = library.normalizer.lowercase
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**NAMED, "do_lower_case": lower}))
    return Tokenizer.from_folder(tmp_path)


def test_ids_are_those_of_the_library(library: Any, tokenizer: Tokenizer) -> None:
    for text in TEXTS:
        assert tokenizer.encode(text) == library.encode(text, add_special_tokens=False).ids, text
    whole = library.encode(TEXTS[0]).ids
    assert [*tokenizer.encode(TEXTS[0], add_bos=tokenizer.add_bos), tokenizer.end_id] == whole
    assert (tokenizer.bos_token_id, tokenizer.end_id) == (CLS, SEP)


def test_text_is_put_together(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("the fire is warm")
    assert tokenizer.decode(ids) == "the fire is warm"
    assert tokenizer.decode([CLS, *ids, SEP]) == "the fire is warm"


def test_pieces_are_joined_at_two_signs_where_the_decoder_names_none(library: Any, tmp_path: Path) -> None:
    file = write_wordpiece(tmp_path, library) / "tokenizer.json"
    definition = json.loads(file.read_text("utf-8"))
    del definition["decoder"]["prefix"]
    file.write_text(json.dumps(definition), "utf-8")
    tokenizer = Tokenizer.from_folder(tmp_path)
    assert tokenizer.decode(tokenizer.encode("supercalifragilistic")) == "supercalifragilistic"


def test_control_tokens_are_made_only_when_asked(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("[SEP] dog", special=True)[0] == SEP
    assert not {CLS, SEP, 4} & set(tokenizer.encode("[SEP] [CLS] [MASK]"))


@pytest.mark.parametrize(("lowercase", "strip_accents"), [(False, False), (False, True), (True, False)])
def test_gguf_files_say_what_becomes_of_letters(lowercase: bool, strip_accents: bool) -> None:
    """Keys of the converter; the vocabulary alone suggests that capital letters and accents stay."""
    from tokenizers import normalizers

    library = library_tokenizer(lowercase=False)
    key = "tokenizer.ggml.normalizer."
    said = {key + "lowercase": lowercase, key + "strip_accents": strip_accents}
    ours = Tokenizer.from_gguf(gguf_vocabulary(library) | said)
    own = library.normalizer
    try:
        library.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
        expected = [library.encode(text, add_special_tokens=False).ids for text in TEXTS]
    finally:
        library.normalizer = own
    assert [ours.encode(text) for text in TEXTS] == expected
    assert expected != [library.encode(text, add_special_tokens=False).ids for text in TEXTS] or not (
        lowercase or strip_accents
    )


def test_vocab_txt_with_the_names_of_mpnet(tmp_path: Path) -> None:
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "[UNK]", "the", "fire", "##s", "<mask>"]
    (tmp_path / "vocab.txt").write_text("".join(token + "\n" for token in tokens), "utf-8")
    named = {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(named))
    tokenizer = Tokenizer.from_folder(tmp_path)
    assert (tokenizer.add_bos, tokenizer.bos_token_id, tokenizer.end_id) == (True, 0, 2)
    assert tokenizer.encode("The fires <s>") == [5, 6, 7, 4, 4, 4]
    assert tokenizer.encode("<s> the <mask>", special=True) == [0, 5, 8]


def test_gguf_roles_without_types_or_keys() -> None:
    """Files whose control tokens are not flagged: the keys name them, else BERT's usual ids count."""
    metadata = gguf_vocabulary(library_tokenizer(lowercase=True))
    tokens = metadata["tokenizer.ggml.tokens"]
    bare = {key: value for key, value in metadata.items() if not key.endswith(("_id", "token_type"))}
    padded = [*tokens[:2], *(f"[unused{i}]" for i in range(99)), "[CLS]", "[SEP]", *tokens[4:]]
    found = Tokenizer.from_gguf(bare | {"tokenizer.ggml.tokens": padded})
    assert (found.bos_token_id, found.end_id, found.add_bos) == (101, 102, True)
    flagged = {key: value for key, value in metadata.items() if not key.endswith("token_type")}
    assert Tokenizer.from_gguf(flagged).special_ids == {0, 1, 2, 3, 4}


def test_an_unknown_token_that_is_missing(tmp_path: Path) -> None:
    folder = write_wordpiece(tmp_path, library_tokenizer(lowercase=True))
    definition = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    definition["model"]["unk_token"] = "[NONE]"
    (folder / "tokenizer.json").write_text(json.dumps(definition), "utf-8")
    with pytest.raises(BadCheckpoint, match="cannot read this text"):
        Tokenizer.from_folder(folder).encode("😀")


def test_capitals() -> None:
    assert not has_capitals(["a", "##b", "[CLS]", "[UNK]"])
    assert has_capitals(["a", "##B"])
