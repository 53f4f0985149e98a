"""The choices that a repository offers: GGUF quantisations and safetensors, or else PyTorch's own files;
which fit, and the best.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from engine.errors import BadSetting, DownloadError
from engine.hub.catalogue.models import HubChoice, HubFile, HubFiles
from engine.hub.catalogue.search import model_branches, model_files
from engine.hub.download.disk import SPARE_BYTES, free_disk
from engine.hub.download.partial_dir import check_names
from engine.hub.download.starter import models_dir
from engine.settings import LoadSettings
from engine.words import _

_PART = re.compile(r"^(?P<stem>.+?)-(?P<number>\d{5})-of-(?P<count>\d{5})$")
"""Names of the parts of split files, alike in all formats
(https://github.com/ggml-org/llama.cpp/blob/master/tools/gguf-split/README.md).
"""
_QUANT = re.compile(
    r"(?<![a-z0-9])((?:ud[-_])?(?:iq[1-4]_(?:xxs|xs|s|m|nl)|t?q[1-8]_(?:[01]|k(?:_(?:xxs|xs|s|m|l"
    r"|xl))?)(?:_l)?(?:_\d_\d)?|mxfp4(?:_moe)?"
    r"|nvfp4|bf16|fp?16|fp?32|q[2-8]))(?![a-z0-9])",
    re.IGNORECASE,
)
_REPACKED = re.compile(r"q4_0_[48]_[48]$", re.IGNORECASE)
"""Old repacked types, which current readers of GGUF no longer support."""
_NOT_A_MODEL = re.compile(
    r"mmproj|imatrix|adapter|^ggml-vocab|^mtp-|(?:^|[-_.])lora(?:[-_.]|$)(?!.*merged)", re.IGNORECASE
)
"""Files that are not the model: vision encoders, importance matrices, adapters, vocabularies, multi-token
prediction layers.
"""
_SMALL = (".json", ".jinja", ".model", ".tiktoken")
_SMALL_NAMES = (
    "merges.txt", "vocab.txt", "readme.md", "license", "license.txt", "license.md", "notice", "notice.txt",
    "use_policy.md",
)  # fmt: skip
_MAX_SMALL_BYTES = 256 << 20
_PICKLED = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
_FOLDERS = {"safetensors": ("model", "Safetensors"), "bin": ("pytorch_model", "PyTorch")}
"""The usual name of the weights of a folder, and a choice's title, by their extension; the better first."""
WORK_BYTES = 512 << 20
"""An estimate of context and work space, besides a tenth of the weights. Once the headers are downloaded,
`models.memory.fit` computes them.
"""
_GROWTH = {"IQ1": 2.5, "IQ2": 1.75, "IQ3": 1.3, "NVF": 1.3}
"""About how many bytes of memory a byte of a file takes, by the beginning of its type, where it is more than
one: a little more than on the CPU, a little less than on GPUs.
"""
_DECODED_GROWTH = {"exl3": 4, "aqlm": 8, "vptq": 8}
"""About how much larger what is held as F16 becomes in memory, by `quant_method`: most folders have 3 to 5
bits a weight, or 2, and the hub's number of parameters counts packed ones.
"""
_LOSSLESS_BITS = 8.8
"""Bits of 8-bit types with their scales; more bits cost memory and speed without a visible gain."""
_GOOD_BITS = 3.5
"""With fewer bits, replies suffer more than a faster device is worth."""


def model_choices(
    model_id: str,
    *,
    target_folder: Path | None = None,
    load: LoadSettings = LoadSettings(),
    stop: threading.Event | None = None,
) -> list[HubChoice]:
    """The choices of a model, smallest first; at most one of them is recommended. Blocks.

    Whether a choice fits is judged by the memory of the devices that `load` allows. If a repository has no
    weights on its main branch, as is common for EXL2, all branches are searched and give the titles. Raises
    `DownloadError`, also if nothing in the repository can be run.
    """
    memories, disk = free_memories(load), free_disk(target_folder or models_dir())
    listing = model_files(model_id, stop=stop)
    if any(_is_weights(file) for file in listing.files):
        return choices_of(listing, memories, disk)
    found: list[HubChoice] = []
    for branch in model_branches(model_id, stop=stop):
        with contextlib.suppress(NothingToChoose):
            choices = choices_of(model_files(model_id, branch, stop=stop), memories, disk)
            titles = [branch if len(choices) == 1 else f"{branch} {choice.title}" for choice in choices]
            found += [
                dataclasses.replace(choice, title=title)
                for choice, title in zip(choices, titles, strict=True)
            ]
    if not found:
        raise NothingToChoose(_nothing(listing))
    # the hub counts packed numbers, which does not tell the bits per weight
    return _with_recommended(sorted(found, key=lambda choice: (choice.bytes, choice.title)), 0, memories)


class NothingToChoose(DownloadError):
    """Nothing in a repository, or in one of its branches, can be run."""


def choices_of(listing: HubFiles, memories: Sequence[int], disk: int) -> list[HubChoice]:
    """The choices of a listing, for `disk` free bytes and `memories`, those of each device, the best first.

    Raises `DownloadError` as `model_choices` does.
    """
    groups, encoder = _gguf_groups(listing.files), vision_encoder(listing.files)
    if not _unsupported(listing):
        folders = (_folder_groups(listing.files, suffix) for suffix in _FOLDERS)
        groups += next((found for found in folders if found), [])
    found = []
    for title, form, files in groups:
        vision_bytes = encoder.size if encoder is not None and form == "gguf" else 0
        if encoder is not None and form == "gguf":
            files = (*files, encoder)
        check_names(files)
        unsized = next((file.name for file in files if file.size < 0), "")
        if unsized:
            raise DownloadError(
                _(
                    "The Hub does not state the size of {unsized} in {id}, so it cannot be "
                    "downloaded safely.",
                    unsized=unsized,
                    id=listing.model.id,
                )
            )
        weights = sum(file.size for file in files if _is_weights(file)) - vision_bytes
        if form != "gguf":
            weights *= _DECODED_GROWTH.get(listing.model.quantisation, 1)
        needed = _memory(title, weights)
        total = sum(file.size for file in files)
        choice = HubChoice(listing.model.id, listing.revision, title, form, files, total, needed)
        found.append(
            dataclasses.replace(
                choice,
                fits_memory=needed <= max(memories),
                fits_disk=total + SPARE_BYTES <= disk,
                vision_bytes=vision_bytes,
            )
        )
    if not found:
        raise NothingToChoose(_nothing(listing))
    return _with_recommended(
        sorted(found, key=lambda choice: (choice.bytes, choice.title)), listing.model.parameters, memories
    )


def _memory(title: str, weights: int) -> int:
    """Estimate the bytes that a model with `weights` bytes of weights needs when it runs."""
    weights = int(weights * _GROWTH.get(title.removeprefix("UD-")[:3], 1))
    return weights + weights // 10 + WORK_BYTES


def free_memories(load: LoadSettings) -> list[int]:
    """Free bytes of each device that a model could be loaded on, the best one first.

    A chosen GPU that is missing is ignored.
    """
    from engine.backends.choice import targets  # imports NumPy

    try:
        found = targets(load)
    except BadSetting:
        found = targets(LoadSettings())
    return [target.free for target in found]


def _gguf_groups(files: Iterable[HubFile]) -> list[tuple[str, str, tuple[HubFile, ...]]]:
    """(title, "gguf", all parts in order) of each complete model."""
    stems: dict[str, dict[int, HubFile]] = {}
    counts: dict[str, int] = {}
    for file in files:
        path = PurePosixPath(file.name)
        if path.suffix != ".gguf" or _NOT_A_MODEL.search(path.stem) or _REPACKED.search(path.stem):
            continue
        part = _PART.match(path.stem)
        stem = str(path.with_name(part["stem"] if part else path.stem)) + (
            f" {part['count']}" if part else ""
        )
        stems.setdefault(stem, {})[int(part["number"]) if part else 1] = file
        counts[stem] = int(part["count"]) if part else 1
    # a model that exists both whole and in parts is taken whole
    whole = {
        stem: parts for stem, parts in stems.items()
        if sorted(parts) == list(range(1, counts[stem] + 1))
        and (" " not in stem or stem.partition(" ")[0] not in stems)
    }  # fmt: skip
    titles = {stem: _quantisation(stem) for stem in whole}
    groups = []
    for stem, parts in whole.items():
        title = titles[stem]
        if not title or list(titles.values()).count(title) > 1:
            # several models have this quantisation: use their names
            title = stem.partition(" ")[0]
        groups.append((title, "gguf", tuple(parts[number] for number in sorted(parts))))
    return groups


def vision_encoder(files: Iterable[HubFile]) -> HubFile | None:
    """The vision encoder that comes with each GGUF model of a repository: of several types of it the smallest
    that loses next to nothing.
    """
    found = [
        file
        for file in files
        if file.name.endswith(".gguf") and "mmproj" in PurePosixPath(file.name).name.lower()
    ]

    def rank(file: HubFile) -> tuple[bool, bool, int]:
        kind = _quantisation(PurePosixPath(file.name).stem)
        return kind not in _ENCODER_TYPES, kind != "F32", file.size

    return min(found, key=rank, default=None)


_ENCODER_TYPES = ("Q8_0", "F16", "BF16")


def _quantisation(stem: str) -> str:
    """The last GGUF type named in a path, in capitals: "Q4_K_M", "UD-Q4_K_XL", or ""."""
    found = _QUANT.findall(stem.replace(".", "-").replace("/", "-"))
    if not found:
        return ""
    return re.sub(r"^UD[-_]", "UD-", re.sub(r"^FP(?=\d)", "F", found[-1].upper()))


def _folder_groups(files: Iterable[HubFile], suffix: str) -> list[tuple[str, str, tuple[HubFile, ...]]]:
    """(title, format, weights with config and tokenizer) of each set with this extension in the top folder.

    PyTorch's own files have no others' names: what a training left beside them is no model. Nor have those of
    Mistral AI, which come with params.json instead of config.json.
    """
    usual, name = _FOLDERS[suffix]
    top = [file for file in files if "/" not in file.name]
    names = {file.name for file in top}
    if "config.json" not in names:
        if suffix != "safetensors" or "params.json" not in names:
            return []
        usual = "consolidated"
    sets: dict[str, dict[int, HubFile]] = {}
    counts: dict[str, int] = {}
    for file in top:
        stem, dot, ending = file.name.rpartition(".")
        if ending != suffix or not dot or _NOT_A_MODEL.search(stem):
            continue
        part = _PART.match(stem)
        base = part["stem"] if part else stem
        key = f"{base} {part['count']}" if part else base
        sets.setdefault(key, {})[int(part["number"]) if part else 1] = file
        counts[key] = int(part["count"]) if part else 1
    whole = {key: parts for key, parts in sets.items() if sorted(parts) == list(range(1, counts[key] + 1))}
    own = [key for key in whole if key.partition(" ")[0] == usual]
    indexed = f"{usual}.{suffix}.index.json" in names
    # a repository may hold its weights both as one file and as parts; the index belongs to the parts
    chosen = [next((key for key in own if (" " in key) == indexed), own[0])] if own else sorted(whole)
    if not own and (usual != "model" or (indexed and sets)):
        return []
    groups = []
    for key in chosen:
        base = key.partition(" ")[0]
        small = [file for file in files if _small(file, f"{base}.{suffix}.index.json")]
        title = name if len(chosen) == 1 else base
        groups.append((title, name.lower(), (*(whole[key][number] for number in sorted(whole[key])), *small)))
    return groups


def _is_weights(file: HubFile) -> bool:
    """Whether a file holds weights in a format that is read; `.bin` files of other names do not."""
    path = PurePosixPath(file.name)
    return path.suffix in (".gguf", ".safetensors") or (
        path.suffix == ".bin" and path.name.startswith(_FOLDERS["bin"][0])
    )


def _small(file: HubFile, index: str) -> bool:
    """Whether a file describes the model: config, tokenizer, templates, licence, the index of its parts under
    the name `index`; never code.
    """
    path = PurePosixPath(file.name)
    if file.size > _MAX_SMALL_BYTES or len(path.parts) > 1:
        return (
            path.parts[0] == "additional_chat_templates"
            and path.suffix == ".jinja"
            and 0 <= file.size <= _MAX_SMALL_BYTES
        )
    if path.name.endswith(".index.json"):
        return path.name == index
    return path.name.lower() in _SMALL_NAMES or path.suffix in _SMALL or ".model.v" in path.name


def _with_recommended(choices: list[HubChoice], parameters: int, memories: Sequence[int]) -> list[HubChoice]:
    """Recommend the largest choice of at most 8 bits that fits on the best device that fits a good one.

    Larger ones, and types that loading must unpack, are recommended only if there is no other.
    """
    on_each = [
        [choice for choice in choices if choice.fits_disk and choice.memory_bytes <= memory]
        for memory in memories
    ]
    good = (
        fitting for fitting in on_each if any(_bits(choice, parameters) >= _GOOD_BITS for choice in fitting)
    )
    fitting = next(good, [choice for choice in choices if choice.fits])

    def rank(choice: HubChoice) -> tuple[bool, int]:
        slim = _bits(choice, parameters) <= _LOSSLESS_BITS
        return slim, choice.bytes if slim else -choice.bytes

    best = max(fitting, key=rank, default=None)
    return [dataclasses.replace(choice, recommended=choice is best) for choice in choices]


def _bits(choice: HubChoice, parameters: int) -> float:
    """Bits per weight, from the sizes or else from the title."""
    if parameters > 0:
        return 8 * (choice.bytes - choice.vision_bytes) / parameters
    named = re.search(r"Q([1-8])_|(\d\.\d+)bpw", choice.title)
    return (
        16.0
        if choice.title in ("F16", "BF16", "F32", *(title for _usual, title in _FOLDERS.values()))
        else float(named[1] or named[2])
        if named
        else 4.0
    )


def _unsupported(listing: HubFiles) -> str:
    """The kind of quantised safetensors that this program cannot read, or ""."""
    from engine.weights.packed.table import is_readable  # a seventh of a second, for those who ask

    method = listing.model.quantisation
    return "" if not method or is_readable(method) else method


def _nothing(listing: HubFiles) -> str:
    names = [file.name.lower() for file in listing.files]
    if kind := _unsupported(listing):
        has = _("only weights quantised for {kind}, which are not supported", kind=kind)
    elif any(PurePosixPath(name).stem == "adapter_model" for name in names):
        has = _("only an adapter for another model")
    elif any(_is_weights(file) for file in listing.files):
        has = _("an incomplete language model: parts or config.json are missing")
    elif any(name.endswith(_PICKLED) for name in names):
        has = _("only PyTorch files of other names than pytorch_model.bin")
    else:
        has = _("no weights")
    return _(
        "The model {id} has {has}; choose a repository with GGUF files, or with safetensors and config.json.",
        id=listing.model.id,
        has=has,
    )
