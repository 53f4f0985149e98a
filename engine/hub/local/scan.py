"""Where models lie on this machine: the folders of other programs, and a bounded search through any
folder.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.hub.local.stores import StoredModel, hugging_face_models, ollama_models, title_of

__all__ = ["FoundModel", "Place", "find_models", "known_places", "known_title", "model_paths"]

DEPTH = 5
"""Folders below a place are looked into this deep: publisher / model / variant, and two more."""
MOST_FOLDERS = 4000
"""A folder chosen by mistake (a whole disk) ends here."""
MOST_ENTRIES = 20_000
"""So many names of one folder are looked at."""
MOST_MODELS = 5000

_LATER_PART = re.compile(r"-(?!0*1-of-)\d+-of-\d+\.gguf$", re.IGNORECASE)
_NO_MODEL = re.compile(r"(^|[-_.])(mmproj|imatrix|ggml-vocab|control-vector)([-_.]|$)", re.IGNORECASE)
_NO_NAMES = ("model", "ggml-model", "weights")
"""File names that say nothing (Jan calls every file model.gguf): the folder's name is the model's."""
_WEIGHTS = (".safetensors", ".safetensors.index.json")


@dataclass(frozen=True, slots=True)
class Place:
    """A folder to look in: `source` names for people whose it is; `layout` is "plain", "hugging face" or
    "ollama".
    """

    source: str
    path: Path
    layout: str = "plain"


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model that may be opened at `path` (a file or a folder); its headers have not been read.

    `title` is its name for people, `trouble` one sentence on why it cannot be used as it lies there, "" when
    nothing is known.
    """

    path: Path
    title: str
    source: str
    trouble: str = ""


def known_places(
    environment: Mapping[str, str] | None = None, home: Path | None = None, platform: str = sys.platform
) -> tuple[Place, ...]:
    """Where the Hugging Face cache, LM Studio, Ollama, GPT4All, llama.cpp and Jan keep models; only folders
    that exist.

    Sources: the programs' own documentation of HF_HOME and HF_HUB_CACHE, OLLAMA_MODELS, LLAMA_CACHE, and
    their default folders.
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
    except RuntimeError:  # an account without a home
        return None


def _user_folders(environment: Mapping[str, str], home: Path, platform: str) -> tuple[Path, Path, Path]:
    """The folders for data, caches and settings."""
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
    """The absolute path in a variable; None for none, and for a relative one, which means another folder
    each day.
    """
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
        yield Path("/usr/share/ollama/.ollama/models")  # where its service for all users keeps them


def find_models(places: Iterable[Place], stop: threading.Event) -> Iterator[FoundModel]:
    """The models of all places, each file or folder once; those that lie there but cannot be used come with
    their trouble.

    Ends soon after `stop` is set. Reads names and the small lists of Ollama and the Hugging Face cache, never
    weights.
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
    if layout == "plain":  # a folder of another program that the user pointed at
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
        trouble = (
            f"The folder {place.path} is not there or cannot be read; connect its disk, or remove it from "
            "the list."
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
    """The models of one snapshot: the folder itself, or the GGUF files in it."""
    if stored.trouble:
        yield FoundModel(stored.path, stored.title, source, stored.trouble)
        return
    for path in model_paths(stored.path, stop):
        yield FoundModel(path, stored.title if path == stored.path else _title(path), source)


def model_paths(folder: Path, stop: threading.Event) -> Iterator[Path]:
    """GGUF files (of split ones the first part) and folders with config.json and *.safetensors, by name,
    level by level.

    Left out: hidden folders, vision parts (mmproj), importance matrices. A linked folder is entered, but no
    folder twice.
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
        if "config.json" in names and any(name.endswith(_WEIGHTS) for name in names):
            yield here
        for path in files:
            if (
                path.suffix.lower() == ".gguf"
                and not _LATER_PART.search(path.name)
                and not _NO_MODEL.search(path.stem)
            ):
                yield path
        if depth < DEPTH:
            waiting += [(path, depth + 1) for path in folders]


def _listing(folder: Path) -> tuple[list[Path], list[Path]]:
    """The files and the visible folders in a folder, by name; both empty when it cannot be read."""
    files: list[Path] = []
    folders: list[Path] = []
    try:
        with os.scandir(folder) as entries:
            for count, entry in enumerate(entries):
                if count >= MOST_ENTRIES:
                    break
                try:
                    if entry.is_dir():
                        if not entry.name.startswith("."):
                            folders.append(Path(entry.path))
                    elif entry.is_file():
                        files.append(Path(entry.path))
                except OSError:  # a link to itself
                    continue
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


def known_title(path: str | Path) -> str:
    """The name that people know a model by where its file does not say it ("llama3.2:3b" for a blob of
    Ollama); else "".
    """
    path = Path(path)
    if path.suffix.lower() == ".gguf" and path.stem.lower() in _NO_NAMES:
        return path.parent.name
    return title_of(path)
