"""Matrices are read and packed in pieces, by several threads at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from engine.backends.packing import pieces
from engine.backends.packing.pieces import Bytes, packed_pieces
from engine.errors import BadCheckpoint
from engine.weights.packed.grouped import Recent

ROWS, STEP = 50, 8


@dataclass
class Numbered:
    """A `RawTensor` (rows, 4) of bytes whose rows are their numbers; `spoiled` cannot be read."""

    first: int = 0
    rows_left: int = ROWS
    spoiled: int = -1
    readers: set[int] = field(default_factory=set)
    type: str = "Q"
    name: str = "w"

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.rows_left, 4)

    @property
    def data(self) -> Bytes:
        self.readers.add(threading.get_ident())
        numbers = np.arange(self.first, self.first + self.rows_left, dtype=np.uint8)
        if self.spoiled in numbers:
            raise BadCheckpoint("The file ends within w.")
        return np.repeat(numbers, 4)

    def rows(self, start: int, stop: int) -> Any:
        return Numbered(self.first + start, stop - start, self.spoiled, self.readers)


def pack(first: int, count: int, raw: Bytes) -> tuple[int, int, npt.NDArray[np.uint8]]:
    return first, count, raw.reshape(count, 4)[:, 0]


def test_pieces_come_in_order_and_are_read_by_the_threads_that_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "_PACKERS", 3)
    tensor: Any = Numbered()
    found = list(packed_pieces(tensor, STEP, ("Q",), pack))
    assert [(first, count) for first, count, _ in found] == [(8 * i, 8) for i in range(6)] + [(48, 2)]
    assert np.array_equal(np.concatenate([each for _, _, each in found]), np.arange(ROWS))
    assert threading.get_ident() not in tensor.readers


def test_a_matrix_of_one_piece_is_packed_by_the_caller() -> None:
    tensor: Any = Numbered()
    ((first, count, numbers),) = packed_pieces(tensor, ROWS, ("Q",), pack)
    assert (first, count, numbers.tolist()) == (0, ROWS, list(range(ROWS)))
    assert tensor.readers == {threading.get_ident()}


def test_what_cannot_be_read_is_said_to_the_caller() -> None:
    tensor: Any = Numbered(spoiled=20)
    with pytest.raises(BadCheckpoint, match="The file ends within w"):
        list(packed_pieces(tensor, STEP, ("Q",), pack))


def test_what_several_threads_ask_for_is_read_once() -> None:
    recent, reads, together = Recent(), list[int](), threading.Barrier(4)
    begun = threading.Event()

    def make() -> str:
        reads.append(1)
        begun.wait(0.2)  # the others ask meanwhile
        return "read"

    def ask() -> Any:
        together.wait()
        return recent.get("matrix", "scales", make)

    with ThreadPoolExecutor(4) as pool:
        assert [each.result() for each in [pool.submit(ask) for _ in range(4)]] == ["read"] * 4
    assert len(reads) == 1


def test_what_is_kept_may_be_made_from_what_is_kept() -> None:
    recent = Recent()

    def ask() -> Any:
        return recent.get("matrix", "both", lambda: recent.get("matrix", "one", lambda: "read") + " twice")

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(ask).result(10) == "read twice"
