"""The system's dictionaries by Enchant; where it is not installed there is none."""

from __future__ import annotations

import ctypes
import functools
from types import SimpleNamespace
from typing import Any

import pytest

from desktop.services.composer import enchant
from desktop.services.composer.enchant import load_enchant

FILES = enchant.FILES


def test_without_the_library_there_is_no_dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def refuse(name: str) -> ctypes.CDLL:
        asked.append(name)
        raise OSError("not here")

    monkeypatch.setattr(enchant, "FILES", FILES)
    assert load_enchant(refuse) is None
    assert asked == list(FILES)


def test_a_library_of_another_version_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enchant, "FILES", FILES[:1])
    assert load_enchant(lambda name: SimpleNamespace()) is None  # it has none of the functions


class FakeLibrary:
    """The functions of the library over one dictionary, of British English; it notes what is freed."""

    def __init__(self) -> None:
        self.words, self.freed = {b"hello"}, list[object]()
        self.lists: list[object] = []
        for name in dir(self):
            if name.startswith(("broker_", "dict_")):
                setattr(self, f"enchant_{name}", functools.partial(getattr(self, name)))

    def broker_init(self) -> int:
        return 1

    def broker_free(self, broker: int) -> None:
        self.freed.append(broker)

    def broker_list_dicts(self, broker: int, listener: Any, _data: None) -> None:
        for tag in (b"en_GB", b"de_DE", b"en_GB"):
            listener(tag, b"hunspell", b"Hunspell", b"", None)

    def broker_request_dict(self, broker: int, tag: bytes) -> int | None:
        return 7 if tag == b"en_GB" else None

    def broker_free_dict(self, broker: int, handle: int) -> None:
        self.freed.append((broker, handle))

    def dict_check(self, handle: int, word: bytes, size: int) -> int:
        assert (handle, size) == (7, len(word))
        return -1 if word == b"!" else int(word not in self.words)

    def dict_suggest(self, handle: int, word: bytes, size: int, count: Any) -> Any:
        found = sorted(each for each in self.words if each[:2] == word[:size][:2])
        count._obj.value = len(found)
        self.lists.append((ctypes.c_char_p * len(found))(*found) if found else None)
        return self.lists[-1]

    def dict_free_string_list(self, handle: int, strings: object) -> None:
        self.freed.append(strings)

    def dict_add(self, handle: int, word: bytes, size: int) -> None:
        self.words.add(word[:size])


def test_a_dictionary_of_the_library_is_used_and_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enchant, "FILES", FILES)
    fake = FakeLibrary()
    library = load_enchant(lambda name: fake)
    assert library is not None
    assert fake.enchant_dict_check.argtypes[0] is ctypes.c_void_p  # handles are longer than an int
    assert library.languages() == ("de_DE", "en_GB")
    assert library.open("xx_XX") is None
    dictionary = library.open("en_GB")
    assert dictionary is not None
    assert dictionary.language == "en_GB"
    assert [dictionary.check(word) for word in ("hello", "helo", "!")] == [True, False, True]
    assert (dictionary.suggest("helo"), dictionary.suggest("xyz")) == (["hello"], [])
    assert fake.freed == fake.lists[:1]
    dictionary.add("hélas")
    assert dictionary.check("hélas")
    library.close()
    assert fake.freed[1:] == [(1, 7), 1]


def test_words_are_checked_suggested_and_kept(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(enchant, "FILES", FILES)
    library = load_enchant()
    if library is None:
        pytest.skip("needs Enchant (Debian: libenchant-2-2)")
    try:
        english = next((tag for tag in library.languages() if tag.startswith("en")), "")
        dictionary = library.open(english) if english else None
        if dictionary is None:
            pytest.skip("needs an English dictionary (Debian: hunspell-en-us)")
        assert (dictionary.check("hello"), dictionary.check("helo")) == (True, False)
        assert "hello" in dictionary.suggest("helo")
        dictionary.add("inglenookery")
        assert dictionary.check("inglenookery")
        assert library.open("xx_XX") is None
    finally:
        library.close()
    assert capfd.readouterr().err == ""  # Enchant warns of a dictionary that is not freed
