"""Every kind of vocabulary in a file without weights: the same ids as llama.cpp's, over text of all sorts.

Left out is what llama.cpp reads unlike the models' own tokenizer.json, which counts here: it composes no
letters (NFC), takes letters and marks beyond ASCII, and with Youtu's rule all letters, for capital and
small at once, looks beyond a cut for what white space is followed by, cuts long numbers before letters from
the right with Tiny Aya's, and cleans WordPiece's text by other rules for rare characters.
"""

from __future__ import annotations

import itertools
import random
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.text.tokenizer.definition import joined_merges
from engine.text.tokenizer.pretokenizers import PRETOKENIZERS, Pretokenizer
from engine.text.tokenizer.sentencepiece import score_order
from engine.text.tokenizer.sentencepiece_proto import parse_sentencepiece
from engine.text.tokenizer.tokenizer import Tokenizer
from tests.engine.text.tokenizer.vocabularies import (
    ALPHABETS,
    byte_level_metadata,
    random_text,
    sentencepiece_metadata,
    unigram_model,
)
from tests.tiny import _add_key
from tests.wordpiece import gguf_vocabulary, library_tokenizer

pytestmark = pytest.mark.slow
_BITS = (
    "'S", "'LL", "I'M", "it's", "\u2019s", "12345678901234567890", "\r\n", "\n\r", "\n\n", " \n ", "\t\t",
    "  ", "   a", "e\u0301", "ภาษาไทย", "العربية", "你好世界", "あア", "한국어", "👩\u200d👩\u200d👧", "🇩🇪",
    "٣٤", "½Ⅷ", "HelloWorld", "camelCaseABCdef", "foo_bar.baz()", "/usr/bin/", "https://x.y/z?a=1&b=2",
    "!!!???...", "``` {}[]<>", "\u00a0", "\u3000", "\ufeff", "\u200b", "\x85", "\u2028", "a" * 300, "क्ष",
    "Ångström", "Straße", "İ", "ǅ", "x\u0300\u0300\u0300", "$100", "+-*/=", "^~|`", "€5", "<|im_start|>",
    "[INST]", "</s>", "<sentinel:3>", "IMGIMGABCZ", "<tool>", "<0x0A>",
    "Hello", " World", "DON'Tdon't", "\x00", "\ufffd", "\x1c\x1f", "1️⃣", "\U0010ffff", "１２", "1.5",
)  # fmt: skip


def texts(seed: int, count: int) -> list[str]:
    """Words, scripts, digits and white space side by side."""
    draw, found = random.Random(seed), []
    for _ in range(count):
        parts = [draw.choice(_BITS) + draw.choice(["", " ", "", "\n"]) for _ in range(draw.randrange(1, 12))]
        mixed = [draw.choice(draw.choice(ALPHABETS)) for _ in range(draw.randrange(1, 60))]
        found.append("".join(draw.choice([parts, mixed, [random_text(draw)]])))
    return found


@contextmanager
def by_llama_cpp(
    path: Path, metadata: dict[str, Any], architecture: str = "llama"
) -> Iterator[Callable[[str, bool], list[int]]]:
    """What makes llama.cpp's ids of a text, with control tokens or without, from a file of this metadata."""
    llama = pytest.importorskip("llama_cpp")
    import gguf

    writer = gguf.GGUFWriter(path, architecture)
    for key, value in metadata.items():
        if key.endswith("charsmap"):
            writer.add_precompiled_charsmap(bytes(value))
        else:
            _add_key(writer, key, value)
    sizes = {"block_count": 1, "context_length": 64, "embedding_length": 8, "feed_forward_length": 8}
    for key, value in (sizes | {"attention.head_count": 1, "vocab_size": len(metadata[_TOKENS])}).items():
        _add_key(writer, f"{architecture}.{key}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model = llama.Llama(str(path), vocab_only=True, verbose=False)
    try:
        yield lambda text, special: model.tokenize(text.encode(), add_bos=False, special=special)
    finally:
        model.close()


_TOKENS = "tokenizer.ggml.tokens"
_WORD = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Pc"}


def _ends_no_word(text: str) -> bool:
    """Whether a number of four digits or more is followed by a letter, or a number has other signs, too."""
    runs = [(kind, [*run]) for kind, run in itertools.groupby(map(unicodedata.category, text))]
    return any(
        kind[0] == "N" and (after[0] == "N" or (len(run) > 3 and (kind != "Nd" or after in _WORD)))
        for (kind, run), (after, _) in itertools.pairwise([*runs, ("Zs", [])])
    )


def alike(rule: Pretokenizer, text: str) -> bool:
    """Whether llama.cpp reads the text as tokenizer.json's rule says."""
    patterns = "".join(rule.patterns)
    cased = r"\p{Lu}" in patterns and any(
        c > "\x7f" and (c.lower() != c.upper() or unicodedata.category(c)[0] == "M") for c in text
    )
    humped = rule is PRETOKENIZERS["youtu"] and re.search("[a-z][A-Z]", text) is not None
    counted = re.search(r"\(\?:\\(d|p\{N\})\{3\}\)\*", patterns) is not None and any(
        unicodedata.category(after)[0] == "N" and before.isspace()
        for before, after in itertools.pairwise(text)
    )
    ended = r"\b" in patterns and _ends_no_word(text)
    return not (
        cased or humped or counted or ended or (rule.nfc and not unicodedata.is_normalized("NFC", text))
    )


ONE_OF_EACH_RULE = {rule: name for name, rule in PRETOKENIZERS.items()}
WHOLE = ("Hello", "ĠWorld", "don", "12", "123", "!!", "ĊĊ", "ĠĠĠ", "æ¼¢åŃĹ")
"""Tokens that no merges make: only a rule that ignores merges writes a word with them."""


@pytest.mark.parametrize("name", PRETOKENIZERS)
def test_cutting_rules(name: str, tmp_path: Path) -> None:
    metadata = byte_level_metadata(**{"tokenizer.ggml.pre": name})
    whole = [token for token in WHOLE if token not in metadata[_TOKENS]]
    for key, more in ((_TOKENS, whole), ("tokenizer.ggml.token_type", [1] * len(whole))):
        metadata[key] = [*metadata[key], *more]
    ours = Tokenizer.from_gguf(metadata)
    count = 250 if name in ONE_OF_EACH_RULE.values() else 80
    chosen = [text for text in texts(5, count) if alike(PRETOKENIZERS[name], text)]
    assert len(chosen) * 5 > count
    with by_llama_cpp(tmp_path / "m.gguf", metadata) as theirs:
        for text in chosen:
            assert ours.encode(text) == theirs(text, False), repr(text)
            assert ours.encode(text, special=True) == theirs(text, True), repr(text)


def pieces_with_merges(**changes: str) -> dict[str, Any]:
    """The pieces of SentencePiece with listed merges, as Gemma 4's files have them."""
    metadata = sentencepiece_metadata(False)
    tokens, types = metadata[_TOKENS], metadata["tokenizer.ggml.token_type"]
    merges = joined_merges(score_order(tokens, types, metadata["tokenizer.ggml.scores"]))
    listed = {"tokenizer.ggml.merges": [" ".join(pair) for pair in merges]}
    return {key: value for key, value in metadata.items() if "prefix" not in key} | listed | changes


def unigram() -> dict[str, Any]:
    """A unigram vocabulary with a table of replacements, as T5's and XLM-RoBERTa's files have it."""
    model = parse_sentencepiece(unigram_model())
    key = "tokenizer.ggml."
    return {
        key + "model": "t5", key + "pre": "default", _TOKENS: list(model.texts),
        key + "scores": [float(score) for score in model.scores], key + "token_type": list(model.types),
        key + "add_space_prefix": True, key + "remove_extra_whitespaces": True,
        key + "unknown_token_id": 0, key + "bos_token_id": 1, key + "eos_token_id": 2,
        key + "precompiled_charsmap": model.charsmap,
    }  # fmt: skip


def wordpiece(trained: bool, **said: bool) -> dict[str, Any]:
    """BERT's, `trained` on small letters; what is `said` of capitals and accents has keys of its own."""
    made = gguf_vocabulary(library_tokenizer(lowercase=trained, size=400))
    return made | {f"tokenizer.ggml.normalizer.{name}": value for name, value in said.items()}


GPT2 = {"tokenizer.ggml.model": "gpt2"}


@pytest.mark.parametrize(
    ("metadata", "architecture"),
    [
        pytest.param(sentencepiece_metadata, "llama", id="SentencePiece"),
        pytest.param(lambda: sentencepiece_metadata(False), "llama", id="SentencePiece without a prefix"),
        pytest.param(unigram, "t5", id="unigram"),
        pytest.param(lambda: pieces_with_merges(**{"tokenizer.ggml.model": "gemma4"}), "llama", id="Gemma 4"),
        *(
            pytest.param(
                lambda pre=pre: pieces_with_merges(**GPT2, **{"tokenizer.ggml.pre": pre}), "llama", id=pre
            )
            for pre in ("gemma4", "sarvam-moe", "granite-embed-multi-311m")
        ),
        pytest.param(lambda: wordpiece(True), "bert", id="WordPiece"),
        *(
            pytest.param(
                lambda lower=lower, strip=strip: wordpiece(False, lowercase=lower, strip_accents=strip),
                "bert",
                id=f"WordPiece, {lower}, {strip}",
            )
            for lower in (False, True)
            for strip in (False, True)
        ),
    ],
)
def test_other_kinds(metadata: Callable[[], dict[str, Any]], architecture: str, tmp_path: Path) -> None:
    made = metadata()
    ours = Tokenizer.from_gguf(made)
    with by_llama_cpp(tmp_path / "m.gguf", made, architecture) as theirs:
        for text in plain(texts(6, 400), architecture):
            assert ours.encode(text) == theirs(text, False), repr(text)


def plain(found: Iterable[str], architecture: str) -> list[str]:
    """Texts that llama.cpp and the `tokenizers` library clean alike: for BERT without control characters, its
    mark of spaces, a letter whose small one is two, and marks that are new in Unicode or enclose a letter.
    """
    if architecture != "bert":
        return [*found]
    dropped = "[\x01-\x08\x0b-\x1f\x7f-\x9f\ufffd▁İ\u1abf-\u1aff\u20e3]"
    # A word of over 100 characters is unknown to the library alone.
    return [re.sub("a{50,}", "a" * 50, re.sub(dropped, "", text)) for text in found]
