"""Tables of replacements, built by hand: what they replace, and which broken ones are refused."""

from __future__ import annotations

import numpy as np
import pytest

from engine.errors import BadCheckpoint
from engine.text.tokenizer.charsmap import Charsmap

UNITS, ROOT = 1024, 256
LEAF = 1 << 31


def table(
    keys: dict[str, int], texts: bytes, changes: dict[int, int] | None = None, *, far: bool = False
) -> bytes:
    """A double array (darts-clone): each key leads to an offset in `texts`. `changes` sets units last; `far`
    writes the first offset in the form for distant units.
    """
    units = np.zeros(UNITS, np.int64)
    units[0] = (ROOT >> 8 << 10 | 0x200) if far else ROOT << 10
    bases, free = {b"": ROOT}, 512
    for key, value in keys.items():
        data = key.encode()
        for end in range(1, len(data) + 1):
            place = bases[data[: end - 1]] ^ data[end - 1]
            if data[:end] not in bases:
                bases[data[:end]], free = free, free + 256
            units[place] = (place ^ bases[data[:end]]) << 10 | int(units[place]) & 0x100 | data[end - 1]
        units[place] |= 0x100
        units[bases[data]] = LEAF | value
    for place, unit in (changes or {}).items():
        units[place] = unit
    return (4 * UNITS).to_bytes(4, "little") + units.astype("<u4").tobytes() + texts


TEXTS = "é\0xyz\0\0".encode()


@pytest.mark.parametrize("far", [False, True])
def test_the_longest_match_is_replaced(far: bool) -> None:
    charsmap = Charsmap(table({"a": 0, "ab": 3}, TEXTS, far=far))
    charsmap.check()
    assert charsmap.normalize("a-ab-abb ü b") == "é-xyz-xyzb ü b"
    assert Charsmap(table({"a": 7}, TEXTS)).normalize("bab") == "bb"
    assert Charsmap(table({"a": 4}, TEXTS)).normalize("a") == "yz"


def test_kept_texts_are_not_replaced() -> None:
    assert Charsmap(table({"a": 0}, TEXTS), ["<a>", "<a>a", ""]).normalize("a<a>aa<a>") == "é<a>aé<a>"


@pytest.mark.parametrize(
    ("value", "texts", "changes"),
    [
        (1, TEXTS, {}),  # in the middle of a character
        (len(TEXTS), TEXTS, {}),
        (0, TEXTS[:-1] + b"x", {}),
        (0, b"\xff\0", {}),
        (0, TEXTS, {512: 0}),  # the place of the value has none
        (0, TEXTS, {700: UNITS << 10}),  # an offset outside
    ],
)
def test_broken_tables_are_refused(value: int, texts: bytes, changes: dict[int, int]) -> None:
    Charsmap(table({"a": 0}, TEXTS)).check()
    with pytest.raises(BadCheckpoint):
        Charsmap(table({"a": value}, texts, changes)).check()


@pytest.mark.parametrize(
    "data",
    [b"\0\0\0", table({}, TEXTS)[:4096], (1020).to_bytes(4, "little") + bytes(1100), b"\1" + bytes(9000)],
)
def test_no_tables_at_all_are_refused(data: bytes) -> None:
    with pytest.raises(BadCheckpoint):
        Charsmap(data)
