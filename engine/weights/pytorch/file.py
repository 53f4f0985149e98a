"""The tensors of a file that `torch.save` wrote: a zip archive, or (before PyTorch 1.6) pickles and numbers.

The archive holds "X/data.pkl", the dict of tensors, and "X/data/KEY", a storage's bytes, without compression.
The old format is five pickles (a magic number, the version, sizes of C types, the dict, the keys), then for
each key a u64 number of values and the values. Source: PyTorch, `serialization.py` (facts only).
"""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.lazy_dataclass import dataclass
from engine.weights.file import Bytes, ModelFile
from engine.weights.pytorch.pickled import Name, StoredTensor, read_pickle
from engine.weights.tensor import FileTensor, find_format
from engine.words import _

_TYPES = {
    "Float": "F32", "Half": "F16", "BFloat16": "BF16", "Double": "F64", "Long": "I64", "Int": "I32",
    "Short": "I16", "Char": "I8", "Byte": "U8", "Bool": "BOOL",
}  # fmt: skip
"""By the beginning of a storage's class name."""
_DTYPES = {
    "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float64": "F64", "int64": "I64", "int32": "I32",
    "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL", "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2", "uint16": "U16", "uint32": "U32", "uint64": "U64",
}  # fmt: skip
_MAGIC = 0x1950A86A20F9469CFC6C
_MOST_PICKLE_BYTES = 64 << 20
_MOST_VALUES, _MOST_DIMENSIONS = 1 << 50, 8


def read_pytorch(path: Path) -> list[FileTensor]:
    """The tensors of a file, nothing of which is read but the list of them.

    Raises `BadCheckpoint`, `ModelNotFound` or `UnsupportedModel`.
    """
    file = ModelFile(path)
    zipped = file.size >= 4 and file.read(0, 4, _("its header")).tobytes() == b"PK\x03\x04"
    found, storages = _from_archive(file) if zipped else _from_pickles(file)
    nested = [found.get(key) for key in ("state_dict", "model", "module")] if isinstance(found, dict) else []
    if nested and not any(isinstance(value, StoredTensor) for value in found.values()):
        found = next((value for value in nested if isinstance(value, dict)), found)
    if not isinstance(found, dict):
        raise _damaged(path)
    return [
        _tensor(file, name, value, storages)
        for name, value in found.items()
        if isinstance(name, str) and isinstance(value, StoredTensor)
    ]


def _damaged(path: Path) -> BadCheckpoint:
    return BadCheckpoint(
        _("{path} is not a list of tensors that PyTorch wrote; download it again.", path=path.name)
    )


@dataclass(frozen=True, slots=True)
class _Storage:
    """Where the bytes of a storage stand in the file."""

    start: int
    size: int


def _from_archive(file: ModelFile) -> tuple[Any, dict[str, _Storage]]:
    """The pickled value, and the storages by key."""
    try:
        with zipfile.ZipFile(file.path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, struct.error) as error:
        raise _damaged(file.path) from error
    pickles = [entry for entry in entries if entry.filename.endswith("/data.pkl")]
    if len(pickles) != 1 or any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise _damaged(file.path)
    top = pickles[0].filename.removesuffix("data.pkl")
    places = {entry.filename.removeprefix(top): _place(file, entry) for entry in entries}
    if (order := places.get("byteorder")) and order.size != len(b"little"):
        raise UnsupportedModel(
            _("{path} holds big-endian numbers; get another variant of this model.", path=file.path.name)
        )
    listed = places["data.pkl"]
    if listed.size > _MOST_PICKLE_BYTES:
        raise _damaged(file.path)
    raw = file.read(listed.start, listed.size, _("its header"))
    value = read_pickle(io.BytesIO(raw.tobytes()), file.path.name)
    data = "data/"
    return value, {name[len(data) :]: place for name, place in places.items() if name.startswith(data)}


def _place(file: ModelFile, entry: zipfile.ZipInfo) -> _Storage:
    """An entry's bytes follow its own header of 30 bytes, its name and its extra field."""
    at = entry.header_offset
    if not 0 <= at <= file.size - 30:
        raise _damaged(file.path)
    name, extra = struct.unpack("<HH", file.read(at + 26, 4, _("its header")).tobytes())
    start = at + 30 + name + extra
    if start + entry.file_size > file.size:
        raise _damaged(file.path)
    return _Storage(start, entry.file_size)


def _from_pickles(file: ModelFile) -> tuple[Any, dict[str, _Storage]]:
    """The same for the old format."""
    stream = io.BytesIO(file.read(0, min(file.size, _MOST_PICKLE_BYTES), _("its header")).tobytes())
    name = file.path.name
    if read_pickle(stream, name) != _MAGIC:
        raise _damaged(file.path)
    read_pickle(stream, name)
    machine = read_pickle(stream, name)
    if not isinstance(machine, dict) or machine.get("little_endian") is not True:
        raise _damaged(file.path)
    value, keys = read_pickle(stream, name), read_pickle(stream, name)
    if not isinstance(keys, list):
        raise _damaged(file.path)
    try:
        widths = {str(key): width for key, width in _widths(value, set())}
    except RecursionError as error:
        raise _damaged(file.path) from error
    at, storages = stream.tell(), dict[str, _Storage]()
    for key in map(str, keys):
        if key not in widths or at + 8 > file.size:
            raise _damaged(file.path)
        count = struct.unpack("<Q", file.read(at, 8, _("its header")).tobytes())[0]
        storages[key] = _Storage(at + 8, count * widths[key])
        at += 8 + count * widths[key]
        if at > file.size:
            raise _damaged(file.path)
    return value, storages


def _widths(value: Any, seen: set[int]) -> Iterable[tuple[Any, int]]:
    """(key, bytes of a number) of the storages of all tensors; `seen` are the values looked into."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, StoredTensor):
        # a storage without a type of its own counts bytes
        format = None if value.dtype else find_format(_type_of(value))
        yield value.storage[2], 1 if format is None else format.block_bytes
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _widths(each, seen)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _widths(each, seen)


def _type_of(tensor: StoredTensor) -> str:
    """The type of its numbers; "" for one that cannot be read."""
    if tensor.dtype:
        return _DTYPES.get(tensor.dtype.removeprefix("torch."), "")
    kind = tensor.storage[1] if len(tensor.storage) > 2 else None
    return _TYPES.get(kind.text.split(".")[-1].removesuffix("Storage"), "") if isinstance(kind, Name) else ""


def _tensor(file: ModelFile, name: str, stored: StoredTensor, storages: Mapping[str, _Storage]) -> FileTensor:
    format, shape = find_format(_type_of(stored)), stored.shape
    if format is None or len(shape) > _MOST_DIMENSIONS:
        raise UnsupportedModel(
            _(
                "{file}: tensor {name} of shape {shape} has a type that cannot be read; get the variant of "
                "this model in safetensors, or a GGUF file.",
                file=file.path.name,
                name=name[:100],
                shape=shape,
            )
        )
    place = storages.get(str(stored.storage[2]))
    last = stored.offset + sum((size - 1) * each for size, each in zip(shape, stored.strides, strict=True))
    values = prod(shape)
    if place is None or values > _MOST_VALUES or (values and (last + 1) * format.block_bytes > place.size):
        raise BadCheckpoint(
            _(
                "{file}: tensor {name} of shape {shape} reaches past its bytes in the file; download it "
                "again.",
                file=file.path.name,
                name=name[:100],
                shape=shape,
            )
        )
    start = place.start + stored.offset * format.block_bytes
    rows = [prod(shape[i + 1 :]) for i in range(len(shape))]
    if not values or all(
        own == each or size == 1 for own, each, size in zip(stored.strides, rows, shape, strict=True)
    ):
        return FileTensor(name, format.name, shape, file, start)
    return FileTensor(name, format.name, shape, _Strided(file, start, stored, format.block_bytes))


class _Strided:
    """The bytes of a tensor whose numbers do not follow each other, in order; reads as `ModelFile` does."""

    def __init__(self, file: ModelFile, start: int, stored: StoredTensor, size: int) -> None:
        self._file, self._start, self._stored, self._size = file, start, stored, size

    def read(self, start: int, count: int, what: str) -> Bytes:
        """`count` bytes from byte `start` on, uint8. The whole view is read each time."""
        shape, strides = self._stored.shape, self._stored.strides
        last = sum((size - 1) * each for size, each in zip(shape, strides, strict=True))
        raw = self._file.read(self._start, (last + 1) * self._size, what).view(f"V{self._size}")
        steps = tuple(each * self._size for each in strides)
        view = np.lib.stride_tricks.as_strided(raw, shape, steps, writeable=False)
        ordered: Bytes = np.ascontiguousarray(view).reshape(-1).view(np.uint8)
        return ordered[start : start + count]

    def read_runs(self, runs: Iterable[tuple[int, int]], out: Bytes, what: str) -> None:
        """Fill `out` with the bytes of all (start, count) `runs` in order."""
        whole, at = self.read(0, prod(self._stored.shape) * self._size, what), 0
        for start, count in runs:
            out[at : at + count] = whole[start : start + count]
            at += count
