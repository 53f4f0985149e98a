"""`tokenizer.model` files of SentencePiece: the few fields of the protocol buffer that encoding needs.

Sources: https://github.com/google/sentencepiece (src/sentencepiece_model.proto) and the protocol buffers wire
format, https://protobuf.dev/programming-guides/encoding/. Reading takes linear time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import field

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.lazy_dataclass import dataclass
from engine.words import _

SIZE_LIMIT = 64 << 20
"""The largest tokenizer file that is read, in bytes; the largest known has 5 MB."""
_KINDS = {1: "unigram", 2: "BPE", 3: "words", 4: "characters"}
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(slots=True)
class SentencePieceFile:
    """A file's pieces (text, score, type) and settings; ids are -1 if the model has no such token."""

    texts: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    types: list[int] = field(default_factory=list)
    unigram: bool = True
    byte_fallback: bool = False
    unk_id: int = 0
    bos_id: int = 1
    eos_id: int = 2
    charsmap: bytes = b""
    prefix_space: bool = True
    merge_spaces: bool = True
    escape_spaces: bool = True


def parse_sentencepiece(data: bytes) -> SentencePieceFile:
    """The contents of a `tokenizer.model`.

    Raises `BadCheckpoint`, and `UnsupportedModel` for kinds other than BPE and unigram and
    for trailing spaces.
    """
    model = SentencePieceFile()
    try:
        for number, value in _fields(data):
            if number == 1 and isinstance(value, bytes):
                _read_piece(model, value)
            elif number == 2 and isinstance(value, bytes):
                _read_training(model, value)
            elif number == 3 and isinstance(value, bytes):
                _read_normalizer(model, value)
    except (IndexError, struct.error, UnicodeDecodeError, OverflowError) as error:
        raise BadCheckpoint(
            _("tokenizer.model is cut off or no SentencePiece model; download the file again.")
        ) from error
    if not model.texts:
        raise BadCheckpoint(_("tokenizer.model holds no tokens; download the file again."))
    return model


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, value) of a message, in order. Raises IndexError if it is truncated."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if wire == _BYTES:
            length, at = _varint(data, at)
        elif wire in (_FIXED32, _FIXED64):
            length = 4 if wire == _FIXED32 else 8
        else:
            raise IndexError(f"wire type {wire}")
        if at + length > len(data):
            raise IndexError("cut off")
        yield key >> 3, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise IndexError("a number without end")


def _read_piece(model: SentencePieceFile, data: bytes) -> None:
    text, score, kind = "", 0.0, 1
    for number, value in _fields(data):
        if number == 1 and isinstance(value, bytes):
            text = value.decode()
        elif number == 2 and isinstance(value, bytes):
            score = float(struct.unpack("<f", value)[0])
        elif number == 3 and isinstance(value, int):
            kind = value
    model.texts.append(text)
    model.scores.append(score)
    model.types.append(kind)


def _read_training(model: SentencePieceFile, data: bytes) -> None:
    for number, value in _fields(data):
        if not isinstance(value, int):
            continue
        if number == 3:
            if value not in (1, 2):
                raise UnsupportedModel(
                    _(
                        "tokenizer.model is a model of {kind}, but only BPE and unigram can be read.",
                        kind=_KINDS.get(value, _("an unknown kind")),
                    )
                )
            model.unigram = value == 1
        elif number == 24 and value:
            raise UnsupportedModel(
                _(
                    "tokenizer.model puts spaces at the ends of words, but only those at their beginnings "
                    "can be read."
                )
            )
        elif number == 35:
            model.byte_fallback = bool(value)
        elif number == 40:
            model.unk_id = _signed(value)
        elif number == 41:
            model.bos_id = _signed(value)
        elif number == 42:
            model.eos_id = _signed(value)


def _read_normalizer(model: SentencePieceFile, data: bytes) -> None:
    for number, value in _fields(data):
        if number == 2 and isinstance(value, bytes):
            model.charsmap = value
        elif number == 3:
            model.prefix_space = bool(value)
        elif number == 4:
            model.merge_spaces = bool(value)
        elif number == 5:
            model.escape_spaces = bool(value)


def _signed(value: int) -> int:
    """A protocol buffer's int32, encoded as 64 bits in two's complement."""
    return value - (1 << 64) if value >> 63 else value
