"""The file of cached pages: written whole or not at all, a safetensors file, and nothing damaged is ever
believed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core import PAGE_TOKENS as P
from engine.kv_cache import disk
from engine.kv_cache.disk import NO_SAVED_STATES, Bytes, PageFile, SavedStates, Unusable, write_pages
from engine.kv_cache.prefix_index import Kept, PageEntry

PAGE_BYTES = 96
ROOT = bytes(range(16))
KEPT = [
    Kept(4, -1, PageEntry((7, 8, 2**31 - 1), 1)),
    Kept(2, -1, PageEntry(tuple(range(P)), -1, ROOT)),
    Kept(9, -1, PageEntry((5,), -1, ROOT)),
]


def content(page: int) -> Bytes:
    return np.random.default_rng(page).integers(0, 256, PAGE_BYTES, np.uint8)


def reader(kept: Kept) -> Bytes:
    return content(kept.page)


def write(path: Path, kept: Sequence[Kept] = KEPT) -> Path:
    write_pages(path, "me", kept, PAGE_BYTES, reader, lambda: None, STATES)
    return path


STATE_BYTES = 24


def state(which: int) -> Bytes:
    return np.random.default_rng(which + 50).integers(0, 256, STATE_BYTES, np.uint8)


STATES = SavedStates(STATE_BYTES, [(2, 256), (0, 7)], state)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("disk") / "good.safetensors")


def test_what_was_written_is_read(good: Path) -> None:
    file = PageFile(good, "me", PAGE_BYTES, STATE_BYTES)
    assert file.entries == [kept.entry for kept in KEPT]
    for number in (2, 0, 1, 0):
        read = file.read(number)
        assert read is not None
        np.testing.assert_array_equal(read, content(KEPT[number].page))
    assert file.states == STATES.places
    for which in (1, 0, 1):
        np.testing.assert_array_equal(file.read_state(which), state(which))
    file.close()
    assert file.read(0) is None
    assert file.read_state(0) is None
    assert os.listdir(good.parent) == [good.name]


def test_it_is_a_safetensors_file(good: Path) -> None:
    from safetensors.numpy import load_file

    tensors = load_file(good)
    assert {name: tensor.shape for name, tensor in tensors.items()} == {
        "ids": (3, P), "lengths": (3,), "parents": (3,), "roots": (3, 16), "checks": (3,),
        "state_pages": (2,), "state_places": (2,), "state_checks": (2,), "pages": (3, PAGE_BYTES),
        "states": (2, STATE_BYTES),
    }  # fmt: skip
    np.testing.assert_array_equal(tensors["states"], [state(0), state(1)])
    np.testing.assert_array_equal(tensors["pages"], [content(kept.page) for kept in KEPT])


def test_the_tables_begin_at_a_multiple_of_8_whatever_the_header_says(tmp_path: Path) -> None:
    """So that they can be mapped into memory as the format recommends."""
    for length in range(8):
        write_pages(tmp_path / "f", "m" * length, KEPT, PAGE_BYTES, reader, lambda: None)
        header = int.from_bytes((tmp_path / "f").read_bytes()[:8], "little")
        assert header % 8 == 0


@pytest.mark.parametrize("lost", [[4], [2], [9], [4, 2, 9]])
@pytest.mark.parametrize("states", [STATES, NO_SAVED_STATES])
@pytest.mark.parametrize("short", [None, np.zeros(PAGE_BYTES - 1, np.uint8)])
def test_lost_pages_are_marked(
    tmp_path: Path, lost: list[int], states: SavedStates, short: Bytes | None
) -> None:
    path = tmp_path / "f"

    def read(kept: Kept) -> Bytes | None:
        return short if kept.page in lost else content(kept.page)

    write_pages(path, "me", KEPT, PAGE_BYTES, read, lambda: None, states)
    file = PageFile(path, "me", PAGE_BYTES, states.size)
    assert file.entries == [None if kept.page in lost else kept.entry for kept in KEPT]
    for number, kept in enumerate(KEPT):
        assert kept.page in lost or file.read(number) is not None
    file.close()


def test_no_pages_at_all(tmp_path: Path) -> None:
    file = PageFile(write(tmp_path / "f", []), "me", PAGE_BYTES, STATE_BYTES)
    assert file.entries == []
    file.close()


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = write(tmp_path / "f")
    before = path.read_bytes()

    def full(kept: Kept) -> Bytes:
        if kept is KEPT[1]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return content(kept.page)

    with pytest.raises(OSError, match="No space"):
        write_pages(path, "me", KEPT, PAGE_BYTES, full, lambda: None)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["f"]


def test_the_old_file_is_closed_before_it_is_replaced(tmp_path: Path) -> None:
    path = write(tmp_path / "f")
    old, order = PageFile(path, "me", PAGE_BYTES, STATE_BYTES), []

    def read(kept: Kept) -> Bytes | None:
        order.append("read")
        return old.read(KEPT.index(kept))

    write_pages(path, "me", KEPT, PAGE_BYTES, read, lambda: (order.append("closed"), old.close())[1])
    assert order == ["read"] * 3 + ["closed"]
    new = PageFile(path, "me", PAGE_BYTES)
    assert [new.read(number) is not None for number in range(3)] == [True] * 3
    new.close()


def test_foreign_files(tmp_path: Path, good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unusable, match="another model, cache type or version"):
        PageFile(good, "you", PAGE_BYTES, STATE_BYTES)
    with pytest.raises(Unusable, match="header"):
        PageFile(good, "me", PAGE_BYTES + 1, STATE_BYTES)
    for number, text in enumerate(
        (b"", b"x" * 300, b"\x02" + bytes(7) + b"{}", b"\x02" + bytes(7) + b"[]", b"\xff" * 8 + b"{}" * 500)
    ):
        path = tmp_path / str(number)
        path.write_bytes(text)
        with pytest.raises(Unusable, match="not a file of cached pages"):
            PageFile(path, "me", PAGE_BYTES, STATE_BYTES)
    monkeypatch.setattr(disk, "VERSION", "3")
    with pytest.raises(Unusable, match="version"):
        PageFile(good, "me", PAGE_BYTES, STATE_BYTES)
    with pytest.raises(FileNotFoundError):
        PageFile(tmp_path / "nothing", "me", PAGE_BYTES, STATE_BYTES)


@pytest.mark.parametrize("pages", [10**15, -1, 2.0, True])
def test_a_header_of_more_pages_than_a_file_of_its_size_can_hold_is_damaged(
    tmp_path: Path, pages: int
) -> None:
    """Nothing is read or allocated for them."""
    path = tmp_path / "f"
    path.write_bytes(disk._header((pages, 0), (PAGE_BYTES, STATE_BYTES), "me", "0" * 32))
    with pytest.raises(Unusable, match="header is damaged"):
        PageFile(path, "me", PAGE_BYTES, STATE_BYTES)


@pytest.mark.parametrize("end", [-1, -STATE_BYTES, 1])
def test_a_file_that_is_too_short_or_too_long_is_damaged(tmp_path: Path, good: Path, end: int) -> None:
    path, whole = tmp_path / "f", good.read_bytes()
    path.write_bytes(whole[:end] if end < 0 else whole + bytes(end))
    with pytest.raises(Unusable, match="it is damaged"):
        PageFile(path, "me", PAGE_BYTES, STATE_BYTES)


def opened(path: Path) -> list[tuple[object, bytes | None]] | None:
    """Everything the file tells, None when it is refused."""
    try:
        file = PageFile(path, "me", PAGE_BYTES, STATE_BYTES)
    except Unusable:
        return None
    pages = [file.read(number) for number in range(len(file.entries))]
    states = [file.read_state(which) for which in range(len(file.states))]
    file.close()
    return [
        (entry, None if content is None else content.tobytes())
        for entry, content in zip([*file.entries, *file.states], [*pages, *states], strict=True)
    ]


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=300)
def test_damage_is_always_noticed(
    tmp_path_factory: pytest.TempPathFactory, good: Path, data: st.DataObject
) -> None:
    whole, path = good.read_bytes(), tmp_path_factory.getbasetemp() / "damaged"
    states_at = len(whole) - 2 * STATE_BYTES
    pages_at = states_at - 3 * PAGE_BYTES
    kind = data.draw(st.sampled_from(["flip head", "flip pages", "cut", "longer"]))
    if kind.startswith("flip"):
        low, high = (0, pages_at - 1) if kind == "flip head" else (pages_at, len(whole) - 1)
        at = data.draw(st.integers(low, high))
        changed = bytearray(whole)
        changed[at] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(changed)
        reported = opened(path)
        if kind == "flip head":
            assert reported is None
        else:
            hit = (at - pages_at) // PAGE_BYTES if at < states_at else 3 + (at - states_at) // STATE_BYTES
            expected = [
                *((kept.entry, content(kept.page).tobytes()) for kept in KEPT),
                *((place, state(which).tobytes()) for which, place in enumerate(STATES.places)),
            ]
            assert reported == [
                (each, None if number == hit else found) for number, (each, found) in enumerate(expected)
            ]
        return
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))] if kind == "cut" else whole + b"x")
    assert opened(path) is None


def test_a_file_that_shrinks_while_it_is_open(tmp_path: Path) -> None:
    path, size = tmp_path / "f", 1 << 20  # more than any buffer of the system's library
    write_pages(path, "me", KEPT, size, lambda _: np.ones(size, np.uint8), lambda: None)
    file = PageFile(path, "me", size)
    with path.open("r+b") as other:
        other.truncate(path.stat().st_size - size - 1)
    assert [file.read(number) is not None for number in range(3)] == [True, False, False]
    file.close()
