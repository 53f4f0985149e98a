"""WordPiece vocabularies (BERT): those of GGUF files, and of folders that have only vocab.txt.

Sources: the `tokenizers` library's `models/wordpiece` and `normalizers/bert.rs`; for GGUF files llama.cpp's
converter (`convert_hf_to_gguf.py`, `BertModel`), which writes "▁" before the beginnings of words instead of
"##" before what continues them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from engine.text.tokenizer.definition import CONTROL, SPACE, UNKNOWN, own_names, tokenizer_json

PREFIX = "##"
_LONGEST_WORD = 100
"""Characters; a longer word is unknown."""
_FEW = 0.001


def wordpiece_json(
    vocab: dict[str, int], unknown: str, *, lowercase: bool, strip_accents: bool | None = None
) -> dict[str, Any]:
    """A definition of BERT's tokenizer; accents are dropped by default where letters become lower-case."""
    model = {
        "type": "WordPiece", "vocab": vocab, "unk_token": unknown, "continuing_subword_prefix": PREFIX,
        "max_input_chars_per_word": _LONGEST_WORD,
    }  # fmt: skip
    normalizer = {
        "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
        "strip_accents": strip_accents, "lowercase": lowercase,
    }  # fmt: skip
    return tokenizer_json(
        model, normalizer=normalizer, pre_tokenizer={"type": "BertPreTokenizer"},
        decoder={"type": "WordPiece", "prefix": PREFIX, "cleanup": True},
    )  # fmt: skip


def gguf_wordpiece(
    tokens: Sequence[str], types: Sequence[int], roles: Collection[int], lowercase: bool | None = None,
    strip_accents: bool | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The definition of a GGUF file's vocabulary; `roles` are the ids of control tokens.

    Where the file does not say whether text becomes `lowercase`, it does if the vocabulary has no capital
    letters.
    """
    plain = [
        token if kind in (CONTROL, UNKNOWN) or i in roles or _is_marker(token) else _piece(token)
        for i, (token, kind) in enumerate(zip(tokens, types, strict=True))
    ]
    names = own_names(plain)
    unknown = next((name for name in plain if name in ("[UNK]", "<unk>")), names[0])
    vocab = {name: i for i, name in enumerate(names)}
    return wordpiece_json(
        vocab,
        unknown,
        lowercase=not has_capitals(plain) if lowercase is None else lowercase,
        strip_accents=strip_accents,
    )


def has_capitals(tokens: Iterable[str]) -> bool:
    """Whether more than a few tokens, markers left out, have capital letters."""
    words = [token for token in tokens if not _is_marker(token)]
    return sum(token != token.lower() for token in words) > _FEW * len(words)


def _is_marker(token: str) -> bool:
    return len(token) > 2 and token[0] == "[" and token[-1] == "]"


def _piece(token: str) -> str:
    return token[1:] if token.startswith(SPACE) else PREFIX + token
