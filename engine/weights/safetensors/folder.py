"""Model folders: config.json and safetensors files, one or sharded, or else those of PyTorch; also as Mistral
AI (`consolidated.py`) and Meta (`pytorch/meta.py`) publish them.

A safetensors file is a u64 header length, a JSON header {name: {dtype, shape, data_offsets}}, and the data
without holes. File names that lead out of the folder are refused.
Source: https://huggingface.co/docs/safetensors (format section).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from engine.errors import BadCheckpoint, ModelNotFound, UnsupportedModel
from engine.tensors import RawTensor
from engine.text.template.source import is_meta
from engine.weights.file import ModelFile
from engine.weights.format import Format
from engine.weights.joined import with_joined
from engine.weights.packed.table import quantisation_settings, wrap_quantised
from engine.weights.pytorch import PICKLED, PICKLED_INDEX
from engine.weights.pytorch.file import read_pytorch
from engine.weights.pytorch.meta import read_meta
from engine.weights.safetensors import consolidated
from engine.weights.safetensors.json import parse_object, read_json_object
from engine.weights.tensor import FileTensor, check_overlap, find_format
from engine.words import _

_TYPES = (
    "F32", "F16", "BF16", "F64", "F8_E4M3", "F8_E5M2", "F8_E8M0", "I64", "I32", "I16", "I8", "U64", "U32",
    "U16", "U8", "BOOL",
)  # fmt: skip
_MAX_HEADER_BYTES = 32 << 20
_MAX_NAME = 1024
_MAX_DIMENSIONS = 8
_MAX_VALUES = 1 << 50
_WHOLE = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"


class SafetensorsFolder:
    """A `Checkpoint` of one folder; `metadata` is {"config": ..., "generation_config": ...}, both dicts.

    Raises `BadCheckpoint`, `UnsupportedModel` or `ModelNotFound`.
    """

    format = "safetensors"

    def __init__(self, folder: Path) -> None:
        self.path = folder
        generation = folder / "generation_config.json"
        if is_meta(folder):
            config, parts, files = read_meta(folder)
            self.files: tuple[Path, ...] = files
            self.metadata: Mapping[str, Any] = {"config": config, "generation_config": {}}
            self.tensors: Mapping[str, RawTensor] = consolidated.with_hf_names(parts, config)
            return
        own = consolidated.is_consolidated(folder)
        config = (
            consolidated.read_params(folder / consolidated.PARAMS)
            if own
            else read_json_object(folder / "config.json")
        )
        quantisation = quantisation_settings(folder, config)
        if quantisation is not None:
            config["quantization_config"] = quantisation
        self.metadata = {
            "config": config,
            "generation_config": read_json_object(generation) if generation.is_file() else {},
        }
        pickled = has_only_pickled(folder)
        whole, index_name = (consolidated.WHOLE, consolidated.INDEX) if own else (_WHOLE, INDEX_NAME)
        index = folder / (PICKLED_INDEX if pickled else index_name)
        outputs = (
            sorted(folder.glob("output*.safetensors"))
            if (quantisation or {}).get("quant_method") == "exl2"
            else []
        )
        # an index beside a whole file belongs to the model that was quantised
        sharded = index.is_file() and not (folder / (PICKLED if pickled else whole)).is_file()
        if outputs:
            tensors = _read_outputs(outputs)
        else:
            tensors = _read_shards(index) if sharded else _read(_single_file(folder, whole, index_name))
        self.files = tuple(outputs) or (
            _shards(index) if sharded else (_single_file(folder, whole, index_name),)
        )
        wrapped = wrap_quantised({_plain_name(tensor.name): tensor for tensor in tensors}, config)
        self.tensors = with_joined(consolidated.with_hf_names(wrapped, config) if own else wrapped)

    def close(self) -> None:
        """Forget the tensors."""
        self.tensors = {}


def has_only_pickled(folder: Path) -> bool:
    """Whether a folder has PyTorch's files and none of safetensors."""
    there = (folder / PICKLED).is_file() or (folder / PICKLED_INDEX).is_file()
    return there and not any(folder.glob("*.safetensors"))


def _read(file: Path) -> list[FileTensor]:
    return read_pytorch(file) if file.suffix == ".bin" else read_safetensors(file)


def _plain_name(name: str) -> str:
    """The name of a weight that torch's `parametrize` has renamed, as where adapters are part of a module."""
    return name.replace(".parametrizations.weight.original", ".weight")


def _shards(index: Path) -> tuple[Path, ...]:
    """The files that an index names, which `_read_shards` has checked."""
    return tuple(index.parent / name for name in sorted(set(read_json_object(index)["weight_map"].values())))


def _read_shards(index: Path) -> list[FileTensor]:
    """The tensors of all files that an index names."""
    weight_map = read_json_object(index).get("weight_map")
    if not isinstance(weight_map, dict):
        raise BadCheckpoint(
            _("{index} has no weight_map; a table of tensor names and file names was expected.", index=index)
        )
    ends = ".bin" if index.name == PICKLED_INDEX else ".safetensors"
    for name, shard in weight_map.items():
        # Only plain names: a path could lead out of the folder.
        if (
            not isinstance(shard, str)
            or Path(shard).name != shard
            or "\\" in shard
            or not shard.endswith(ends)
        ):
            raise BadCheckpoint(
                _(
                    "{index} places tensor {name} in {shard!r}; the name of a {ends} file in the folder was "
                    "expected.",
                    index=index,
                    ends=ends,
                    name=name,
                    shard=shard,
                )
            )
    tensors: list[FileTensor] = []
    for shard in sorted(set(weight_map.values())):
        if not (index.parent / shard).is_file():
            raise BadCheckpoint(
                _(
                    "{index} names {shard}, which is not in the folder; download the missing file.",
                    index=index,
                    shard=shard,
                )
            )
        tensors += [tensor for tensor in _read(index.parent / shard) if weight_map.get(tensor.name) == shard]
    missing = sorted(set(weight_map) - {tensor.name for tensor in tensors})
    if missing:
        raise BadCheckpoint(
            _(
                "{index} names tensor {missing}, but {weight_map} does not hold it; download both again.",
                index=index,
                missing=missing[0],
                weight_map=weight_map[missing[0]],
            )
        )
    return tensors


def _read_outputs(files: list[Path]) -> list[FileTensor]:
    """The tensors of EXL2's output.safetensors or output-0000i-of-0000n.safetensors, which have no index."""
    counts = {
        int(match[1])
        for file in files
        if (match := re.fullmatch(r"output-\d{5}-of-(\d{5})\.safetensors", file.name))
    }
    if counts and counts != {len(files)}:
        raise BadCheckpoint(
            _(
                "{parent} holds {files} of {counts} files of the model; download the missing ones.",
                parent=files[0].parent,
                files=len(files),
                counts=max(counts),
            )
        )
    tensors = [tensor for file in files for tensor in read_safetensors(file)]
    if len({tensor.name for tensor in tensors}) < len(tensors):
        raise BadCheckpoint(
            _(
                "{parent} holds the same tensor in several output*.safetensors files; keep those "
                "of one model only.",
                parent=files[0].parent,
            )
        )
    return tensors


def read_whole(folder: Path) -> list[FileTensor]:
    """The tensors of the only file of weights in a folder.

    Raises `BadCheckpoint`, `ModelNotFound` or `UnsupportedModel`.
    """
    return _read(_single_file(folder))


def _single_file(folder: Path, whole: str = _WHOLE, index_name: str = INDEX_NAME) -> Path:
    plain = folder / whole
    if plain.is_file():
        return plain
    files = sorted(folder.glob("*.safetensors"))
    if len(files) == 1:
        return files[0]
    if files:
        raise BadCheckpoint(
            _(
                "{folder} holds {files} safetensors files but no {index_name}; download the index file too.",
                folder=folder,
                files=len(files),
                index_name=index_name,
            )
        )
    if (folder / PICKLED).is_file():
        return folder / PICKLED
    raise ModelNotFound(
        _("{folder} has a config.json but no .safetensors file; download the weights too.", folder=folder)
    )


def read_safetensors(path: Path) -> list[FileTensor]:
    file = ModelFile(path)
    size = file.size
    header_bytes = struct.unpack("<Q", file.read(0, 8, _("its header")).tobytes())[0] if size >= 8 else 0
    if not 2 <= header_bytes <= min(_MAX_HEADER_BYTES, size - 8):
        raise BadCheckpoint(
            _(
                "{path}: the header claims {header_bytes} bytes and the file has {size}; it is "
                "truncated or no safetensors file. Download it again.",
                path=path.name,
                header_bytes=header_bytes,
                size=size,
            )
        )
    header = parse_object(
        file.read(8, header_bytes, _("its header")).tobytes(), _("The header of {path}", path=path.name)
    )
    header.pop("__metadata__", None)
    base, room = 8 + header_bytes, size - 8 - header_bytes
    spans, tensors = [], []
    for name, entry in header.items():
        format, shape, start, end = _check_entry(path.name, name, entry, room)
        spans.append((start, end, name))
        tensors.append(FileTensor(name, format.name, shape, file, base + start))
    check_overlap(path.name, spans)
    covered = sum(end - start for start, end, _unused in spans)
    if covered != room:
        raise BadCheckpoint(
            _(
                "{path}: the tensors cover {covered} of {room} data bytes; the file is damaged. "
                "Download it again.",
                path=path.name,
                covered=covered,
                room=room,
            )
        )
    return tensors


def _whole_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 62 for item in value)


def _check_entry(
    file_name: str, name: str, entry: Any, room: int
) -> tuple[Format, tuple[int, ...], int, int]:
    """Format, shape, start and end of one header entry."""
    if len(name) > _MAX_NAME:
        raise BadCheckpoint(
            _(
                "{file_name}: a tensor name has {name} characters, at most {max_name} were "
                "expected. Download it again.",
                file_name=file_name,
                name=len(name),
                max_name=_MAX_NAME,
            )
        )
    if (
        not isinstance(entry, dict)
        or not _whole_numbers(entry.get("shape"))
        or not _whole_numbers(entry.get("data_offsets"))
    ):
        raise BadCheckpoint(
            _(
                "{file_name}: tensor {name} has no proper dtype, shape and data_offsets in the "
                "header. Download it again.",
                file_name=file_name,
                name=name,
            )
        )
    dtype, shape, offsets = entry.get("dtype"), tuple(entry["shape"]), entry["data_offsets"]
    format = _check_type(file_name, name, dtype, shape, offsets)
    nbytes = format.nbytes(shape)
    if offsets[1] - offsets[0] != nbytes or offsets[1] > room:
        raise BadCheckpoint(
            _(
                "{file_name}: tensor {name} of dtype {dtype} and shape {shape} lies at {offsets} "
                "of {room} data bytes; {nbytes} bytes inside the file were expected. Download it "
                "again.",
                file_name=file_name,
                name=name,
                dtype=dtype,
                shape=shape,
                offsets=offsets,
                room=room,
                nbytes=nbytes,
            )
        )
    return format, shape, offsets[0], offsets[1]


def _check_type(
    file_name: str, name: str, dtype: object, shape: tuple[int, ...], offsets: Sequence[int]
) -> Format:
    """The format of one header entry."""
    if len(shape) > _MAX_DIMENSIONS or len(offsets) != 2:
        raise BadCheckpoint(
            _(
                "{file_name}: tensor {name} has {shape} dimensions and {offsets} data_offsets; at "
                "most {max_dimensions} and exactly 2 were expected. Download it again.",
                file_name=file_name,
                name=name,
                shape=len(shape),
                offsets=len(offsets),
                max_dimensions=_MAX_DIMENSIONS,
            )
        )
    format = find_format(dtype) if isinstance(dtype, str) and dtype in _TYPES else None
    if format is None:
        raise UnsupportedModel(
            _(
                "{file_name}: tensor {name} has the dtype {dtype!r}, which cannot be read; {types} "
                "can. Get an unquantised variant or a GGUF file.",
                file_name=file_name,
                name=name,
                dtype=str(dtype)[:40],
                types=", ".join(_TYPES),
            )
        )
    # an empty tensor may still have too large a dimension for any array
    if prod(max(size, 1) for size in shape) > _MAX_VALUES:
        raise BadCheckpoint(
            _(
                "{file_name}: tensor {name} has the shape {shape}, larger than any model's. "
                "Download it again.",
                file_name=file_name,
                name=name,
                shape=shape,
            )
        )
    return format
