"""The cache of headers: valid as long as the files and the program are the same, and damage costs nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from desktop.store.caches import headers
from desktop.store.caches.headers import FILE_NAME, HeaderStore
from engine.core import ModelInfo, WorkSpace
from engine.hub.local.header_process import info_from_json, info_to_json
from tests.desktop.fakes import ECHO_INFO

INFO = dataclasses.replace(
    ECHO_INFO,
    picture_shapes=((4, 16),),
    defaults=(("temperature", 0.6), ("top_k", 20)),
    stop_token_ids=(2, 5),
    plain=(4, 3, 2, 1),
    work=WorkSpace(512, 10, 20, 30),
    gpu_work=WorkSpace(256, 1, 2, 3),
    thinking=(("<think>", "</think>"),),
    thinking_levels=(("off", ""), ("high", "</think>")),
    remarks=("A remark.",),
    lacks=(("pictures", "It has no eyes."),),
    licence="mit",
)
STAMP = (12, ("model.safetensors", 5))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HeaderStore]:
    """A store; it and all others of a test are closed at its end."""
    opened: list[HeaderStore] = []
    begin = HeaderStore.__init__

    def noted(self: HeaderStore, path: Path, version: str) -> None:
        begin(self, path, version)
        opened.append(self)

    monkeypatch.setattr(HeaderStore, "__init__", noted)
    yield HeaderStore(tmp_path / "cache" / FILE_NAME, "1")
    for each in opened:
        each.close()


def again(store: HeaderStore, version: str = "1") -> HeaderStore:
    store.close()
    return HeaderStore(store.path, version)


def test_kept_over_a_restart(store: HeaderStore) -> None:
    assert store.get("/m/a.gguf", STAMP) is None
    store.put("/m/a.gguf", STAMP, INFO)
    assert again(store).get("/m/a.gguf", STAMP) == INFO


def test_another_stamp_or_version_knows_nothing(store: HeaderStore) -> None:
    store.put("/m/a.gguf", STAMP, INFO)
    assert store.get("/m/a.gguf", (13,)) is None
    newer = again(store, "2")
    assert newer.get("/m/a.gguf", STAMP) is None
    assert again(newer).get("/m/a.gguf", STAMP) is None


def test_more_models_than_anybody_has_are_forgotten(
    store: HeaderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headers, "MOST_MODELS", 2)
    for name in "ab":
        store.put(name, STAMP, INFO)
    full = again(store)
    assert full.get("a", STAMP) == INFO
    full.put("c", STAMP, INFO)
    later = again(full)
    assert [later.get(name, STAMP) for name in "abc"] == [None] * 3
    later.put("a", STAMP, INFO)
    assert again(later).get("a", STAMP) == INFO


def test_a_file_name_that_is_not_unicode(store: HeaderStore) -> None:
    store.put("/m/\udcff.gguf", ("\udcfe", 1), INFO)
    assert store.get("/m/\udcff.gguf", ("\udcfe", 1)) == INFO


@pytest.mark.parametrize("damage", [b"no database at all" * 100, b"", None])
def test_a_damaged_file_is_created_again(store: HeaderStore, damage: bytes | None) -> None:
    store.put("/m/a.gguf", STAMP, INFO)
    store.close()
    content = store.path.read_bytes()
    store.path.write_bytes(content[: len(content) // 2] if damage is None else damage)
    fresh = again(store)
    assert fresh.get("/m/a.gguf", STAMP) in (None, INFO)
    fresh.put("/m/a.gguf", STAMP, INFO)
    fresh.put("/m/a.gguf", STAMP, INFO)
    assert again(fresh).get("/m/a.gguf", STAMP) == INFO


def test_a_damaged_entry_is_ignored(store: HeaderStore) -> None:
    store.put("/m/a.gguf", STAMP, INFO)
    store.close()
    with contextlib.closing(sqlite3.connect(store.path)) as database, database:
        database.execute('UPDATE headers SET info = replace(info, \'"layers": 2\', \'"layers": "two"\')')
    assert store.get("/m/a.gguf", STAMP) is None


def test_without_a_writable_place_there_is_no_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = HeaderStore(tmp_path / "file" / FILE_NAME, "1")
    store.put("/m/a.gguf", STAMP, INFO)
    assert store.get("/m/a.gguf", STAMP) is None
    (tmp_path / "file").unlink()
    store.put("/m/a.gguf", STAMP, INFO)  # it is not tried again for each of a thousand models
    assert not store.path.exists()
    store.close()
    store.put("/m/a.gguf", STAMP, INFO)
    assert store.get("/m/a.gguf", STAMP) == INFO
    store.close()


@pytest.mark.parametrize(
    "data", [None, [], {}, {**info_to_json(INFO), "layers": None}, {**info_to_json(INFO), "more": 1}]
)
def test_invalid_facts(data: object) -> None:
    with pytest.raises(ValueError):
        info_from_json(data)


def test_facts_as_json() -> None:
    assert info_from_json(json.loads(json.dumps(info_to_json(INFO)))) == INFO
    assert isinstance(INFO, ModelInfo)
