"""The tokenizer of a GGUF file: byte-level BPE ("gpt2"), SentencePiece ("llama", "gemma4"), unigram ("t5"),
WordPiece ("bert"), longest match ("rwkv"), least cost ("plamo2") or BPE of words ("whitespace").

Keys and token types: the GGUF specification, section "Tokenizer". A file lists its merges only for BPE
trained with merges; for "llama" they follow from the scores.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.text.template.source import gguf_template
from engine.text.tokenizer.charsmap import stored_charsmap
from engine.text.tokenizer.definition import (
    BYTE,
    CONTROL,
    NORMAL,
    SPACE,
    UNKNOWN,
    USER_DEFINED,
    added_token,
    byte_level_parts,
    joined_merges,
    own_names,
    tokenizer_json,
)
from engine.text.tokenizer.definition_check import expected_form
from engine.text.tokenizer.own_kinds.least_cost import least_cost_json
from engine.text.tokenizer.own_kinds.longest_match import longest_match_json, unescaped
from engine.text.tokenizer.pretokenizers import PRETOKENIZERS, Pretokenizer
from engine.text.tokenizer.sentencepiece import Pieces, sentencepiece_json
from engine.text.tokenizer.vocabulary import (
    CONTROL_BEGINNINGS,
    TokenizerFacts,
    end_of_turn_ids,
    has_tags,
    is_control_by_name,
    looks_like_control,
    unique,
)
from engine.text.tokenizer.wordpiece import gguf_wordpiece
from engine.words import _

_KEY = "tokenizer.ggml."
_BEGUN = ("gemma4", "granite-embed-multi-311m")
_SPACED = (*_BEGUN, "sarvam-moe")  # merges are listed, but consist of SentencePiece's pieces
_SEPARATED = ("jina-v1-en", "jina-v2-code", "roberta-bpe")
"""Rules whose texts end with the separator where a file does not say."""
_ENDS = ("eot", "eom", "fim_pad", "fim_rep", "fim_sep")
_DEFAULT_IDS: Mapping[str, tuple[int | None, int | None]] = {
    "llama": (1, 2), "t5": (None, 1), "bert": (101, 102), "plamo2": (1, 2),
}  # fmt: skip
_CONTROL_FIRST = frozenset(text[0] for text in CONTROL_BEGINNINGS)
_BYTE_NAME = re.compile(r"<0x[0-9A-F]{2}>")
_NO_TOKEN = (-1, 0xFFFFFFFF)
_BERT_ROLES = ("cls", "seperator", "unknown", "mask", "padding")
"""So spelt in files."""


def facts_from_gguf(metadata: Mapping[str, Any]) -> TokenizerFacts:
    """Read the tokenizer of a GGUF file. Raises `UnsupportedModel` and `BadCheckpoint`."""
    with expected_form():
        return _facts(metadata)


def _facts(metadata: Mapping[str, Any]) -> TokenizerFacts:
    kind = _kind(metadata)
    tokens, types = _tokens(metadata)
    charsmap = b""
    if kind in ("llama", "t5"):
        definition, add_bos = (
            sentencepiece_json(_pieces(metadata, tokens, types, kind == "t5")),
            kind == "llama",
        )
        charsmap = stored_charsmap(metadata.get(_KEY + "precompiled_charsmap")) if kind == "t5" else b""
    elif kind == "bert":
        lowercase, accents = (
            _flag(metadata, f"normalizer.{name}") for name in ("lowercase", "strip_accents")
        )
        roles = _bert_roles(metadata, tokens)
        definition, add_bos = gguf_wordpiece(tokens, types, roles, lowercase, accents), True
    elif kind == "rwkv":
        definition, add_bos = longest_match_json(_world(tokens, types)), False
    elif kind == "plamo2":
        definition, add_bos = least_cost_json(tokens, _scores(metadata, len(tokens)), types), False
    elif kind == "whitespace" or metadata.get(_KEY + "pre") == "whitespace":
        definition, add_bos = _words(metadata, tokens, types), False
    elif kind == "gemma4" or metadata.get(_KEY + "pre") in _SPACED:
        definition, add_bos = _spaced(metadata, tokens, types), False
    else:
        definition, add_bos = _byte_level(metadata, tokens, types)
    bos, eos, special, stops = _roles(metadata, kind, tokens, types)
    # Early files of Gemma 4 say that a text has no BOS, but the model was trained with it. llama.cpp
    # overrides these files too.
    always = kind == "gemma4" or metadata.get(_KEY + "pre") in _BEGUN
    add_bos = always or bool(metadata.get(_KEY + "add_bos_token", add_bos))
    before, after = stripping(metadata, special.values())
    end = _end(metadata, kind, eos, len(tokens))
    return TokenizerFacts(definition, special, bos, eos, add_bos, stops, charsmap, before, after, end)


def _flag(metadata: Mapping[str, Any], name: str) -> bool | None:
    """True or false under this key, None if the file does not say."""
    value = metadata.get(_KEY + name)
    return value if isinstance(value, bool) else None


def _end(metadata: Mapping[str, Any], kind: str, eos: int | None, count: int) -> int | None:
    """The token that texts to embed end with, as llama.cpp adds it to any text."""
    if kind != "bert" and metadata.get(_KEY + "add_eos_token", kind == "t5"):
        return eos
    separated = kind == "bert" or (kind == "gpt2" and metadata.get(_KEY + "pre") in _SEPARATED)
    if metadata.get(_KEY + "add_sep_token", separated):
        return _token_id(metadata, "seperator", count, eos)
    return None


def _world(tokens: Sequence[str], types: Sequence[int]) -> dict[int, bytes]:
    """The bytes of ordinary tokens; none for those that fill the table up."""
    return {
        i: unescaped(text) if kind == NORMAL else b""
        for i, (text, kind) in enumerate(zip(tokens, types, strict=True))
    }


def _bert_roles(metadata: Mapping[str, Any], tokens: Sequence[str]) -> tuple[int, ...]:
    return unique(_token_id(metadata, name, len(tokens)) for name in _BERT_ROLES)


def roles_from_gguf(metadata: Mapping[str, Any]) -> tuple[dict[int, str], tuple[int, ...]]:
    """`special` and `stop_ids` of `facts_from_gguf(metadata)` in a quarter of the time.

    Merges and scores are not read, so their errors are not raised.
    """
    with expected_form():
        kind = _kind(metadata)
        if kind == "gpt2" and metadata.get(_KEY + "pre") not in (*_SPACED, "whitespace"):
            _rule(metadata)
        _unused, _unused, special, stops = _roles(metadata, kind, *_tokens(metadata))
        return special, stops


def _kind(metadata: Mapping[str, Any]) -> str:
    kind = metadata.get(_KEY + "model")
    if kind in ("none", "no_vocab"):
        raise UnsupportedModel(
            _(
                "The file has no vocabulary (tokenizer.ggml.model is {kind}), so the model can neither read "
                "nor write text. Choose another file of the model.",
                kind=kind,
            )
        )
    if kind not in ("gpt2", "llama", "t5", "gemma4", "bert", "rwkv", "plamo2", "whitespace"):
        found = _("names no tokenizer") if kind is None else _("has a tokenizer of kind {kind!r}", kind=kind)
        raise UnsupportedModel(
            _(
                "The file {found}, but only gpt2 (byte-level BPE), llama and gemma4 (SentencePiece "
                "BPE), t5 (unigram), bert (WordPiece), rwkv (longest match), plamo2 (least cost) and "
                "whitespace (BPE of words) can be read.",
                found=found,
            )
        )
    return str(kind)


def _roles(
    metadata: Mapping[str, Any], kind: str, tokens: list[str], types: list[int]
) -> tuple[int | None, int | None, dict[int, str], tuple[int, ...]]:
    """BOS, EOS, the control tokens, and the ids that end a turn."""
    default = _DEFAULT_IDS.get(kind, (None, None))
    cls = _token_id(metadata, "cls", len(tokens), default[0]) if kind == "bert" else default[0]
    bos, eos = (
        _token_id(metadata, "bos", len(tokens), cls),
        _token_id(metadata, "eos", len(tokens), default[1]),
    )
    ends = [_token_id(metadata, name, len(tokens)) for name in _ENDS]
    roles = _bert_roles(metadata, tokens) if kind == "bert" else ()
    special = _special(tokens, types, unique([bos, eos, *ends, *roles]))
    return bos, eos, special, unique([eos, *ends, *end_of_turn_ids(special, gguf_template(metadata))])


def _tokens(metadata: Mapping[str, Any]) -> tuple[list[str], list[int]]:
    """Texts and types of all tokens. Where the file does not say, and for types that do not exist, a token is
    normal, or a byte by its name in a vocabulary of SentencePiece.
    """
    tokens = metadata.get(_KEY + "tokens")
    if not isinstance(tokens, list) or not tokens or not isinstance(tokens[0], str):
        raise BadCheckpoint(
            _(
                "The file has no list of tokens (tokenizer.ggml.tokens), so its text cannot be read; "
                "download it again."
            )
        )
    types = metadata.get(_KEY + "token_type")
    if types is None or len(types) == 0:
        named = metadata.get(_KEY + "model") in ("llama", "gemma4", "plamo2")
        return tokens, [BYTE if named and _BYTE_NAME.fullmatch(text) else NORMAL for text in tokens]
    if len(types) < len(tokens):
        raise BadCheckpoint(
            _(
                "The file has {tokens} tokens but {types} token types; download it again.",
                tokens=len(tokens),
                types=len(types),
            )
        )
    types = types[: len(tokens)]
    if all(type(kind) is int and NORMAL <= kind <= BYTE for kind in set(types)):
        return tokens, list(types)
    return tokens, [kind if NORMAL <= (kind := int(each)) <= BYTE else NORMAL for each in types]


def _token_id(metadata: Mapping[str, Any], name: str, count: int, default: int | None = None) -> int | None:
    """The token of a role; as in llama.cpp the default where the file names none that exists."""
    default = default if default is not None and default < count else None
    value = metadata.get(f"{_KEY}{name}_token_id", default)
    if value is None or value in _NO_TOKEN:
        return None
    if not isinstance(value, int):
        raise BadCheckpoint(
            _(
                "tokenizer.ggml.{name}_token_id is {value}, but the file has {count} tokens; "
                "download it again.",
                name=name,
                value=value,
                count=count,
            )
        )
    return value if 0 <= value < count else default


def _special(tokens: Sequence[str], types: Sequence[int], ends: Sequence[int]) -> dict[int, str]:
    """{id: text} of the control tokens. Of tokens with the same text only the first counts."""
    special: dict[str, int] = {}
    tags = has_tags(tokens)
    # Nearly all tokens are normal, and of these nearly all have another first character.
    for i, (text, kind) in enumerate(zip(tokens, types, strict=True)):
        if kind == NORMAL and not (text[:1] in _CONTROL_FIRST and text.startswith(CONTROL_BEGINNINGS)):
            continue
        flagged = kind in (UNKNOWN, CONTROL) or (kind in (NORMAL, USER_DEFINED) and i in ends)
        named = kind != BYTE and (
            is_control_by_name(text, tags) or (kind != NORMAL and looks_like_control(text, tags))
        )
        if flagged or named:
            special.setdefault(text, i)
    return {i: text for text, i in special.items() if text}


def stripping(metadata: Mapping[str, Any], special: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
    """The control tokens before and after which white space is dropped; a GGUF file does not store this.

    The rules of `llama-vocab.cpp` ("Handle per token attributes"), by the names of tokenizer, architecture
    and model; they match the flags "lstrip" and "rstrip" of these models' tokenizer.json. Phi 3's rule is
    wider here: newer files of Phi 3.5 name the model "Phi 3.5 ...", which llama.cpp's rule misses, but their
    tokenizer is the same.
    """
    pre, architecture, name = (
        str(metadata.get(key, "")).lower() for key in (_KEY + "pre", "general.architecture", "general.name")
    )
    if any(part in pre for part in ("jina-v2-de", "jina-v2-es", "jina-v2-code")) or architecture in (
        "nomic-bert-moe",
        "jina-bert-v3",
    ):
        return frozenset({"<mask>"}), frozenset()
    if (
        "phi-3" in name
        or "phi3" in name
        or (architecture == "phi3" and metadata.get(_KEY + "model") == "llama")
    ):
        return frozenset(), frozenset(special) - {"<unk>", "<s>", "<|endoftext|>"}
    return (frozenset({"[MASK]"}) if "modern-bert" in name else frozenset()), frozenset()


def _byte_level(
    metadata: Mapping[str, Any], tokens: list[str], types: list[int]
) -> tuple[dict[str, Any], bool]:
    rule = _rule(metadata)
    return _merged(
        metadata, tokens, types, byte_level_parts(rule.to_json(), rule.nfc), ignore_merges=rule.ignore_merges
    ), rule.add_bos


def _rule(metadata: Mapping[str, Any]) -> Pretokenizer:
    name = metadata.get(_KEY + "pre") or "default"  # an empty name counts as none
    rule = PRETOKENIZERS.get(name)
    if rule is None:
        known = ", ".join(sorted((*PRETOKENIZERS, *_SPACED)))
        raise UnsupportedModel(
            _(
                "The tokenizer cuts text by the rule {name!r} (tokenizer.ggml.pre), but only these "
                "are known: {known}.",
                name=name,
                known=known,
            )
        )
    return rule


def _spaced(metadata: Mapping[str, Any], tokens: list[str], types: list[int]) -> dict[str, Any]:
    """BPE over SentencePiece's pieces with listed merges; lines are split first (Gemma 4)."""
    parts = {
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": r"[^\n]+|[\n]+"},
            "behavior": "Isolated",
            "invert": False,
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
    }
    unknown = next((text for text, kind in zip(tokens, types, strict=True) if kind == UNKNOWN and text), None)
    return _merged(metadata, tokens, types, parts, unk_token=unknown, fuse_unk=True, byte_fallback=True)


def _words(metadata: Mapping[str, Any], tokens: list[str], types: list[int]) -> dict[str, Any]:
    """BPE over the letters of words, without the white space around them (Jina BERT v2 for Chinese)."""
    whole = {f"<0x{byte:02X}>" for byte in range(256)} <= set(tokens)
    parts = {
        "normalizer": {"type": "Lowercase"} if _flag(metadata, "normalizer.lowercase") else None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
    }
    return _merged(metadata, tokens, types, parts, byte_fallback=whole)


def _merged(
    metadata: Mapping[str, Any], tokens: list[str], types: list[int], parts: Mapping[str, Any], **options: Any
) -> dict[str, Any]:
    """BPE with the file's own merges. User-defined tokens are found in any text before pre-tokenisation.

    A file of Kimi K2 may have none: they follow from the order of its tokens, as in the authors' own list
    (llama.cpp reads such files byte by byte).
    """
    merges = metadata.get(_KEY + "merges")
    if merges is None and metadata.get(_KEY + "pre") == "kimi-k2":
        merges = joined_merges(text for text, kind in zip(tokens, types, strict=True) if kind == NORMAL)
        merges = [f"{left} {right}" for left, right in merges]
    if not isinstance(merges, list):
        raise BadCheckpoint(
            _("The file has no list of merges (tokenizer.ggml.merges), which BPE needs; download it again.")
        )
    names = own_names(tokens)
    vocab = dict(zip(names, range(len(names)), strict=True))
    if any(kind is not str for kind in set(map(type, merges))):
        raise BadCheckpoint(
            _(
                "The list of merges (tokenizer.ggml.merges) holds something that is not text; "
                "download the file again."
            )
        )
    added = [
        added_token(i, text) for i, text in enumerate(tokens) if types[i] == USER_DEFINED and names[i] == text
    ]
    return tokenizer_json({"type": "BPE", "vocab": vocab, "lines": merges, **options}, added, **parts)


def _scores(metadata: Mapping[str, Any], count: int, default: float | None = None) -> list[float]:
    """The scores of all tokens; the default where the file has none."""
    scores = metadata.get(_KEY + "scores")
    if scores is None and default is not None:
        scores = [default] * count
    if scores is None or isinstance(scores, (str, int, float)) or len(scores) < count:
        raise BadCheckpoint(
            _(
                "The file has {tokens} tokens but not as many scores (tokenizer.ggml.scores); "
                "download it again.",
                tokens=count,
            )
        )
    return [float(score) for score in scores[:count]]


def _pieces(metadata: Mapping[str, Any], tokens: list[str], types: list[int], unigram: bool) -> Pieces:
    return Pieces(
        tokens,
        # without scores, pieces stand in the order of their merges
        _scores(metadata, len(tokens), None if unigram else 0.0),
        types,
        unigram,
        BYTE in types,
        prefix_space=bool(metadata.get(_KEY + "add_space_prefix", not unigram)),
        merge_spaces=unigram and bool(metadata.get(_KEY + "remove_extra_whitespaces", False)),
    )
