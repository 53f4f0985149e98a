"""Finds models in the folders of other programs, and in any folder by a bounded search."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path

from engine.hub.local.stores import StoredModel, hugging_face_models, ollama_models, title_of
from engine.lazy_dataclass import dataclass
from engine.weights.pytorch import PICKLED, PICKLED_INDEX
from engine.words import _

__all__ = ["FoundModel", "Place", "find_models", "known_places", "known_title", "model_paths"]

DEPTH = 5
"""The depth of the search in a folder: publisher / model / variant, and two more levels."""
MOST_FOLDERS = 4000
"""Limits the search of a folder chosen by mistake, such as a whole disk."""
MOST_ENTRIES = 20_000
"""The entries of one folder that are considered."""
MOST_MODELS = 5000

_LATER_PART = re.compile(r"-(?!0*1-of-)\d+-of-\d+\.gguf$", re.IGNORECASE)
_NO_MODEL = re.compile(r"(^|[-_.])(mmproj|imatrix|ggml-vocab|control-vector)([-_.]|$)", re.IGNORECASE)
_NO_NAMES = ("model", "ggml-model", "weights")
"""Meaningless file names (Jan calls every file model.gguf): the folder's name is used instead."""
_CONSOLIDATED = re.compile(r"consolidated.*\.(safetensors|pth)")
"""Mistral AI's and Meta's weights, which have params.json instead of config.json."""
_TWIN = "original"
"""The folder in which Meta's repositories hold the same model in Meta's own form."""
_WEIGHTS = (".safetensors", ".safetensors.index.json", PICKLED, PICKLED_INDEX)


@dataclass(frozen=True, slots=True)
class Place:
    """A folder to search; `source` is the program it belongs to, `layout` "plain", "hugging face" or
    "ollama".
    """

    source: str
    path: Path
    layout: str = "plain"


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A file or folder that may be a model; its headers have not been read.

    `title` is its name to show; `trouble` says in one sentence why it cannot be used, if that is known.
    """

    path: Path
    title: str
    source: str
    trouble: str = ""


def known_places(
    environment: Mapping[str, str] | None = None, home: Path | None = None, platform: str = sys.platform
) -> tuple[Place, ...]:
    """The existing model folders of Hugging Face, LM Studio, Ollama, GPT4All, llama.cpp and Jan.

    Sources: the documentation of these programs on HF_HOME, HF_HUB_CACHE, OLLAMA_MODELS and LLAMA_CACHE, and
    on their default folders.
    """
    environment = os.environ if environment is None else environment
    home = home or _home()
    if home is None:
        return ()
    data, cache, config = _user_folders(environment, home, platform)
    places = [
        *(Place("Hugging Face cache", path, "hugging face") for path in _hugging_face(environment, home)),
        *(
            Place("LM Studio", path)
            for path in (home / ".lmstudio" / "models", home / ".cache" / "lm-studio" / "models")
        ),
        *(Place("Ollama", path, "ollama") for path in _ollama(environment, home, platform)),
        *(Place("GPT4All", path) for path in (data / "nomic.ai" / "GPT4All", home / ".cache" / "gpt4all")),
        *(
            Place("llama.cpp", path)
            for path in (_named(environment, "LLAMA_CACHE"), cache / "llama.cpp")
            if path is not None
        ),
        *(
            Place("Jan", path)
            for path in (home / "jan" / "models", data / "Jan" / "data", config / "Jan" / "data")
        ),
    ]
    found: dict[str, Place] = {}
    for place in places:
        if _is_dir(place.path):
            found.setdefault(os.path.realpath(place.path), place)
    return tuple(found.values())


def _home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:  # an account without a home folder
        return None


def _user_folders(environment: Mapping[str, str], home: Path, platform: str) -> tuple[Path, Path, Path]:
    """The user's folders for data, caches and settings."""
    if platform == "win32":
        local = _named(environment, "LOCALAPPDATA") or home / "AppData" / "Local"
        return local, local, _named(environment, "APPDATA") or home / "AppData" / "Roaming"
    if platform == "darwin":
        support = home / "Library" / "Application Support"
        return support, home / "Library" / "Caches", support
    return (
        _named(environment, "XDG_DATA_HOME") or home / ".local" / "share",
        _named(environment, "XDG_CACHE_HOME") or home / ".cache",
        _named(environment, "XDG_CONFIG_HOME") or home / ".config",
    )


def _named(environment: Mapping[str, str], variable: str) -> Path | None:
    """The absolute path in a variable; None if it is unset or relative."""
    text = environment.get(variable, "")
    path = Path(os.path.expanduser(text)) if text else None
    return path if path is not None and path.is_absolute() else None


def _hugging_face(environment: Mapping[str, str], home: Path) -> Iterator[Path]:
    own = _named(environment, "HF_HUB_CACHE") or _named(environment, "HUGGINGFACE_HUB_CACHE")
    if own is not None:
        yield own
        return
    base = (
        _named(environment, "HF_HOME")
        or (_named(environment, "XDG_CACHE_HOME") or home / ".cache") / "huggingface"
    )
    yield base / "hub"


def _ollama(environment: Mapping[str, str], home: Path, platform: str) -> Iterator[Path]:
    own = _named(environment, "OLLAMA_MODELS")
    if own is not None:
        yield own
        return
    yield home / ".ollama" / "models"
    if platform.startswith("linux"):
        yield Path("/usr/share/ollama/.ollama/models")  # of the system-wide service


def find_models(places: Iterable[Place], stop: threading.Event) -> Iterator[FoundModel]:
    """The models in all places, each file or folder once, unusable ones included.

    Reads names and the manifests of Ollama, never weights. Ends soon after `stop` is set.
    """
    seen: set[str] = set()
    for place in places:
        for found in _in_place(place, stop):
            real = os.path.realpath(found.path)
            if stop.is_set() or len(seen) >= MOST_MODELS:
                return
            if real not in seen:
                seen.add(real)
                yield found


def _in_place(place: Place, stop: threading.Event) -> Iterator[FoundModel]:
    layout = place.layout
    if layout == "plain":  # the user may have chosen the folder of another program
        layout = _layout_of(place.path)
    if layout == "ollama":
        for stored in ollama_models(place.path, stop):
            yield FoundModel(stored.path, stored.title, place.source, stored.trouble)
        return
    if layout == "hugging face":
        for stored in hugging_face_models(place.path, stop):
            yield from _in_snapshot(stored, place.source, stop)
        return
    if not _is_dir(place.path):
        trouble = _(
            "The folder {path} is missing or cannot be read; connect its disk, or remove it from the list.",
            path=place.path,
        )
        yield FoundModel(place.path, place.path.name or str(place.path), place.source, trouble)
    for path in model_paths(place.path, stop):
        yield FoundModel(path, _title(path), place.source)


def _layout_of(folder: Path) -> str:
    if _is_dir(folder / "manifests") and _is_dir(folder / "blobs"):
        return "ollama"
    try:
        with os.scandir(folder) as entries:
            for count, entry in enumerate(entries):
                if entry.name.startswith("models--"):
                    return "hugging face"
                if count > 200:
                    break
    except OSError:
        pass
    return "plain"


def _in_snapshot(stored: StoredModel, source: str, stop: threading.Event) -> Iterator[FoundModel]:
    """The models of one snapshot: the folder, or the GGUF files in it."""
    if stored.trouble:
        yield FoundModel(stored.path, stored.title, source, stored.trouble)
        return
    for path in model_paths(stored.path, stop):
        yield FoundModel(path, stored.title if path == stored.path else _title(path), source)


def model_paths(folder: Path, stop: threading.Event) -> Iterator[Path]:
    """GGUF files (the first part of split ones) and folders with config.json and *.safetensors, or PyTorch's
    files; also those with params.json and consolidated.safetensors or consolidated.*.pth.

    They come level by level, sorted by name, without hidden folders, vision encoders (mmproj) and importance
    matrices. Links to folders are followed, but no folder is searched twice.
    """
    waiting = [(folder, 0)]
    entered: set[str] = set()
    while waiting and len(entered) < MOST_FOLDERS and not stop.is_set():
        here, depth = waiting.pop(0)
        real = os.path.realpath(here)
        if real in entered:
            continue
        entered.add(real)
        files, folders = _listing(here)
        names = {path.name for path in files}
        usual = "config.json" in names and any(name.endswith(_WEIGHTS) for name in names)
        if usual or ("params.json" in names and any(_CONSOLIDATED.fullmatch(name) for name in names)):
            yield here
        for path in files:
            if (
                path.suffix.lower() == ".gguf"
                and not _LATER_PART.search(path.name)
                and not _NO_MODEL.search(path.stem)
            ):
                yield path
        if depth < DEPTH:
            waiting += [(path, depth + 1) for path in folders if not (usual and path.name == _TWIN)]


def _listing(folder: Path) -> tuple[list[Path], list[Path]]:
    """The files and the visible folders in a folder, sorted by name; both empty if it cannot be read."""
    files: list[Path] = []
    folders: list[Path] = []
    try:
        with os.scandir(folder) as entries:
            for entry in islice(entries, MOST_ENTRIES):
                with suppress(OSError):  # a link to itself
                    if entry.is_dir():
                        if not entry.name.startswith("."):
                            folders.append(Path(entry.path))
                    elif entry.is_file():
                        files.append(Path(entry.path))
    except OSError:
        pass
    by_name = lambda path: path.name.lower()  # noqa: E731
    return sorted(files, key=by_name), sorted(folders, key=by_name)


def _is_dir(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def _title(path: Path) -> str:
    if path.suffix.lower() != ".gguf":
        return path.name
    return path.parent.name if path.stem.lower() in _NO_NAMES else re.sub(r"-\d+-of-\d+$", "", path.stem)


def model_title(path: Path) -> str:
    """The name of the model at a path."""
    return known_title(path) or _title(path)


def known_title(path: str | Path) -> str:
    """The usual name of a model whose file does not show it ("llama3.2:3b" for a blob of Ollama); else ""."""
    path = Path(path)
    if path.suffix.lower() == ".gguf" and path.stem.lower() in _NO_NAMES:
        return path.parent.name
    return title_of(path)
