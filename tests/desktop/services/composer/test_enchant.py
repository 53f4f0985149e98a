"""The system's dictionaries by Enchant; where it is not installed there is none."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

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
