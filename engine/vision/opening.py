"""Finds and opens a model's vision encoder: in the model's own folder, or in an mmproj GGUF beside it (of
Ollama's models, in the model's own file, or in the blob that their manifest names).
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.backends.cpu.backend import CpuBackend
from engine.core import Loading
from engine.drain import drain, mapped
from engine.errors import BadCheckpoint, EngineError, ModelNotFound, NotEnoughMemory, UnsupportedModel
from engine.lazy_dataclass import dataclass
from engine.models.building.source import Loader, Survey
from engine.models.headers.keys import Keys
from engine.models.load import check_memory, read_config
from engine.units import size_text
from engine.vision.base import Piece, Positions, VisionEncoder, VisionSpec
from engine.vision.design import Design
from engine.vision.encoders.grid_encoder import GridDesign, GridEncoder
from engine.vision.families import FAMILIES
from engine.vision.files import PROJECTOR, folder_config, is_mmproj, vision_part
from engine.weights.checkpoint import Checkpoint
from engine.weights.gguf.file import GgufFile
from engine.weights.gguf.ollama import known_name, projectors_of
from engine.weights.safetensors.json import read_json_object
from engine.words import _

_WITHOUT_TOKEN = ("llava", "llava_next")
"""Families of which GGUF models have no token for pictures in their vocabulary."""
_NAMELESS = re.compile(r"(mmproj|model|ggml|b?f16|f32|fp16|q8_0|gguf|[-_.])+")
"""Names of mmproj files that do not say of which model they are."""
PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")
"""Where folders have the settings of the image processor; the second has them inside an object."""
_CLIP = "clip"
"""general.architecture of mmproj files, and the prefix of their keys."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A design, the file or folder with its tensors, what it builds of their headers, and the sections of the
    language model's rope.
    """

    design: Design
    checkpoint: Checkpoint
    survey: Survey
    parts: Any
    positions: Positions | None = None

    @property
    def spec(self) -> VisionSpec:
        own = self.design.spec
        positions = None if own.unsectioned else own.positions or self.positions
        return replace(own, nbytes=self.survey.bytes, positions=positions)


def vision_spec(checkpoint: Checkpoint) -> VisionSpec | None:
    """What the model's vision encoder is, by headers alone; None if it has none, or one that cannot be run.

    Raises `BadCheckpoint` if the model has one whose files are damaged.
    """
    with _found(checkpoint) as found:
        return None if found is None else found.spec


@dataclass(frozen=True, slots=True)
class Layouts:
    """What is known of a model's vision encoder from headers alone; `file` is that beside a GGUF model. See
    `engine.vision.encoder_cache.Layouts`.
    """

    spec: VisionSpec
    design: Design
    file: Path | None = None

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        """As `VisionEncoder.layout`."""
        return self.design.layout(width, height)


def vision_layouts(checkpoint: Checkpoint, tokens: int = 0) -> Layouts | None:
    """What pictures become in the model's prompts, with `LoadSettings.picture_tokens`; None as in
    `vision_spec`. Raises `BadCheckpoint`.
    """
    with _found(checkpoint) as found:
        if found is None:
            return None
        beside = found.checkpoint is not checkpoint
        return Layouts(found.spec, _limited(found, tokens), found.checkpoint.path if beside else None)


def _limited(found: _Found, tokens: int) -> Design:
    """The design for pictures of at most this many tokens, if there are any and these are not the files'."""
    design = found.design
    return design.limited(tokens) if tokens and isinstance(design, GridDesign) else design


def open_vision(
    checkpoint: Checkpoint, threads: int = 0, tokens: int = 0
) -> Generator[Loading, None, VisionEncoder]:
    """Load the model's vision encoder: `encoder = yield from open_vision(checkpoint)`. It runs on the
    processor, with `LoadSettings.threads`, and reads pictures of up to `LoadSettings.picture_tokens`.

    Raises `UnsupportedModel` if there is none, `BadCheckpoint` and `NotEnoughMemory`.
    """
    with _found(checkpoint) as found:
        if found is None:
            raise UnsupportedModel(
                _(
                    "{path} has no vision encoder that can be run; choose a model that reads pictures, or "
                    "put its mmproj file beside it.",
                    path=known_name(checkpoint.path),
                )
            )
        backend, design = CpuBackend(threads, in_turns=True), _limited(found, tokens)
        seen = design.encoder(found.spec, found.parts, backend)
        work = seen.work_bytes() if isinstance(seen, GridEncoder) else 0  # of other pictures it is little
        _check_memory(known_name(found.checkpoint.path), found.survey.bytes, work, backend.free_memory())
        words = _("Loading the vision encoder")
        yield Loading(words, 0, design.layers)
        parts = yield from mapped(
            design.build(Loader(found.checkpoint.tensors, backend)),
            lambda done: Loading(words, done, design.layers),
        )
        encoder = design.encoder(found.spec, parts, backend)
    yield from encoder.prepare()
    return encoder


def _check_memory(name: str, weights: int, work: int, free: int) -> None:
    """Raise `NotEnoughMemory` if an encoder and its largest picture take more than is free."""
    check_memory(name, weights, free)
    if weights + work > free:
        raise NotEnoughMemory(
            _(
                "{name} needs {size} of memory for its vision encoder and the largest picture, but {size_2} "
                "are free; close other programs, or lower “Tokens per picture” in the model's settings.",
                name=name,
                size=size_text(weights + work),
                size_2=size_text(free),
            )
        )


@contextmanager
def _found(checkpoint: Checkpoint) -> Iterator[_Found | None]:
    """The encoder of a model; a file beside it is open as long as this is."""
    if checkpoint.format != "gguf":
        design = _of_folder(checkpoint)
        yield None if design is None else _surveyed(design, checkpoint, _sections(checkpoint))
        return
    own = _inside(checkpoint)
    if own is not None:
        yield replace(own, positions=_sections(checkpoint))
        return
    beside = _beside(checkpoint)
    try:
        yield None if beside is None else replace(beside, positions=_sections(checkpoint))
    finally:
        if beside is not None:
            beside.checkpoint.close()


def _sections(checkpoint: Checkpoint) -> Positions | None:
    """The sections of a language model's rotary positions, if it has any."""
    rope = read_config(checkpoint).rope
    if rope is None or rope.sections is None:
        return None
    return Positions(rope.sections, rope.sections_interleaved)


def _surveyed(design: Design, checkpoint: Checkpoint, positions: Positions | None = None) -> _Found:
    """Checks the names and shapes of all tensors. Raises `BadCheckpoint`."""
    survey = Survey(checkpoint.tensors, CpuBackend(1))
    parts = drain(design.build(survey))
    survey.check(known_name(checkpoint.path))
    return _Found(design, checkpoint, survey, parts, positions)


# -- folders


def _of_folder(checkpoint: Checkpoint) -> Design | None:
    config = folder_config(checkpoint)
    classes, vision = config.get("architectures"), vision_part(config)
    if not isinstance(classes, list) or not classes or vision is None:
        return None
    tower = vision.get("model_type")
    for family in FAMILIES:
        fits = not family.towers or tower is None or tower in family.towers
        if family.from_hf is not None and classes[0] in family.hf and fits:
            keys = Keys(config, "config.json")
            return family.from_hf(keys, processor_keys(checkpoint.path), checkpoint.tensors)
    return None


def processor_keys(folder: Path) -> Keys:
    """The settings of a folder's image processor; none if there are no such files. Raises `BadCheckpoint`."""
    first, second = (folder / name for name in PROCESSOR_FILES)
    if second.is_file():
        whole = Keys(read_json_object(second), second.name)
        inner = whole.table("image_processor")
        if inner is not None:
            return inner
    return Keys(read_json_object(first) if first.is_file() else dict[str, Any](), first.name)


# -- mmproj files


def _beside(checkpoint: Checkpoint) -> _Found | None:
    """The mmproj file of a GGUF model that fits it: one of Ollama's by its manifest, else one in the model's
    folder, of several the one whose name begins most like the model's.
    """
    name = checkpoint.path.name
    files = [file for file in checkpoint.path.parent.glob("*.gguf") if is_mmproj(file.name)]
    files.sort(key=lambda file: (-_likeness(file.name, name), file.name))
    named = projectors_of(checkpoint.path)
    width = _width(checkpoint)
    damaged: EngineError | None = None
    for file in (*named, *files):
        try:
            found = _opened(file, checkpoint.metadata)
        except (BadCheckpoint, ModelNotFound) as error:
            damaged = damaged or error
            continue
        if found is None:
            continue
        own = file in named or _is_for(found.design.spec, file.name, checkpoint)
        if own and found.design.width == width:
            return found
        found.checkpoint.close()
    if damaged is not None:
        raise damaged
    return None


def _is_for(spec: VisionSpec, file: str, model: Checkpoint) -> bool:
    """Whether an encoder that fits a model in width is its own, where many models share a folder: the model's
    vocabulary has the encoder's token. LLaVA's has none, so that names must begin alike, or the file's says
    nothing.
    """
    vocabulary = model.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(vocabulary, Sequence) or (spec.sign or spec.token) in vocabulary:
        return True
    own = spec.family in _WITHOUT_TOKEN
    return own and (_likeness(file, model.path.name) > 0 or _NAMELESS.fullmatch(file.lower()) is not None)


def _likeness(file: str, model: str) -> int:
    """How many characters the names share at their beginnings, the word "mmproj" apart."""
    own = file.lower().replace("mmproj", "").strip("-_.")
    pairs = enumerate(zip(own, model.lower(), strict=False))
    return next((at for at, (mine, other) in pairs if mine != other), min(len(own), len(model)))


def _width(checkpoint: Checkpoint) -> int:
    """The width of a GGUF model's rows; 0 if it does not say."""
    name = checkpoint.metadata.get("general.architecture")
    width = checkpoint.metadata.get(f"{name}.embedding_length")
    return width if isinstance(width, int) else 0


def _opened(file: Path, model: Mapping[str, Any]) -> _Found | None:
    """The encoder in an mmproj file beside the `model` with this metadata; None if its family cannot be run.
    Raises `BadCheckpoint`.
    """
    checkpoint = GgufFile(file)
    found = None
    try:
        if checkpoint.metadata.get("general.architecture") == _CLIP:
            found = _of_gguf(checkpoint, {**model, **checkpoint.metadata})
    except UnsupportedModel:
        pass
    if found is None:
        checkpoint.close()
    return found


def _inside(checkpoint: Checkpoint) -> _Found | None:
    """The encoder in a GGUF model's own file, as Ollama's are; None if there is none, or its family cannot be
    run. Raises `BadCheckpoint` and `UnsupportedModel`.
    """
    if PROJECTOR not in checkpoint.metadata or checkpoint.metadata["general.architecture"] == _CLIP:
        return None
    return _of_gguf(checkpoint, checkpoint.metadata)


def _of_gguf(checkpoint: Checkpoint, metadata: Mapping[str, Any]) -> _Found | None:
    """The encoder in a file whose keys, and those of its model, are `metadata`; None if its family cannot be
    run.
    """
    kind = metadata.get(PROJECTOR, metadata.get("clip.vision.projector_type"))
    family = next((each for each in FAMILIES if kind in each.gguf), None)
    if family is None or family.from_gguf is None:
        return None
    keys = Keys(metadata, known_name(checkpoint.path), "clip.vision.")
    return _surveyed(family.from_gguf(keys, checkpoint.tensors), checkpoint)
