"""Models in the folders of other programs and in any folder: links, limits, damaged stores."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from engine.hub.local import scan
from engine.hub.local.scan import FoundModel, Place, find_models, known_places, known_title, model_paths
from engine.weights.gguf.ollama import projectors_of

NEVER = threading.Event()
DIGEST = "ab" * 32


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")


def found(*places: Place) -> list[FoundModel]:
    return list(find_models(places, NEVER))


def titles(*places: Place) -> list[str]:
    return [model.title for model in found(*places)]


# -- plain folders


def test_model_paths(tmp_path: Path) -> None:
    make(
        tmp_path, "b.gguf", "A.GGUF", "notes.txt", "split-00001-of-00003.gguf", "split-00002-of-00003.gguf",
        "split-00003-of-00003.gguf", "pub/model/x.gguf", "hf/config.json", "hf/model.safetensors",
        "half/config.json", ".cache/hidden.gguf", "1/2/3/4/5/deep.gguf", "1/2/3/4/5/6/deeper.gguf",
        "index/config.json", "index/model.safetensors.index.json", "mmproj-F16.gguf", "b-mmproj-f16.gguf",
        "imatrix.gguf", "b.imatrix.gguf", "immaterial.gguf",
    )  # fmt: skip
    (tmp_path / "folder.gguf").mkdir()
    assert [str(path.relative_to(tmp_path)) for path in model_paths(tmp_path, NEVER)] == [
        "A.GGUF", "b.gguf", "immaterial.gguf", "split-00001-of-00003.gguf", "hf", "index", "pub/model/x.gguf",
        "1/2/3/4/5/deep.gguf",
    ]  # fmt: skip
    assert list(model_paths(tmp_path / "nowhere", NEVER)) == []
    stopped = threading.Event()
    stopped.set()
    assert list(model_paths(tmp_path, stopped)) == []
    assert list(find_models([Place("Mine", tmp_path)], stopped)) == []


def test_the_same_weights_in_their_authors_form_are_not_listed_beside_others(tmp_path: Path) -> None:
    """As in Llama's repositories; other folders in that of a model may hold models."""
    twin = ("original/params.json", "original/consolidated.00.pth")
    make(tmp_path / "both", "config.json", "model.safetensors", "gguf/x.gguf", *twin)
    make(tmp_path / "alone", *twin)
    assert {model.path.relative_to(tmp_path) for model in found(Place("Here", tmp_path))} == {
        Path("both"), Path("both/gguf/x.gguf"), Path("alone/original"),
    }  # fmt: skip


def test_links_are_followed_but_never_in_circles(tmp_path: Path) -> None:
    make(tmp_path, "elsewhere/far.gguf", "models/near.gguf", "models/a/b/c.gguf", "models/a/z/z.gguf")
    os.symlink(tmp_path / "elsewhere", tmp_path / "models" / "linked")
    os.symlink(tmp_path / "models", tmp_path / "models" / "a" / "round")
    os.symlink(tmp_path / "models" / "itself", tmp_path / "models" / "itself")
    os.symlink(tmp_path / "gone.gguf", tmp_path / "models" / "gone.gguf")
    os.symlink(tmp_path / "models" / "near.gguf", tmp_path / "models" / "again.gguf")
    assert titles(Place("Mine", tmp_path / "models")) == ["again", "far", "c", "z"]


def test_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, *(f"{number:02}/m.gguf" for number in range(20)))
    monkeypatch.setattr(scan, "MOST_FOLDERS", 6)
    assert len(titles(Place("Mine", tmp_path))) == 5
    monkeypatch.undo()
    monkeypatch.setattr(scan, "MOST_MODELS", 7)
    assert len(titles(Place("Mine", tmp_path))) == 7
    monkeypatch.undo()
    monkeypatch.setattr(scan, "MOST_ENTRIES", 3)
    assert len(titles(Place("Mine", tmp_path))) == 3


def test_a_model_in_two_places_is_listed_once(tmp_path: Path) -> None:
    make(tmp_path, "a/m.gguf")
    models = found(Place("First", tmp_path / "a"), Place("Second", tmp_path))
    assert models == [FoundModel(tmp_path / "a" / "m.gguf", "m", "First")]


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    (model,) = found(Place("Your folders", tmp_path / "usb"))
    assert model.title == "usb"
    assert "is missing or cannot be read" in model.trouble


def test_a_folder_that_cannot_be_read_hides_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "closed/m.gguf", "open/m.gguf")
    scandir = os.scandir

    def refusing(path: str | Path) -> object:
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(scan.os, "scandir", refusing)
    assert [model.path for model in found(Place("Mine", tmp_path))] == [tmp_path / "open" / "m.gguf"]


def test_titles_of_files_with_meaningless_names(tmp_path: Path) -> None:
    make(tmp_path, "qwen/model.gguf", "big-00001-of-00002.gguf", "big-00002-of-00002.gguf")
    assert titles(Place("Jan", tmp_path)) == ["big", "qwen"]
    assert known_title(tmp_path / "qwen" / "model.gguf") == "qwen"
    assert known_title(tmp_path / "other.gguf") == ""


# -- the Hugging Face cache


def cached(cache: Path, name: str, revision: str, *files: str, main: str = "") -> Path:
    repository = cache / f"models--{name.replace('/', '--')}"
    make(repository, *(f"snapshots/{revision}/{file}" for file in files))
    if main:
        make(repository, "refs/main")
        (repository / "refs" / "main").write_text(main)
    return repository / "snapshots" / revision


def test_hugging_face_cache(tmp_path: Path) -> None:
    plain = cached(tmp_path, "org/Plain-1B", "aaa", "config.json", "model.safetensors", main="aaa\n")
    os.utime(plain, (1, 1))  # another revision is newer
    cached(tmp_path, "org/Plain-1B", "bbb", "config.json", "model.safetensors")
    os.utime(cached(tmp_path, "org/NoMain", "old", "x.gguf"), (1, 1))
    newest = cached(tmp_path, "org/NoMain", "new", "x.gguf")
    files = cached(tmp_path, "org/Files-GGUF", "ccc", "f-Q4_K_M.gguf", "deep/f-Q8_0.gguf", "mmproj-f.gguf")
    cached(tmp_path, "org/OnlyCard", "ddd", "README.md")
    make(tmp_path, "datasets--org--data/snapshots/e/x.gguf", "version.txt", "models--org--empty/refs/main")
    expected = [
        FoundModel(files / "f-Q4_K_M.gguf", "f-Q4_K_M", "Cache"),
        FoundModel(files / "deep" / "f-Q8_0.gguf", "f-Q8_0", "Cache"),
        FoundModel(newest / "x.gguf", "x", "Cache"), FoundModel(plain, "Plain-1B", "Cache"),
    ]  # fmt: skip
    assert found(Place("Cache", tmp_path, "hugging face")) == expected
    assert found(Place("Cache", tmp_path)) == expected  # the user pointed at it
    assert known_title(plain) == "Plain-1B"


def test_an_incomplete_download_in_the_cache_is_reported(tmp_path: Path) -> None:
    snapshot = cached(tmp_path, "org/half", "aaa", "config.json", main="aaa")
    os.symlink(
        tmp_path / "models--org--half" / "blobs" / "gone", snapshot / "model-00002-of-00002.safetensors"
    )
    (model,) = found(Place("Cache", tmp_path, "hugging face"))
    assert (
        model.trouble
        == "The download of org/half is incomplete (model-00002-of-00002.safetensors is missing); "
        "download it again."
    )


def test_refs_main_cannot_lead_elsewhere(tmp_path: Path) -> None:
    make(tmp_path, "secret/x.gguf")
    inside = cached(tmp_path / "hub", "org/sly", "aaa", "y.gguf", main="../../../secret")
    assert [model.path for model in found(Place("Cache", tmp_path / "hub", "hugging face"))] == [
        inside / "y.gguf"
    ]


# -- Ollama


def pulled(folder: Path, name: str, layers: object, digest: str = DIGEST) -> None:
    manifest = folder / "manifests" / name
    make(folder, f"manifests/{name}", f"blobs/sha256-{digest}")
    manifest.write_text(json.dumps({"layers": layers}))


def layer(
    digest: str = f"sha256:{DIGEST}", kind: str = "application/vnd.ollama.image.model"
) -> dict[str, object]:
    return {"mediaType": kind, "digest": digest, "size": 1}


def test_ollama(tmp_path: Path) -> None:
    template = layer(f"sha256:{'cd' * 32}", "application/vnd.ollama.image.template")
    pulled(tmp_path, "registry.ollama.ai/library/llama3.2/3b", [template, layer()])
    pulled(tmp_path, "hf.co/someone/Model-GGUF/Q4_K_M", [layer(f"sha256:{'ef' * 32}")], "ef" * 32)
    pulled(tmp_path, "registry.ollama.ai/me/mine/latest", [layer()])  # the same blob under another name
    pulled(tmp_path, "registry.ollama.ai/library/cloud/latest", [template])
    blobs = tmp_path / "blobs"
    expected = [
        FoundModel(blobs / f"sha256-{'ef' * 32}", "hf.co/someone/Model-GGUF:Q4_K_M", "Ollama"),
        FoundModel(blobs / f"sha256-{DIGEST}", "llama3.2:3b", "Ollama"),
    ]
    assert found(Place("Ollama", tmp_path, "ollama")) == expected
    assert found(Place("Ollama", tmp_path)) == expected
    assert known_title(blobs / f"sha256-{DIGEST}") == "llama3.2:3b"
    assert known_title(blobs / f"sha256-{'00' * 32}") == ""


def test_each_manifest_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often names and encoders are asked for; again when it has changed."""
    projector = layer(f"sha256:{'cd' * 32}", "application/vnd.ollama.image.projector")
    for number in range(3):
        pulled(tmp_path, f"registry.ollama.ai/library/m{number}/latest", [layer(f"sha256:{number:064}")])
    make(tmp_path, f"blobs/sha256-{'cd' * 32}")
    read, plain = list[str](), Path.read_text
    monkeypatch.setattr(
        Path, "read_text", lambda self, *more: read.append(self.parent.name) or plain(self, *more)
    )
    blob = tmp_path / f"blobs/sha256-{2:064}"
    for _time in range(3):
        assert (known_title(blob), projectors_of(blob)) == ("m2:latest", [])
        assert len(found(Place("Ollama", tmp_path))) == 3
    assert read == ["m0", "m1", "m2"]
    pulled(tmp_path, "registry.ollama.ai/library/m2/latest", [layer(f"sha256:{2:064}"), projector])
    assert projectors_of(blob) == [tmp_path / f"blobs/sha256-{'cd' * 32}"]
    assert read == ["m0", "m1", "m2", "m2"]


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("models--org--Owl-1B/snapshots/abc", "Owl-1B"), ("models--owl/snapshots/abc", "owl"),
        ("models--org--Owl-1B/other/abc", ""), ("mine/snapshots/abc", ""),
    ],
)  # fmt: skip
def test_a_snapshot_has_the_name_of_its_repository(tmp_path: Path, name: str, title: str) -> None:
    assert known_title(tmp_path / name) == title


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", '{"layers": 3}', "[" * 100_000, "\ud800".encode("utf-8", "surrogatepass"),
        json.dumps({"layers": [layer("sha256:../../../etc/passwd")]}),
        json.dumps({"layers": [layer("sha256:" + "A" * 64)]}),
    ],
)  # fmt: skip
def test_a_broken_manifest_is_reported_and_hides_no_others(tmp_path: Path, text: str | bytes) -> None:
    pulled(tmp_path, "registry.ollama.ai/library/good/latest", [layer()])
    make(tmp_path, "manifests/registry.ollama.ai/library/bad/latest")
    (tmp_path / "manifests/registry.ollama.ai/library/bad/latest").write_bytes(
        text.encode() if isinstance(text, str) else text
    )
    bad, good = found(Place("Ollama", tmp_path, "ollama"))
    assert good.trouble == ""
    assert bad.title == "bad:latest"
    assert "cannot be read" in bad.trouble
    assert "\n" not in bad.trouble


def test_a_missing_blob_is_reported(tmp_path: Path) -> None:
    pulled(tmp_path, "registry.ollama.ai/library/m/latest", [layer()])
    (tmp_path / "blobs" / f"sha256-{DIGEST}").unlink()
    (model,) = found(Place("Ollama", tmp_path, "ollama"))
    assert model.trouble == "Ollama's file for m:latest is missing; pull it again with Ollama."


# -- known places

LINUX = (
    ".cache/huggingface/hub", ".lmstudio/models", ".cache/lm-studio/models", ".ollama/models",
    ".local/share/nomic.ai/GPT4All", ".cache/llama.cpp", ".local/share/Jan/data",
)  # fmt: skip


def test_known_places(tmp_path: Path) -> None:
    for name in LINUX:
        (tmp_path / name).mkdir(parents=True)
    places = known_places({}, tmp_path, "linux")
    assert [
        str(place.path.relative_to(tmp_path)) for place in places if place.path.is_relative_to(tmp_path)
    ] == list(LINUX)
    assert [place.source for place in places[:4]] == [
        "Hugging Face cache",
        "LM Studio",
        "LM Studio",
        "Ollama",
    ]
    assert known_places({}, tmp_path / "nobody", "darwin") == ()


def test_known_places_of_other_systems(tmp_path: Path) -> None:
    (tmp_path / "Library/Application Support/nomic.ai/GPT4All").mkdir(parents=True)
    (tmp_path / "Library/Caches/llama.cpp").mkdir(parents=True)
    assert [place.source for place in known_places({}, tmp_path, "darwin")] == ["GPT4All", "llama.cpp"]
    (tmp_path / "Local/nomic.ai/GPT4All").mkdir(parents=True)
    (tmp_path / "Roaming/Jan/data").mkdir(parents=True)
    variables = {"LOCALAPPDATA": str(tmp_path / "Local"), "APPDATA": str(tmp_path / "Roaming")}
    assert [place.source for place in known_places(variables, tmp_path, "win32")] == ["GPT4All", "Jan"]


def test_variables_move_them(tmp_path: Path) -> None:
    for name in ("home", "a/hub", "b", "c", "d"):
        (tmp_path / name).mkdir(parents=True)
    home = tmp_path / "home"

    def of(**variables: str) -> list[tuple[str, Path]]:
        return [(place.layout, place.path) for place in known_places(variables, home, "darwin")]

    assert of(HF_HOME=str(tmp_path / "a")) == [("hugging face", tmp_path / "a" / "hub")]
    assert of(HF_HOME=str(tmp_path / "a"), HF_HUB_CACHE=str(tmp_path / "b")) == [
        ("hugging face", tmp_path / "b")
    ]
    assert of(OLLAMA_MODELS=str(tmp_path / "c"), LLAMA_CACHE=str(tmp_path / "d")) == [
        ("ollama", tmp_path / "c"),
        ("plain", tmp_path / "d"),
    ]
    assert of(OLLAMA_MODELS="relative/folder") == []
