"""Text to token ids and back, for GGUF files and Hugging Face folders."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.text.template.channels import ChannelTokens
from engine.text.template.reasoning import Tag
from engine.text.tokenizer import aside
from engine.text.tokenizer.aside import ids_made_aside, text_factor
from engine.text.tokenizer.charsmap import Charsmap
from engine.text.tokenizer.definition import SPACE
from engine.text.tokenizer.definition_check import expected_form
from engine.text.tokenizer.gguf import facts_from_gguf
from engine.text.tokenizer.hf_folder import facts_from_folder
from engine.text.tokenizer.library import build, is_from_library
from engine.text.tokenizer.own_kinds.prefixes import Prefixes
from engine.text.tokenizer.vocabulary import (
    TokenizerFacts,
    byte_level_alphabet,
    hide_specials,
    special_pattern,
    unique,
)
from engine.words import _

_SURROGATE = re.compile("[\ud800-\udfff]")
_REMEMBERED = 1 << 13
"""Tokens whose bytes are cached: a generated token is looked up several times, and texts use few tokens."""
_BLANKS = " \t\n\v\f\r"
"""White space according to C's isspace, by which llama.cpp strips."""
_BLANK_RUN = re.compile(f"[{_BLANKS}]+")
_SHORTEST_MARKER = 4
"""Added tokens with fewer letters are runs of blanks or of signs, not markers."""
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Tokenizer:
    """Encodes and decodes with one model's vocabulary of `vocab_size` tokens.

    `add_bos` says whether plain completion starts with `bos_token_id`, or with several control tokens that
    take its place; a text to embed ends with `end_id`, unless that is None. `special_ids` are the control
    tokens.
    `stop_token_ids` end a turn, the model's own EOS first. `strips_leading_space` says that the first space
    of a decoded text belongs to the tokenizer, not to the text. `channels` is set if replies have headers.
    After construction and `hear` the tokenizer never changes, so any thread can use it.
    """

    def __init__(self, facts: TokenizerFacts) -> None:
        self.bos_token_id = facts.bos_token_id
        self.eos_token_id = facts.eos_token_id
        self.add_bos = facts.add_bos
        self._begin_ids = facts.begin_ids
        self.end_id = facts.end_id
        self.special_ids = frozenset(facts.special)
        self.silent_ids = self.special_ids
        """The control tokens that are not shown as text; `hear` reduces them."""
        self.channels = ChannelTokens.among({text: i for i, text in facts.special.items()})
        with expected_form():
            self._bytes_of, self.strips_leading_space = _decoding(facts.definition.get("decoder"))
        self._texts = token_texts(facts)
        self.token_bytes: Callable[[int], bytes] = functools.lru_cache(_REMEMBERED)(self._token_bytes)
        """The bytes that a token adds to a text; the name of a control token; empty for an unknown id."""
        self.piece: Callable[[int], str] = functools.lru_cache(_REMEMBERED)(self._piece)
        """One token for display: its text, with bytes of incomplete characters as \\xNN."""
        self._verbatim = {entry["id"] for entry in facts.definition["added_tokens"]} | self.special_ids
        self.vocab_size = max(self._texts) + 1
        self.stop_token_ids = tuple(i for i in facts.stop_ids if i < self.vocab_size)
        with expected_form():
            self._secret = hide_specials(facts.definition, facts.special)
        self.special_pattern = special_pattern(self._secret)
        self._strips_before, self._strips_after = facts.strips_before, facts.strips_after
        self._charsmap = Charsmap.maybe(
            facts.charsmap, [entry["content"] for entry in facts.definition["added_tokens"]]
        )
        stripping = facts.strips_before or facts.strips_after or self._charsmap is not None
        self._text_factor = 0 if stripping else text_factor(facts.definition)
        self._backend = build(facts.definition)
        for i, text in facts.special.items():
            if self._backend.token_to_id(self._secret[text]) != i:
                raise BadCheckpoint(
                    _(
                        "The tokenizer's control token {text!r} has id {i}, as another token has; "
                        "download the model again.",
                        text=text,
                        i=i,
                    )
                )

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any]) -> Self:
        """From GGUF metadata as a plain dict.

        Raises `UnsupportedModel` for unknown kinds, `BadCheckpoint` for broken ones.
        """
        return cls(facts_from_gguf(metadata))

    @classmethod
    def from_folder(cls, path: Path) -> Self:
        """From tokenizer.json (or another supported file) and the files next to it.

        Raises as `facts_from_folder` does.
        """
        return cls(facts_from_folder(path))

    def encode(self, text: str, *, special: bool = False, add_bos: bool = False) -> list[int]:
        """Token ids of `text`.

        With `special`, the texts of control tokens become these tokens; otherwise they are plain text.
        `add_bos` prepends the BOS token, or what takes its place, if there is one and the ids do not begin
        with it.
        """
        ids = self.encode_parts(text, {}) if special else self._encode(text)
        begin = self._begin_ids or unique([self.bos_token_id])
        if add_bos and tuple(ids[: len(begin)]) != begin:
            ids[:0] = begin
        return ids

    def encode_parts(self, text: str, literal: Mapping[int, str]) -> list[int]:
        """Token ids of `text` with its control tokens; the code points in `literal` stand for plain text."""
        text = self._with_secrets(text)
        return self._encode(text.translate(literal) if literal else text)

    def _with_secrets(self, text: str) -> str:
        """`text` with the secret names of its control tokens, and without the white space that these drop."""
        parts, at = [], 0
        while match := self.special_pattern.search(text, at):
            name, before = match[0], text[at : match.start()]
            parts += [before.rstrip(_BLANKS) if name in self._strips_before else before, self._secret[name]]
            at = match.end()
            if name in self._strips_after and (blanks := _BLANK_RUN.match(text, at)):
                at = blanks.end()
        return "".join([*parts, text[at:]])

    def hear(self, tags: Iterable[Tag]) -> None:
        """Make the control tokens in thinking `tags` visible as text; call this before decoding anything."""
        self.silent_ids = self.special_ids - self.control_ids("\n".join(part for tag in tags for part in tag))

    def control_ids(self, text: str) -> frozenset[int]:
        """The control tokens that a text names."""
        names = set(self.special_pattern.findall(text))
        return frozenset(id for id in self.special_ids if self._texts.get(id) in names)

    def marker_ids(self, text: str) -> dict[str, int]:
        """The tokens that are written in a text as they are, control tokens or added ones: {text: id}."""
        found = {self._texts[id]: id for id in self._verbatim if id in self._texts}
        return {
            name: id
            for name, id in found.items()
            if len(name) >= _SHORTEST_MARKER
            and not name[0].isalnum()
            and name in text
            and name == name.strip()
        }

    @functools.cached_property
    def special_starts(self) -> Prefixes:
        """The beginnings of the control tokens' texts."""
        return Prefixes(self._secret)

    @functools.cached_property
    def special_ends(self) -> Prefixes:
        """The ends of the control tokens' texts, read backwards."""
        return Prefixes(text[::-1] for text in self._secret)

    def least_tokens(self, text: str) -> int:
        """A number of tokens that `text` has at least, by its bytes alone; 0 where they do not tell."""
        if not self._text_factor:
            return 0
        return -(-len(text.encode("utf-8", "surrogatepass")) // (self._text_factor * self._longest))

    @functools.cached_property
    def _longest(self) -> int:
        """The most bytes of a token's text, in the file's alphabet or in bytes, and of a secret name."""
        return max(len(text.encode()) for text in (*self._texts.values(), *self._secret.values()))

    def _encode(self, text: str) -> list[int]:
        known = ids_made_aside(text) if len(text) >= aside.LONG else None
        return self.encode_here(text) if known is None else known

    def encode_here(self, text: str) -> list[int]:
        """The ids of a text without control tokens; of a long one without keeping other threads waiting."""
        if _SURROGATE.search(text):
            # A lone surrogate (seen in pasted text) has no UTF-8 and becomes U+FFFD; pairs are joined.
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        if self._charsmap is not None:
            text = self._charsmap.normalize(text)
        try:
            if len(text) < aside.LONG:
                return list(self._backend.encode(text, add_special_tokens=False).ids)
            # this releases the interpreter, and does not count characters
            return list(self._backend.encode_batch_fast([text], add_special_tokens=False)[0].ids)
        except BaseException as error:
            if not is_from_library(error):
                raise
            raise BadCheckpoint(
                _(
                    "The model's tokenizer cannot read this text ({error}); download the model again.",
                    error=error,
                )
            ) from error

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """The text of `ids`.

        Each maximal invalid UTF-8 sequence becomes one U+FFFD; unknown ids add nothing.
        """
        data = b"".join(self.token_bytes(i) for i in ids if not (skip_special and i in self.silent_ids))
        text = data.decode("utf-8", "replace")
        return text[1:] if self.strips_leading_space and text.startswith(" ") else text

    @property
    def texts(self) -> Mapping[int, str]:
        """{id: text} of all tokens as stored in the file, in its alphabet; for comparing vocabularies."""
        return self._texts

    def _token_bytes(self, id: int) -> bytes:
        if id not in self._texts:
            return b""
        text = self._texts[id]
        return text.encode() if id in self._verbatim else self._bytes_of(text)

    def _piece(self, id: int) -> str:
        return str(self.token_bytes(id), "utf-8", "backslashreplace")


def token_texts(facts: TokenizerFacts) -> dict[int, str]:
    """{id: text} as stored in the file; control tokens by their own names."""
    vocab = facts.definition["model"]["vocab"]
    pairs = vocab.items() if isinstance(vocab, dict) else ((entry[0], i) for i, entry in enumerate(vocab))
    texts = {i: text for text, i in pairs}
    texts.update((entry["id"], entry["content"]) for entry in facts.definition["added_tokens"])
    texts.update(facts.special)
    return texts


_ALPHABET = byte_level_alphabet()


def _byte_level_bytes(text: str) -> bytes:
    try:
        return bytes(map(_ALPHABET.__getitem__, text))
    except KeyError:
        return text.encode()


def _sentencepiece_bytes(text: str) -> bytes:
    match = _BYTE_TOKEN.fullmatch(text)
    return bytes([int(match[1], 16)]) if match else text.replace(SPACE, " ").encode()


def _plain_bytes(text: str) -> bytes:
    match = _BYTE_TOKEN.fullmatch(text)
    return bytes([int(match[1], 16)]) if match else text.encode()


def _wordpiece_bytes(prefix: str, text: str) -> bytes:
    return (text.removeprefix(prefix) if text.startswith(prefix) else " " + text).encode()


def _decoding(decoder: Any) -> tuple[Any, bool]:
    """From a "decoder" entry: how a token's text becomes bytes, and whether a text's first space drops."""
    parts = decoder.get("decoders", [decoder]) if isinstance(decoder, dict) else []
    kinds = {part.get("type"): part for part in parts}
    if "ByteLevel" in kinds:
        return _byte_level_bytes, False
    if "Metaspace" in kinds:
        part = kinds["Metaspace"]
        return _sentencepiece_bytes, part.get("prepend_scheme", "always") != "never" and part.get(
            "add_prefix_space", True
        )
    if "WordPiece" in kinds:
        return functools.partial(_wordpiece_bytes, str(kinds["WordPiece"].get("prefix", "##"))), True
    if "Replace" in kinds:
        strip = kinds.get("Strip", {})
        return _sentencepiece_bytes, strip.get("start", 0) > 0 and strip.get("content") == " "
    if "ByteFallback" in kinds:
        return _plain_bytes, False
    found = ", ".join(sorted(str(kind) for kind in kinds)) or "none"
    raise UnsupportedModel(
        _(
            "The tokenizer's decoder is of an unknown kind ({found}); byte-level BPE and "
            "SentencePiece are supported.",
            found=found,
        )
    )
