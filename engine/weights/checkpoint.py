"""`Checkpoint`, the interface of an opened model, and `open_checkpoint`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from engine.errors import ModelNotFound, UnsupportedModel
from engine.printable import one_line
from engine.tensors import RawTensor
from engine.text.template.source import META_FILES, is_meta
from engine.weights.gguf.file import GgufFile, begins_with_magic, split_parts
from engine.weights.gguf.ollama import known_name, known_place
from engine.weights.pytorch import PICKLED
from engine.weights.safetensors.consolidated import PARAMS, is_consolidated, own_format
from engine.weights.safetensors.json import read_json_object
from engine.words import _


class Checkpoint(Protocol):
    """A model's opened files: headers are read and checked, weights are read on request.

    `metadata` maps keys to Python values for "gguf"; for "safetensors" it is {"config": ...,
    "generation_config": ...}. `tensors` is by name.
    """

    @property
    def path(self) -> Path:
        """The (first) GGUF file, or the folder."""
        ...

    @property
    def files(self) -> Sequence[Path]:
        """The files that hold the weights."""
        ...

    @property
    def format(self) -> str:
        """ "gguf" or "safetensors"."""
        ...

    @property
    def metadata(self) -> Mapping[str, Any]: ...

    @property
    def tensors(self) -> Mapping[str, RawTensor]: ...

    def close(self) -> None:
        """Forget the tensors."""
        ...


def open_checkpoint(path: str | Path) -> Checkpoint:
    """Open a .gguf file, a folder with config.json and safetensors files or PyTorch's (or one of those
    files), a folder with params.json and consolidated.safetensors (Mistral AI) or consolidated.*.pth (Meta),
    or a folder with one GGUF model.

    Raises `ModelNotFound`, `BadCheckpoint` or `UnsupportedModel`.
    """
    path = Path(path)
    try:
        path = path.expanduser()
        return _open(path)
    except (OSError, RuntimeError) as error:  # no permission, a name too long, a loop of links, no such user
        raise ModelNotFound(
            _(
                "{path} cannot be opened: {reason}.",
                path=known_place(path),
                reason=getattr(error, "strerror", None) or error,
            )
        ) from error


def _open(path: Path) -> Checkpoint:
    if path.is_dir():
        return _open_folder(path)
    if not path.is_file():
        raise ModelNotFound(
            _(
                "There is no file or folder {path}; give a .gguf file or a folder with config.json "
                "and safetensors files.",
                path=known_place(path),
            )
        )
    suffix = path.suffix.lower()
    if suffix == ".safetensors" or path.name == PICKLED:
        if not (path.parent / "config.json").is_file() and not is_consolidated(path.parent):
            raise ModelNotFound(
                _("{path} has no config.json beside it; open a whole model folder.", path=path)
            )
        return _folder(path.parent)
    if path.match(META_FILES) and is_meta(path.parent):
        return _folder(path.parent)
    if suffix == ".gguf" or begins_with_magic(path):
        return GgufFile(path)
    raise UnsupportedModel(
        _(
            "{path} is not a model file that can be read; give a .gguf file or a folder with "
            "safetensors files.",
            path=known_name(path),
        )
    )


def _folder(path: Path) -> Checkpoint:
    # With the formats of quantised folders and of PyTorch, which GGUF files do without.
    from engine.weights.safetensors.folder import SafetensorsFolder

    return SafetensorsFolder(path)


def _open_folder(folder: Path) -> Checkpoint:
    if ((folder / "config.json").is_file() and any(folder.glob("*.safetensors"))) or is_consolidated(folder):
        return _folder(folder)
    # vision encoders lie beside the models that they belong to
    files = sorted(file for file in folder.glob("*.gguf") if "mmproj" not in file.name.lower())
    models = {split_parts(file)[0] for file in files}
    if len(models) == 1:
        return GgufFile(models.pop())
    if models:
        names = ", ".join(sorted(model.name for model in models)[:5])
        raise ModelNotFound(
            _(
                "{folder} holds {models} GGUF models ({names}); choose one of the files.",
                folder=folder,
                models=len(models),
                names=names,
            )
        )
    if (folder / "config.json").is_file():
        return _folder(folder)  # says which weights are missing
    if (folder / "adapter_config.json").is_file():
        base = read_json_object(folder / "adapter_config.json").get("base_model_name_or_path")
        raise UnsupportedModel(
            _(
                "{folder} holds an adapter (PEFT), no whole model; load the model that it belongs to "
                "({base}), and choose this folder as its adapter.",
                folder=folder,
                base=one_line(str(base or "?"))[:100],
            )
        )
    if is_meta(folder):
        return _folder(folder)
    if (folder / PARAMS).is_file() and any(folder.glob("consolidated*")):
        raise own_format(folder)
    raise ModelNotFound(
        _(
            "{folder} holds neither a .gguf file nor a config.json with safetensors files; choose "
            "a model folder.",
            folder=folder,
        )
    )
