"""Folders without a tokenizer.json, and unigram vocabularies, against sentencepiece, tiktoken's rule and
the tokenizers library.
"""

from __future__ import annotations

import base64
import io
import json
import random
import struct
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import BadCheckpoint, EngineError, ModelNotFound, UnsupportedModel
from engine.text.tokenizer.charsmap import Charsmap
from engine.text.tokenizer.definition import joined_merges
from engine.text.tokenizer.pretokenizers import PRETOKENIZERS
from engine.text.tokenizer.sentencepiece_proto import parse_sentencepiece
from engine.text.tokenizer.tokenizer import Tokenizer
from engine.text.tokenizer.vocabulary import byte_level_alphabet
from tests.engine.text.tokenizer.vocabularies import byte_level_json, byte_level_metadata, corpus, random_text

CHUNKS = 2000
KINDS: dict[str, dict[str, Any]] = {
    "llama": {
        "model_type": "bpe",
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "byte_fallback": True,
    },
    "gemma": {
        "model_type": "bpe",
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "byte_fallback": True,
        "add_dummy_prefix": False,
    },
    "nfkc bpe": {"model_type": "bpe", "normalization_rule_name": "nmt_nfkc", "byte_fallback": True},
    "unigram": {"model_type": "unigram", "normalization_rule_name": "nmt_nfkc_cf"},
    "unigram bytes": {
        "model_type": "unigram",
        "normalization_rule_name": "identity",
        "byte_fallback": True,
        "remove_extra_whitespaces": False,
    },
}


@lru_cache
def model_file(kind: str) -> bytes:
    import sentencepiece

    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus(2)),
        model_writer=out,
        vocab_size=700,
        character_coverage=0.98,
        minloglevel=2,
        num_threads=1,
        hard_vocab_limit=False,
        **KINDS[kind],
    )
    return out.getvalue()


def texts(seed: int, count: int = CHUNKS) -> list[str]:
    draw = random.Random(seed)
    plain = [
        "",
        " ",
        "  ",
        " a  b ",
        "\n",
        "\t\tx",
        "ﬁ ①  ｶﾞ",
        "<0x0A>",
        "Ⅷ½",
        "A\u0301 e\u0301",
        "\u3000x\u3000",
    ]
    return [*plain, *(random_text(draw) for _ in range(count))]


@pytest.mark.parametrize("kind", KINDS)
def test_model_files_are_read_as_sentencepiece_reads_them(kind: str, tmp_path: Path) -> None:
    import sentencepiece

    (tmp_path / "tokenizer.model").write_bytes(model_file(kind))
    theirs, ours = (
        sentencepiece.SentencePieceProcessor(model_proto=model_file(kind)),
        Tokenizer.from_folder(tmp_path),
    )
    assert (ours.bos_token_id, ours.eos_token_id, ours.vocab_size) == (
        theirs.bos_id(),
        theirs.eos_id(),
        theirs.get_piece_size(),
    )
    assert ours.add_bos
    for text in texts(1):
        text = text.replace("\0", "")  # ends a text for sentencepiece's rules
        assert ours.encode(text) == theirs.encode(text), repr(text)


def unigram_metadata(kind: str) -> dict[str, Any]:
    model = parse_sentencepiece(model_file(kind))
    return {
        "tokenizer.ggml.model": "t5",
        "tokenizer.ggml.tokens": model.texts,
        "tokenizer.ggml.scores": model.scores,
        "tokenizer.ggml.token_type": model.types,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_space_prefix": model.prefix_space,
        "tokenizer.ggml.remove_extra_whitespaces": model.merge_spaces,
        "tokenizer.ggml.precompiled_charsmap": [
            byte - 256 if byte > 127 else byte for byte in model.charsmap
        ],
    }


@pytest.mark.parametrize("kind", ["unigram", "unigram bytes"])
def test_unigram_gguf_is_the_same_as_its_model_file(kind: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(model_file(kind))
    folder, gguf = Tokenizer.from_folder(tmp_path), Tokenizer.from_gguf(unigram_metadata(kind))
    assert (gguf.bos_token_id, gguf.eos_token_id, gguf.add_bos) == (1, 2, False)
    for text in texts(2, 500):
        assert gguf.encode(text) == folder.encode(text)


def test_unigram_tokenizer_json_as_the_library_reads_it(tmp_path: Path) -> None:
    from tokenizers import Tokenizer as Library
    from tokenizers import decoders, models, normalizers, pre_tokenizers

    model = parse_sentencepiece(model_file("unigram"))
    library = Library(models.Unigram(list(zip(model.texts, model.scores, strict=True)), 0, False))
    library.normalizer = normalizers.Sequence(
        [normalizers.Precompiled(model.charsmap), normalizers.Replace("  ", " ")]
    )
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    library.decoder = decoders.Metaspace()
    library.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "special_tokens_map.json").write_text(
        json.dumps({"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"})
    )
    ours = Tokenizer.from_folder(tmp_path)
    for text in texts(3):
        plain = library.encode(text, add_special_tokens=False).ids
        if not ours.special_ids & set(plain):
            assert ours.encode(text) == plain


def test_added_and_configured_tokens_of_a_model_file(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(model_file("llama"))
    count = len(parse_sentencepiece(model_file("llama")).texts)
    decoder = {
        # takes the place of a piece, as InternLM2's do
        str(count - 1): {"content": "<|im_end|>", "special": True},
        # beyond the vocabulary, with a gap before it
        str(count + 4): {"content": "<|im_start|>", "special": True},
    }
    config = {
        "added_tokens_decoder": decoder,
        "bos_token": "<s>",
        "eos_token": "<|im_end|>",
        "add_bos_token": False,
        "legacy": False,
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<tool>": count + 5}))
    tokenizer = Tokenizer.from_folder(tmp_path)
    assert tokenizer.encode("<|im_start|>", special=True) == [count + 4]
    assert tokenizer.encode("<tool>") == [count + 5]
    assert (tokenizer.eos_token_id, tokenizer.add_bos, tokenizer.vocab_size) == (count - 1, False, count + 6)
    assert tokenizer.decode([count + 4, count + 5, count + 2], skip_special=False) == "<|im_start|><tool>"
    plain = tokenizer.encode("the fox")
    # a space is put only before the whole text
    assert tokenizer.encode("<|im_end|>the fox", special=True)[1:] != plain
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**config, "legacy": True}))
    assert Tokenizer.from_folder(tmp_path).encode("<|im_end|>the fox", special=True)[1:] == plain


def ranks() -> dict[bytes, int]:
    """The byte-level vocabulary as tiktoken keeps it."""
    alphabet = byte_level_alphabet()
    vocab = json.loads(byte_level_json())["model"]["vocab"]
    words = [
        bytes(alphabet[char] for char in text)
        for text in sorted(vocab, key=lambda text: vocab[text])
        if set(text) <= set(alphabet)
    ]
    words = [word for word in words if not word.startswith(b"<|")]
    return {
        word: i
        for i, word in enumerate(
            [*(bytes([i]) for i in range(256)), *(word for word in words if len(word) > 1)]
        )
    }


def by_rank(ranks: dict[bytes, int], word: bytes) -> list[int]:
    """tiktoken's rule: a whole word, or the neighbours whose joined bytes have the lowest rank, again and
    again.
    """
    parts = [word] if word in ranks else [bytes([byte]) for byte in word]
    while len(parts) > 1:
        best = min(range(len(parts) - 1), key=lambda i: ranks.get(parts[i] + parts[i + 1], 1 << 30))
        if parts[best] + parts[best + 1] not in ranks:
            break
        parts[best : best + 2] = [parts[best] + parts[best + 1]]
    return [ranks[part] for part in parts]


def cut(rule: str, text: str) -> list[bytes]:
    from tokenizers import Tokenizer as Library
    from tokenizers import models

    alphabet = byte_level_alphabet()
    shell = json.loads(Library(models.BPE()).to_str())
    shell["pre_tokenizer"] = PRETOKENIZERS[rule].to_json()
    words = Library.from_str(json.dumps(shell)).pre_tokenizer.pre_tokenize_str(text)
    return [bytes(alphabet[char] for char in word) for word, _ in words]


def tekken(count: int = 20) -> dict[str, Any]:
    table = ranks()
    vocab = [
        {"rank": i, "token_bytes": base64.b64encode(word).decode(), "token_str": None}
        for word, i in table.items()
    ]
    special = [
        {"rank": i, "token_str": text, "is_control": True}
        for i, text in enumerate(["<unk>", "<s>", "</s>", "[INST]", "[/INST]"])
    ]
    config = {
        "pattern": PRETOKENIZERS["tekken"].patterns[0],
        "num_vocab_tokens": len(vocab),
        "default_vocab_size": len(vocab) + count,
        "default_num_special_tokens": count,
        "version": "v7",
    }
    return {"config": config, "vocab": vocab, "special_tokens": special}


def test_tekken_json(tmp_path: Path) -> None:
    (tmp_path / "tekken.json").write_text(json.dumps(tekken()))
    tokenizer, table = Tokenizer.from_folder(tmp_path), ranks()
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.add_bos, tokenizer.stop_token_ids) == (
        1,
        2,
        True,
        (2,),
    )
    assert tokenizer.encode("[INST]a", special=True) == [3, 20 + ord("a")]
    assert tokenizer.piece(19) == "<SPECIAL_19>"
    (tmp_path / "tekken.json").write_text(json.dumps({**tekken(), "special_tokens": None}))
    earliest = Tokenizer.from_folder(tmp_path)  # does not list them
    assert [earliest.piece(i) for i in (0, 2, 9, 19)] == ["<unk>", "</s>", "[TOOL_CALLS]", "[TOOL_CONTENT]"]
    for text in texts(4, 300):
        assert tokenizer.encode(text) == [
            i + 20 for word in cut("tekken", text) for i in by_rank(table, word)
        ]


@pytest.mark.parametrize(
    ("name", "kind", "rule"),
    [("tokenizer.model", "chatglm", "glm4"), ("qwen.tiktoken", "qwen", "deepseek-r1-qwen")],
)
def test_lists_of_ranks(tmp_path: Path, name: str, kind: str, rule: str) -> None:
    import unicodedata

    table = ranks()
    (tmp_path / name).write_bytes(
        b"".join(base64.b64encode(word) + b" %d\n\n" % i for word, i in table.items())
    )
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    if kind == "chatglm":
        decoder = {str(len(table)): {"content": "<|endoftext|>", "special": True}}
        (tmp_path / "tokenizer_config.json").write_text(
            json.dumps({"added_tokens_decoder": decoder, "eos_token": "<|endoftext|>"})
        )
    tokenizer = Tokenizer.from_folder(tmp_path)
    assert tokenizer.eos_token_id == len(table)
    for text in texts(5, 300):
        text = unicodedata.normalize("NFC", text)
        assert tokenizer.encode(text) == [i for word in cut(rule, text) for i in by_rank(table, word)]


def test_ranks_of_an_unknown_model_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.tiktoken").write_bytes(b"YQ== 0\n")
    with pytest.raises(UnsupportedModel, match=r"x\.tiktoken does not say how text is cut"):
        Tokenizer.from_folder(tmp_path)


def test_vocabulary_and_merges(tmp_path: Path) -> None:
    model = json.loads(byte_level_json())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
    merges = "".join(f"{left} {right}\n" for left, right in model["merges"])
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + merges, encoding="utf-8")
    for kind, rule in (("gpt2", "gpt-2"), ("starcoder2", "starcoder"), ("something", "gpt-2")):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
        tokenizer = Tokenizer.from_folder(tmp_path)
        assert tokenizer.eos_token_id == 0
        gguf = Tokenizer.from_gguf(byte_level_metadata(**{"tokenizer.ggml.pre": rule}))
        for text in texts(6, 200):
            text = text.replace("tool>", "")
            assert tokenizer.encode(text) == gguf.encode(text)
    (tmp_path / "tokenizer_config.json").write_text('{"add_prefix_space": true}')
    assert Tokenizer.from_folder(tmp_path).encode("the tool") == tokenizer.encode(" the tool")


def test_a_model_file_names_its_control_tokens() -> None:
    training = b"\xc0\x02\x05" + b"\xc8\x02" + b"\xff" * 9 + b"\x01" + b"\xd0\x02\x07"
    model = parse_sentencepiece(model_file("llama") + b"\x12" + bytes([len(training)]) + training)
    assert (model.unk_id, model.bos_id, model.eos_id) == (5, -1, 7)


def test_merges_by_score_and_by_rank() -> None:
    assert joined_merges(["a", "b", "ab", "aba", "x"]) == [("a", "b"), ("ab", "a")]


@pytest.mark.slow
def test_a_quarter_of_a_million_tokens_load_quickly() -> None:
    import time

    draw = random.Random(0)
    pieces: dict[str, None] = {}
    while len(pieces) < 256_000:
        pieces["".join(draw.choices("abcdefghijklmnop▁", k=draw.randrange(1, 10)))] = None
    names = [f"<0x{i:02X}>" for i in range(256)]
    tokens = ["<unk>", "<s>", "</s>", *names, *pieces, *(f"<unused{i}>" for i in range(6000))]
    types = [2, 3, 3, *[6] * 256, *[1] * 256_000, *[4] * 6000]
    start = time.process_time()
    tokenizer = Tokenizer.from_gguf(
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": types,
            "tokenizer.ggml.scores": [-float(i) for i in range(len(tokens))],
        }
    )
    assert time.process_time() - start < 8
    assert tokenizer.vocab_size == len(tokens)


@given(data=st.binary(max_size=300))
@settings(max_examples=300)
def test_broken_model_files_end_in_one_sentence(data: bytes) -> None:
    for contents in (data, model_file("llama")[: len(data) * 40] + data):
        sentence = ""
        try:
            parse_sentencepiece(contents)
        except EngineError as error:
            sentence = str(error)
        assert not sentence or sentence.startswith("tokenizer.model ")


@given(data=st.binary(max_size=64), text=st.text(max_size=20))
def test_broken_tables_of_characters(data: bytes, text: str) -> None:
    with pytest.raises(BadCheckpoint, match="precompiled_charsmap"):
        Charsmap(data)
    whole = struct.pack("<I", 1024) + (data * 20)[:1024].ljust(1024, b"\xff") + data
    assert isinstance(Charsmap(whole).normalize(text), str)


@pytest.mark.parametrize(
    ("files", "error", "words"),
    [
        ({}, ModelNotFound, "no tokenizer.json"),
        ({"tokenizer.model": b"\x0a\xff\xff\xff\xff\x0f"}, BadCheckpoint, "tokenizer.model is cut off"),
        ({"tokenizer.model": b""}, BadCheckpoint, "holds no tokens"),
        ({"tokenizer.model": b"\x12\x02\x18\x03"}, UnsupportedModel, "a model of words"),
        ({"tokenizer.model": b"\x12\x03\xc0\x01\x01"}, UnsupportedModel, "spaces at the ends of words"),
        ({"tokenizer.model": b"\x12\x0c" + b"\xff" * 12}, BadCheckpoint, "tokenizer.model is cut off"),
        ({"tekken.json": b"{}"}, BadCheckpoint, "tekken.json has no vocabulary"),
        ({"tekken.json": b'{"config": {}, "vocab": []}'}, BadCheckpoint, "tekken.json has no vocabulary"),
        ({"tekken.json": json.dumps({**tekken(), "vocab": [1]}).encode()}, BadCheckpoint, "a broken entry"),
        ({"tekken.json": json.dumps(tekken(1 << 16)).encode()}, BadCheckpoint, "65536 of them control"),
        ({"tokenizer.json": b'"\xff"'}, BadCheckpoint, "is not UTF-8 text"),
        ({"tokenizer.json": b"[" * 100_000}, BadCheckpoint, "nested deeper"),
        ({"vocab.json": b'{"a": "b"}', "merges.txt": b""}, BadCheckpoint, "vocab.json holds no table"),
        ({"vocab.json": b'{"a": -1}', "merges.txt": b""}, BadCheckpoint, "vocab.json holds no table"),
        ({"vocab.json": b'{"a": 1}', "merges.txt": b"a b c"}, BadCheckpoint, "not of 2 parts"),
        ({"a.tiktoken": b"YQ== x\n"}, BadCheckpoint, "not a token and its rank"),
        ({"a.tiktoken": b"YQ== 99999999999\n"}, BadCheckpoint, "or impossible ranks"),
        ({"tokenizer.json": b'{"model": {"type": "BPE", "vocab": {"a": 0}}, "added_tokens": [1]}'},
         BadCheckpoint, "unknown form"),
    ],
)  # fmt: skip
def test_broken_files(tmp_path: Path, files: dict[str, bytes], error: type[Exception], words: str) -> None:
    for name, contents in files.items():
        (tmp_path / name).write_bytes(contents)
    with pytest.raises(error, match=words):
        Tokenizer.from_folder(tmp_path)
