"""A tokenizer.json rebuilt from GGUF metadata: byte-level BPE ("gpt2") and SentencePiece BPE ("llama").

Keys and token types: the GGUF specification, section "Tokenizer". A file names its merges only for "gpt2"; for "llama"
they follow from the scores (SentencePiece merges the pair whose joined piece has the highest score).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.text.pretokenizers import PRETOKENIZERS
from engine.text.template_source import gguf_template
from engine.text.vocabulary import TokenizerFacts, end_of_turn_ids, looks_like_control, unique

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
SPACE = "▁"
_KEY = "tokenizer.ggml."


def facts_from_gguf(metadata: Mapping[str, Any]) -> TokenizerFacts:
    """Read the tokenizer of a GGUF file. Raises `UnsupportedModel` and `BadCheckpoint`."""
    kind = metadata.get(_KEY + "model")
    tokens, types = _tokens(metadata)
    if kind == "gpt2":
        definition, add_bos = _byte_level(metadata, tokens, types)
    elif kind == "llama":
        definition, add_bos = _sentencepiece(metadata, tokens, types), True
    else:
        found = "names no tokenizer" if kind is None else f"has a tokenizer of kind {kind!r}"
        raise UnsupportedModel(f"The file {found}, but only gpt2 (byte-level BPE) and llama (SentencePiece BPE) can be read.")
    default = (1, 2) if kind == "llama" else (None, None)
    bos, eos = _token_id(metadata, "bos", len(tokens), default[0]), _token_id(metadata, "eos", len(tokens), default[1])
    ends = [_token_id(metadata, name, len(tokens)) for name in ("eot", "eom")]
    special = _special(tokens, types, unique([bos, eos, *ends]))
    stops = unique([eos, *ends, *end_of_turn_ids(special, gguf_template(metadata))])
    return TokenizerFacts(definition, special, bos, eos, bool(metadata.get(_KEY + "add_bos_token", add_bos)), stops)


def _tokens(metadata: Mapping[str, Any]) -> tuple[list[str], list[int]]:
    """Texts and types of all tokens; every token is normal when the file has no types."""
    tokens = metadata.get(_KEY + "tokens")
    if not isinstance(tokens, list) or not tokens:
        raise BadCheckpoint("The file has no list of tokens (tokenizer.ggml.tokens), so its text cannot be read; fetch it again.")
    types = metadata.get(_KEY + "token_type") or [NORMAL] * len(tokens)
    if len(types) != len(tokens):
        raise BadCheckpoint(f"The file has {len(tokens)} tokens but {len(types)} token types; fetch it again.")
    return tokens, [int(kind) for kind in types]


def _token_id(metadata: Mapping[str, Any], name: str, count: int, default: int | None = None) -> int | None:
    value = metadata.get(f"{_KEY}{name}_token_id", default if default is not None and default < count else None)
    if value is not None and not 0 <= int(value) < count:
        raise BadCheckpoint(f"tokenizer.ggml.{name}_token_id is {value}, but the file has {count} tokens; fetch it again.")
    return None if value is None else int(value)


def _special(tokens: Sequence[str], types: Sequence[int], ends: Sequence[int]) -> dict[int, str]:
    """{id: text} of the control tokens. Of two tokens with one text the first counts."""
    special: dict[str, int] = {}
    for i, (text, kind) in enumerate(zip(tokens, types, strict=True)):
        if kind in (UNKNOWN, CONTROL) or (kind != BYTE and looks_like_control(text)) or (kind == USER_DEFINED and i in ends):
            special.setdefault(text, i)
    return {i: text for text, i in special.items() if text}


def _definition(model: dict[str, Any], tokens: Sequence[str], types: Sequence[int], **parts: Any) -> dict[str, Any]:
    """A tokenizer.json. User-defined tokens are found in any text before it is cut; repeated texts can never be reached."""
    vocab: dict[str, int] = {}
    added = []
    for i, (text, kind) in enumerate(zip(tokens, types, strict=True)):
        if kind == USER_DEFINED and text:
            text = text.replace(SPACE, " ") if model["byte_fallback"] else text
        name = text if text and text not in vocab else f"\U0010fffd{i}\U0010fffd"
        vocab[name] = i
        if kind == USER_DEFINED and name == text:
            added.append(_added(i, text))
    model["vocab"] = vocab
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "post_processor": None, "model": model, **parts}


def _added(i: int, text: str) -> dict[str, Any]:
    return {"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}


def _bpe(merges: list[Any], **changes: Any) -> dict[str, Any]:
    base = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
    return {**base, "merges": merges, **changes}


def _byte_level(metadata: Mapping[str, Any], tokens: list[str], types: list[int]) -> tuple[dict[str, Any], bool]:
    name = metadata.get(_KEY + "pre", "default")
    rule = PRETOKENIZERS.get(name)
    if rule is None:
        known = ", ".join(sorted(PRETOKENIZERS))
        raise UnsupportedModel(f"The tokenizer cuts text by the rule {name!r} (tokenizer.ggml.pre), but only these are known: {known}.")
    merges = metadata.get(_KEY + "merges")
    if not isinstance(merges, list):
        raise BadCheckpoint("The file has no list of merges (tokenizer.ggml.merges), which byte-level BPE needs; fetch it again.")
    vocab = set(tokens)
    pairs = [merge.split(" ", 1) for merge in merges]
    pairs = [pair for pair in pairs if len(pair) == 2 and pair[0] in vocab and pair[1] in vocab and pair[0] + pair[1] in vocab]
    model = _bpe(pairs, ignore_merges=rule.ignore_merges)
    normalizer = {"type": "NFC"} if rule.nfc else None
    decoder = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return _definition(model, tokens, types, normalizer=normalizer, pre_tokenizer=rule.to_json(), decoder=decoder), rule.add_bos


def _sentencepiece(metadata: Mapping[str, Any], tokens: list[str], types: list[int]) -> dict[str, Any]:
    scores = metadata.get(_KEY + "scores")
    if not isinstance(scores, list) or len(scores) != len(tokens):
        raise BadCheckpoint(f"The file has {len(tokens)} tokens but not as many scores (tokenizer.ggml.scores); fetch it again.")
    model = _bpe(score_merges(tokens, types, scores), fuse_unk=True, byte_fallback=True)
    unknown = next((text for text, kind in zip(tokens, types, strict=True) if kind == UNKNOWN and text), None)
    model["unk_token"] = unknown
    prefix = bool(metadata.get(_KEY + "add_space_prefix", True))
    steps: list[dict[str, Any]] = [{"type": "Replace", "pattern": {"String": " "}, "content": SPACE}]
    back: list[dict[str, Any]] = [{"type": "Replace", "pattern": {"String": SPACE}, "content": " "}, {"type": "ByteFallback"}]
    back.append({"type": "Fuse"})
    if prefix:
        steps.insert(0, {"type": "Prepend", "prepend": SPACE})
        back.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    normalizer, decoder = {"type": "Sequence", "normalizers": steps}, {"type": "Sequence", "decoders": back}
    return _definition(model, tokens, types, normalizer=normalizer, pre_tokenizer=None, decoder=decoder)


def score_merges(tokens: Sequence[str], types: Sequence[int], scores: Sequence[float]) -> list[list[str]]:
    """The merges that do what SentencePiece does with scores: pairs of pieces, the highest score of the joined piece first.

    Only normal pieces take part: control, unknown, unused and byte tokens can never be spelled by text.
    """
    ids = {text: i for i, text in enumerate(tokens) if types[i] == NORMAL}
    merges: list[tuple[float, int, int, list[str]]] = []
    for text, i in ids.items():
        for cut in range(1, len(text)):
            left, right = text[:cut], text[cut:]
            if left in ids and right in ids:
                merges.append((-scores[i], i, cut, [left, right]))
    merges.sort(key=lambda merge: merge[:3])
    return [merge[3] for merge in merges]
