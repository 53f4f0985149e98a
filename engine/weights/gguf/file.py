"""GGUF model files, versions 2 and 3, little endian, whole or split: header, tensor table, data.

Layout: magic "GGUF", version u32, tensor count u64, key count u64, the keys (`gguf_metadata.py`), the tensor
table (name, dimension count u32, dimensions u64 with the contiguous one first, type u32, offset u64), then
the data from the next multiple of `general.alignment` on. Source: the ggml project's `docs/gguf.md`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.errors import BadCheckpoint, ModelNotFound, UnsupportedModel
from engine.tensors import RawTensor
from engine.weights.file import ModelFile
from engine.weights.format import Format
from engine.weights.gguf.i2_s import with_one_scale
from engine.weights.gguf.ik_types import as_packed
from engine.weights.gguf.metadata import Cursor, GgufMetadata
from engine.weights.gguf.nvfp4 import with_scales
from engine.weights.gguf.ollama import known_place
from engine.weights.gguf.ollama_layout import as_llama_cpp
from engine.weights.gguf.table import (
    GGUF_FORMATS,
    GGUF_TYPE_NAMES,
    I2_S,
    IK_FORMATS,
    INTERLEAVED_FORMATS,
    TWO_BIT_FORMATS,
)
from engine.weights.gguf.two_bits import in_groups
from engine.weights.tensor import FileTensor, check_overlap, find_format
from engine.words import _

_READABLE = ", ".join(
    format.name for format in (*GGUF_FORMATS, *TWO_BIT_FORMATS, *IK_FORMATS, *INTERLEAVED_FORMATS, I2_S)
)
_MAX_TENSORS = 1 << 16
_MAX_NAME_BYTES = 1024
_SPLIT = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


class GgufFile:
    """A `Checkpoint` of one GGUF file, or of all parts when `path` is a part `...-00001-of-0000N.gguf`.

    `metadata` are the keys of the first part; they and the tensors have llama.cpp's names. Raises
    `BadCheckpoint`, `UnsupportedModel` or `ModelNotFound`.
    """

    format = "gguf"
    metadata: Mapping[str, Any]
    tensors: Mapping[str, RawTensor]

    def __init__(self, path: Path) -> None:
        parts = split_parts(path)
        self.path, self.files = parts[0], tuple(parts)
        first, tensors = _read_part(parts[0])
        self._check_split_count(first, len(parts))
        table: dict[str, RawTensor] = {}
        _add(table, tensors, parts[0])
        for part in parts[1:]:
            _add(table, _read_part(part)[1], part)
        self.metadata, self.tensors = as_llama_cpp(first, with_scales(table))

    def close(self) -> None:
        """Forget the tensors."""
        self.tensors = {}

    def _check_split_count(self, metadata: GgufMetadata, found: int) -> None:
        claimed = metadata.get("split.count", found)
        # A file that says 0 or 1 is whole, whatever its name.
        if isinstance(claimed, int) and claimed > 1 and claimed != found:
            raise BadCheckpoint(
                _(
                    "{path} is one of {claimed} parts, but {found} parts are named so; keep all "
                    "parts in one folder under their own names, as in model-00001-of-00003.gguf.",
                    path=self.path.name,
                    claimed=claimed,
                    found=found,
                )
            )


def begins_with_magic(path: Path) -> bool:
    """Whether a file says that it is a GGUF file. Raises `ModelNotFound` if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except OSError as error:
        raise ModelNotFound(
            _("{path} cannot be read: {strerror}.", path=known_place(path), strerror=error.strerror or error)
        ) from error


def _add(table: dict[str, RawTensor], tensors: list[FileTensor], part: Path) -> None:
    for tensor in tensors:
        if tensor.name in table:
            raise BadCheckpoint(
                _(
                    "{part}: tensor {tensor} occurs twice; the file is damaged. Download it again.",
                    part=part.name,
                    tensor=tensor.name,
                )
            )
        table[tensor.name] = as_packed(with_one_scale(in_groups(tensor)))


def split_parts(path: Path) -> list[Path]:
    """All parts of the split model that `path` belongs to, in order; only `path` if it is not a part.

    A file that is named as a part and says nothing of parts is whole, unless the others are there. Raises
    `BadCheckpoint` if a part is missing.
    """
    match = _SPLIT.fullmatch(path.name)
    if match is None or not 1 <= int(match["number"]) <= int(match["count"]):
        return [path]
    count = int(match["count"])
    parts = [
        path.with_name(f"{match['stem']}-{number:05d}-of-{count:05d}.gguf") for number in range(1, count + 1)
    ]
    for part in parts:
        if not part.is_file():
            if path.is_file() and not _says_parts(path):
                return [path]
            raise BadCheckpoint(
                _(
                    "{path} is one of {count} parts, but {part} is not beside it; put all parts "
                    "into one folder.",
                    path=path.name,
                    count=count,
                    part=part.name,
                )
            )
    return parts


def _says_parts(path: Path) -> bool:
    """Whether a file says itself that it is one of several parts. Raises `BadCheckpoint` if it is broken."""
    count = _read_metadata(path)[1].get("split.count", 1)
    return not isinstance(count, int) or count > 1


def _read_metadata(path: Path) -> tuple[Cursor, GgufMetadata, int]:
    """The metadata, and how many tensors the table has, at which the cursor then is."""
    cursor = Cursor(ModelFile(path))
    _check_magic(cursor)
    tensor_count, key_count = cursor.u64(_("the tensor count")), cursor.u64(_("the metadata count"))
    # a table entry has at least 33 bytes
    if tensor_count > min(_MAX_TENSORS, (cursor.end - cursor.at) // 33):
        raise cursor.fail(
            _("the header claims {tensor_count} tensors, more than can be in it", tensor_count=tensor_count)
        )
    return cursor, GgufMetadata(cursor, key_count), tensor_count


def _read_part(path: Path) -> tuple[GgufMetadata, list[FileTensor]]:
    cursor, metadata, tensor_count = _read_metadata(path)
    entries = [_read_entry(cursor, index) for index in range(tensor_count)]
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 1 <= alignment <= 1 << 20 or alignment & (alignment - 1):
        raise cursor.fail(
            _("general.alignment is {alignment!r}, a power of two was expected", alignment=alignment)
        )
    return metadata, _place(cursor, entries, alignment)


def _check_magic(cursor: Cursor) -> None:
    magic = cursor.buffer[:4]
    if magic != b"GGUF":
        raise BadCheckpoint(
            _(
                "{file_name} is not a GGUF file: it does not start with “GGUF”. Choose another file.",
                file_name=cursor.file_name,
            )
        )
    cursor.skip(4, _("the magic"))
    version = cursor.u32(_("the version"))
    if version & 0xFFFF == 0 and version:
        raise UnsupportedModel(
            _(
                "{file_name} is a big-endian GGUF file; only little-endian files can be read. Get "
                "that variant.",
                file_name=cursor.file_name,
            )
        )
    if version not in (2, 3):
        raise UnsupportedModel(
            _(
                "{file_name} has GGUF version {version}; versions 2 and 3 can be read. Get a newer "
                "conversion.",
                file_name=cursor.file_name,
                version=version,
            )
        )


_Entry = tuple[str, Format, tuple[int, ...], int]


def _read_entry(cursor: Cursor, index: int) -> _Entry:
    """Name, format, shape (contiguous dimension last) and offset in the data of one tensor."""
    name = cursor.text(_("the name of tensor {index}", index=index), _MAX_NAME_BYTES)
    dimensions = cursor.u32(_("the dimension count of tensor {name}", name=name))
    if not 1 <= dimensions <= 4:
        raise cursor.fail(
            _(
                "tensor {name} has {dimensions} dimensions, 1 to 4 were expected",
                name=name,
                dimensions=dimensions,
            )
        )
    shape = tuple(cursor.u64(_("the shape of tensor {name}", name=name)) for _unused in range(dimensions))[
        ::-1
    ]
    while len(shape) > 2 and dimensions == 4 and shape[0] == 1:  # some writers always write four
        shape = shape[1:]
    number = cursor.u32(_("the type of tensor {name}", name=name))
    offset = cursor.u64(_("the offset of tensor {name}", name=name))
    type_name = GGUF_TYPE_NAMES.get(number)
    if type_name is None and number > 511:
        raise cursor.fail(
            _("tensor {name} has the type number {number}, which does not exist", name=name, number=number)
        )
    format = find_format(type_name or "")
    if format is None:
        raise UnsupportedModel(
            _(
                "{file_name}: tensor {name} has the type {type_name}, which cannot be read. Get a "
                "file with the types {readable}.",
                file_name=cursor.file_name,
                name=name,
                type_name=type_name or _("number {number}", number=number),
                readable=_READABLE,
            )
        )
    if 0 in shape or shape[-1] % format.block_size:
        raise cursor.fail(
            _(
                "tensor {name} of type {format} has the shape {shape}, rows of a multiple of "
                "{block_size} were expected",
                name=name,
                format=format.name,
                shape=shape,
                block_size=format.block_size,
            )
        )
    return name, format, shape, offset


def _place(cursor: Cursor, entries: list[_Entry], alignment: int) -> list[FileTensor]:
    """The tensors of one file, checked: inside the file, aligned, and without overlaps."""
    base = -(-cursor.at // alignment) * alignment
    room = cursor.end - base
    spans, tensors = [], []
    for name, format, shape, offset in entries:
        nbytes = format.nbytes(shape)
        if offset % alignment:
            raise cursor.fail(
                _(
                    "tensor {name} lies at offset {offset}, a multiple of {alignment} was expected",
                    name=name,
                    offset=offset,
                    alignment=alignment,
                )
            )
        if offset + nbytes > room:
            raise cursor.fail(
                _(
                    "tensor {name} needs {nbytes} bytes at offset {offset}, but there are {room} "
                    "bytes of data",
                    name=name,
                    nbytes=nbytes,
                    offset=offset,
                    room=max(room, 0),
                )
            )
        spans.append((offset, offset + nbytes, name))
        tensors.append(FileTensor(name, format.name, shape, cursor.file, base + offset))
    check_overlap(cursor.file_name, spans)
    return tensors
