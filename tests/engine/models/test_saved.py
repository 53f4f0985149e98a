"""Saved caches: what is restored, what is not, and that saving never fails."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engine.core import PAGE_TOKENS as P
from engine.kv_cache.disk import PART_SUFFIX, SUFFIX
from engine.models import saved
from engine.models.paged import PagedCache
from engine.models.saved import fingerprint, restore_cache, save_cache
from engine.settings import CacheSettings
from tests.engine.generator.fakes import FakeModel, FakeStore, random_logits
from tests.tiny import TINY, write_folder, write_gguf

NOW, LATER = 1_000_000_000.0, 1_000_000_100.0
A, B = list(range(1, 2 * P + 41)), [7, *range(1, 700)]


def new_cache(context: int = 1024) -> PagedCache:
    model: Any = FakeModel()
    return PagedCache(model, CacheSettings(context_length=context))


def run(cache: PagedCache, ids: Sequence[int]) -> int:
    """Run the ids that are not cached, check the logits, and return how many were cached."""
    with cache.open(ids) as lease:
        cached = lease.length
        while lease.length < len(ids):
            logits = cache.run(lease, ids[lease.length : lease.length + cache.rows])
        np.testing.assert_array_equal(logits[-1], random_logits(list(ids)))
    cache.table.check()
    return cached


def saved_cache(folder: Path, *texts: Sequence[int]) -> Path:
    """The file that a cache with these texts saves."""
    cache = new_cache()
    for ids in texts:
        run(cache, ids)
    assert save_cache(cache, "me", folder) == ""
    cache.close()
    (file,) = folder.iterdir()
    return file


def test_conversations_come_back(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "made yet"
    file = saved_cache(folder, A, B)
    cache = new_cache()
    assert restore_cache(cache, "me", folder) == ""
    assert (run(cache, A), run(cache, B)) == (len(A) - 1, len(B) - 1)
    assert run(cache, [*A[:300], 1, 2, 3]) == 300
    cache.close()
    assert file.suffix == SUFFIX


def test_nothing_was_saved(tmp_path: Path) -> None:
    cache = new_cache()
    assert restore_cache(cache, "me", tmp_path / "nowhere") == ""
    assert save_cache(cache, "me", tmp_path / "nowhere") == ""
    assert not (tmp_path / "nowhere").exists()


def test_from_run_to_run(tmp_path: Path) -> None:
    """Content that a run does not use passes from file to file without being read into memory."""
    file = saved_cache(tmp_path, A)
    cache = new_cache()
    restore_cache(cache, "me", tmp_path)
    run(cache, B)
    store: Any = cache.store
    assert (store.slots >= 0).any(axis=1).sum() == 3  # the pages of B alone
    assert save_cache(cache, "me", tmp_path) == ""
    cache.close()
    assert list(tmp_path.iterdir()) == [file]
    cache = new_cache()
    restore_cache(cache, "me", tmp_path)
    assert (run(cache, A), run(cache, B)) == (len(A) - 1, len(B) - 1)
    cache.close()


def test_an_untouched_file_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = saved_cache(tmp_path, A)
    cache = new_cache()
    restore_cache(cache, "me", tmp_path)
    monkeypatch.setattr(saved, "write_pages", None)
    os.utime(file, (NOW, NOW))
    assert save_cache(cache, "me", tmp_path) == ""
    assert file.stat().st_mtime > NOW
    cache.close()


def test_a_page_is_read_once(tmp_path: Path) -> None:
    """What was added since is not overwritten by a second read."""
    saved_cache(tmp_path, A)
    cache = new_cache()
    restore_cache(cache, "me", tmp_path)
    longer = [*A, *range(100, 180)]
    assert run(cache, longer) == len(A)
    assert run(cache, [*longer, 5]) == len(longer)
    assert run(cache, A[:300]) == 299
    cache.close()


def test_a_smaller_cache_takes_what_was_used_last(tmp_path: Path) -> None:
    saved_cache(tmp_path, A, B)
    cache = new_cache(context=256)  # three pages
    restore_cache(cache, "me", tmp_path)
    assert cache.table.cached == 3
    with cache.open(B) as lease:
        assert lease.length == len(B) - 1
    cache.close()


@pytest.mark.parametrize("change", ["fingerprint", "backend", "shape", "type", "page size"])
def test_other_models_types_and_layouts_find_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    saved_cache(tmp_path, A)
    cache = new_cache()
    model: Any = cache.model
    if change == "backend":
        model.backend = SimpleNamespace(name="other")
    if change == "shape":
        model.config.kv_shapes = ((1, 8), (1, 8))
    if change == "type":
        monkeypatch.setattr(FakeStore, "dtype", "q8")
    if change == "page size":
        monkeypatch.setattr(FakeStore, "page_bytes", 16 * P)
    assert restore_cache(cache, "you" if change == "fingerprint" else "me", tmp_path) == ""
    assert cache.table.cached == 0


def test_a_foreign_file_in_its_place(tmp_path: Path) -> None:
    mine = saved_cache(tmp_path / "mine", A)
    cache = new_cache()
    run(cache, B)
    save_cache(cache, "you", tmp_path / "yours")
    (yours,) = (tmp_path / "yours").iterdir()
    shutil.copy(yours, mine)
    cache = new_cache()
    notice = restore_cache(cache, "me", mine.parent)
    assert notice == (
        "The saved cache of your chats was not used: it was written for another model, cache type "
        "or version. The chats will be read again."
    )
    assert run(cache, A) == 0
    assert save_cache(cache, "me", mine.parent) == ""
    cache = new_cache()
    assert restore_cache(cache, "me", mine.parent) == ""
    assert run(cache, A) == len(A) - 1
    cache.close()


def test_damaged_files(tmp_path: Path) -> None:
    file = saved_cache(tmp_path, A)
    whole = file.read_bytes()
    for damaged in (whole[:100], whole[:-1], b"", b"\0" * len(whole), whole[:900] + b"\xff" + whole[901:]):
        file.write_bytes(damaged)
        cache = new_cache()
        assert "was not used" in restore_cache(cache, "me", tmp_path)
        assert run(cache, A) == 0


def test_a_damaged_page_costs_what_follows_it_only(tmp_path: Path) -> None:
    file = saved_cache(tmp_path, A)
    whole = bytearray(file.read_bytes())
    # in the second page of three; the last of the file is the first of the conversation
    whole[-8 * P - 9] ^= 1
    file.write_bytes(whole)
    cache = new_cache()
    assert restore_cache(cache, "me", tmp_path) == ""
    with cache.open(A) as lease:
        assert lease.length == P
    assert cache.table.cached == 1
    assert run(cache, A) == P
    assert run(cache, A) == len(A) - 1
    cache.close()


def test_a_damaged_page_to_copy_from(tmp_path: Path) -> None:
    file = saved_cache(tmp_path, A[:100])
    whole = bytearray(file.read_bytes())
    whole[-9] ^= 1
    file.write_bytes(whole)
    cache = new_cache()
    restore_cache(cache, "me", tmp_path)
    assert run(cache, [*A[:50], 5, 5]) == 0
    cache.close()


def test_a_damaged_page_is_not_saved_again(tmp_path: Path) -> None:
    file = saved_cache(tmp_path, A)
    whole = bytearray(file.read_bytes())
    whole[-8 * P - 9] ^= 1
    file.write_bytes(whole)
    cache = new_cache()
    restore_cache(cache, "me", tmp_path)
    run(cache, B)
    save_cache(cache, "me", tmp_path)
    cache = new_cache()
    restore_cache(cache, "me", tmp_path)
    assert (run(cache, A), run(cache, B)) == (P, len(B) - 1)
    cache.close()


def test_only_an_empty_cache_is_restored(tmp_path: Path) -> None:
    saved_cache(tmp_path, A)
    cache = new_cache()
    run(cache, B)
    with pytest.raises(ValueError, match="has content"):
        restore_cache(cache, "me", tmp_path)


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = new_cache()
    run(cache, A)
    page_bytes = FakeStore.page_bytes
    for free, fits in (
        (saved.SPARE_DISK_BYTES + 3 * page_bytes - 1, False),
        (saved.SPARE_DISK_BYTES + 3 * page_bytes, True),
    ):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        notice = save_cache(cache, "me", tmp_path)
        assert (notice == "") == fits
        assert len(list(tmp_path.iterdir())) == fits
        if not fits:
            assert notice.endswith(
                "it needs 6.14 kB, but only 268 MB of disk space is free. The chats will be read again."
            )


def test_closing_never_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = new_cache()
    run(cache, A)
    (tmp_path / "file").write_text("in the way")
    assert save_cache(cache, "me", tmp_path / "file").startswith("The cache of your chats was not saved (")

    def refuse(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "replace", refuse)  # as Windows does while another program has the file open
    assert "not saved (Permission denied)" in save_cache(cache, "me", tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_an_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = saved_cache(tmp_path, A)
    file.unlink()
    file.mkdir()
    assert "cannot be read (" in restore_cache(new_cache(), "me", tmp_path)


def test_the_file_stays_within_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved, "FOLDER_BYTES", 4 * FakeStore.page_bytes)
    saved_cache(tmp_path, A, B)
    monkeypatch.undo()
    cache = new_cache()
    restore_cache(cache, "me", tmp_path)
    assert (run(cache, B), run(cache, A)) == (len(B) - 1, P)
    cache.close()


def test_the_folder_stays_within_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = []
    for number in range(4):
        others.append(tmp_path / f"{number}{SUFFIX}")
        others[-1].write_bytes(bytes(10_000))
        os.utime(others[-1], (NOW + number, NOW + number))
    parts = [tmp_path / f"{name}{PART_SUFFIX}" for name in ("being written", "killed")]
    for part in parts:
        part.write_bytes(bytes(10_000))
    os.utime(parts[1], (NOW, NOW))
    (tmp_path / "of somebody else").write_bytes(bytes(10**6))
    cache = new_cache()
    run(cache, A)
    monkeypatch.setattr(saved, "FOLDER_BYTES", 35_000)
    assert save_cache(cache, "me", tmp_path) == ""
    (mine,) = [each for each in tmp_path.iterdir() if each not in [*others, *parts] and each.suffix == SUFFIX]
    left = [other for other in others if other.exists()]
    assert left == others[4 - (35_000 - mine.stat().st_size) // 10_000 :]
    assert [part.exists() for part in parts] == [True, False]
    assert (tmp_path / "of somebody else").exists()


def test_restoring_counts_as_use(tmp_path: Path) -> None:
    file = saved_cache(tmp_path, A)
    os.utime(file, (NOW, NOW))
    cache = new_cache()
    restore_cache(cache, "me", tmp_path)
    assert time.time() - file.stat().st_mtime < 60
    cache.close()


def test_a_fingerprint_changes_with_the_files(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", TINY, "Q8_0")
    folder = write_folder(tmp_path / "m")
    seen = {fingerprint(path), fingerprint(folder)}
    assert fingerprint(str(path)) in seen
    assert len(seen) == 2
    for model, file in (
        (path, path),
        (folder, folder / "config.json"),
        (folder, next(folder.glob("*.safetensors"))),
    ):
        facts, content = file.stat(), bytearray(file.read_bytes())
        content[200] ^= 1
        file.write_bytes(content)
        os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        assert fingerprint(model) not in seen  # other content
        seen.add(fingerprint(model))
        os.utime(file, (LATER, LATER))
        assert fingerprint(model) not in seen  # another time
        seen.add(fingerprint(model))
        with file.open("ab") as longer:
            longer.write(b" ")
        os.utime(file, (LATER, LATER))
        assert fingerprint(model) not in seen  # another size
        seen.add(fingerprint(model))
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    shutil.move(path, moved / "m.gguf")
    assert fingerprint(moved / "m.gguf") in seen


def test_every_part_of_a_split_model_counts(tmp_path: Path) -> None:
    parts = [tmp_path / f"m-0000{number}-of-00002.gguf" for number in (1, 2)]
    for part in parts:
        part.write_bytes(b"GGUF")
    before = fingerprint(parts[0])
    assert fingerprint(parts[1]) == before
    parts[1].write_bytes(b"GGUG")
    assert fingerprint(parts[0]) != before
    parts[1].unlink()
    assert fingerprint(parts[0]) == ""


def test_without_a_fingerprint_nothing_is_saved(tmp_path: Path) -> None:
    assert fingerprint(tmp_path / "nothing.gguf") == ""
    saved_cache(tmp_path / "other", A)
    cache = new_cache()
    run(cache, A)
    assert save_cache(cache, "", tmp_path / "mine") == ""
    assert not (tmp_path / "mine").exists()
    assert restore_cache(new_cache(), "", tmp_path / "other") == ""


# -- states of recurrent layers


def recurrent_cache(states: int = 12, context: int = 1024) -> PagedCache:
    model: Any = FakeModel(states=states)
    cache = PagedCache(model, CacheSettings(context_length=context))
    cache.rows = P  # so that there are states at the ends of pages
    return cache


def test_states_come_back_with_their_pages(tmp_path: Path) -> None:
    """The fake notices a state that is read but was not written, or is another text's."""
    cache = recurrent_cache()
    for ids in (A, B):
        run(cache, ids)
    assert save_cache(cache, "me", tmp_path) == ""
    cache.close()
    cache = recurrent_cache()
    assert restore_cache(cache, "me", tmp_path) == ""
    cache.table.check()
    assert run(cache, [*A, 5]) == len(A)
    assert run(cache, [*B, 5]) == len(B)
    assert run(cache, [*A[:300], 1, 2, 3]) == P  # the state at the end of the first page
    cache.close()


def test_a_cache_of_fewer_states_takes_the_latest(tmp_path: Path) -> None:
    cache = recurrent_cache()
    for ids in (A, B):
        run(cache, ids)
    save_cache(cache, "me", tmp_path)
    cache.close()
    cache = recurrent_cache(states=3)
    assert restore_cache(cache, "me", tmp_path) == ""
    cache.table.check()
    assert run(cache, [*B, 5]) == len(B)
    cache.close()


def test_a_damaged_state_is_not_used(tmp_path: Path) -> None:
    """Its text is read again from the state before it."""
    cache = recurrent_cache()
    run(cache, A)
    save_cache(cache, "me", tmp_path)
    cache.close()
    (file,) = tmp_path.iterdir()
    size = 64  # of the fake's state; the latest one is the first of them
    content = bytearray(file.read_bytes())
    count = sum(1 for page in cache.table.pool.pages for _ in page.states)
    content[-count * size] ^= 1
    file.write_bytes(content)
    cache = recurrent_cache()
    assert restore_cache(cache, "me", tmp_path) == ""
    cache.table.check()
    assert run(cache, [*A, 5]) < len(A)
    cache.close()


def test_states_of_another_number_of_layers_are_left_aside(tmp_path: Path) -> None:
    cache = recurrent_cache()
    run(cache, A)
    save_cache(cache, "me", tmp_path)
    cache.close()
    cache = new_cache()
    assert restore_cache(cache, "me", tmp_path) == ""
    assert run(cache, A) == 0
    cache.close()


@pytest.mark.parametrize(
    "name", ["LFM2", "Mamba-2", "Qwen 3.5", pytest.param("DeepSeek V4", marks=pytest.mark.slow)]
)
def test_a_real_model_goes_on_from_its_saved_states(tmp_path: Path, name: str) -> None:
    """Bit for bit, in a cache and a model that are new."""
    from engine.backends.cpu.backend import CpuBackend
    from tests.engine.models.architectures import write_checkpoint
    from tests.engine.models.cases.table import BY_NAME
    from tests.engine.models.oracle import load

    folder = write_checkpoint(BY_NAME[name], tmp_path / "model")
    text = np.random.default_rng(5).integers(3, 307, P + 50).tolist()
    more, found = [7, 8, 9], list[np.ndarray[Any, Any]]()
    for restored in (False, True):
        model = load(folder, CpuBackend(threads=1))
        cache = PagedCache(model, CacheSettings(context_length=512))
        if restored:
            assert restore_cache(cache, "me", tmp_path / "saved") == ""
        with cache.open([*text, *more]) as lease:
            assert lease.length == (len(text) if restored else 0)
            if not restored:
                cache.run(lease, text)
                lease.keep_state()
            found.append(cache.run(lease, more, len(more)).copy())
        cache.table.check()
        assert save_cache(cache, "me", tmp_path / "saved") == ""
        cache.close()
        model.close()
    np.testing.assert_array_equal(found[0], found[1])
