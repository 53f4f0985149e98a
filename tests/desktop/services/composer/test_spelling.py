"""Which dictionary is used, and what it is asked; it is loaded when there is text, and not before."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from desktop.services.composer.spelling import SpellingService, best_language
from desktop.settings import Behaviour
from tests.desktop.spelling import FakeEnchant


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (["de-AT", "en"], "de_DE"),
        (["en-GB"], "en_GB"),
        (["en"], "en_AU"),
        (["ja", "fr-FR"], "fr"),
        (["zh-Hans-CN"], ""),
        ([], ""),
    ],
)
def test_the_dictionary_that_fits_best(wanted: list[str], found: str) -> None:
    assert best_language(wanted, ("de_AT_frami", "de_DE", "en_AU", "en_GB", "fr")) == found


@pytest.fixture
def library() -> FakeEnchant:
    return FakeEnchant({"en_GB": {"peas", "are", "green"}, "ru_RU": {"горох"}})


@pytest.fixture
def spelling(harness, library, request):
    made = SpellingService(harness.session, harness, lambda: library)
    yield made
    assert made.close()
    assert library.closed == bool(library.opened)


def use(harness, spelling: SpellingService, language: str) -> None:
    harness.session.set_settings(
        replace(harness.session.settings(Behaviour), spelling=True, spelling_language=language)
    )
    spelling.begin()
    harness.qtbot.waitUntil(lambda: spelling.language == language)


def test_nothing_is_loaded_before_there_is_text(harness, spelling, library) -> None:
    harness.session.set_settings(replace(harness.session.settings(Behaviour), spelling_language="en_GB"))
    assert library.opened == []
    assert not spelling.begin()
    harness.qtbot.waitUntil(lambda: spelling.language == "en_GB")
    assert spelling.begin()
    assert spelling.languages == ("en_GB", "ru_RU")
    assert library.opened == ["en_GB"]


def test_the_library_is_opened_on_a_thread_of_its_own(harness, library) -> None:
    """Its parts come from the disk, which may take a second after the computer was switched on."""
    threads: list[int] = []

    def load() -> FakeEnchant:
        threads.append(threading.get_ident())
        return library

    spelling = SpellingService(harness.session, harness, load)
    use(harness, spelling, "en_GB")
    assert spelling.close()
    assert len(threads) == 1
    assert threads != [threading.get_ident()]
    assert library.closed


def test_a_word_is_looked_up_once(harness, spelling, library) -> None:
    use(harness, spelling, "en_GB")
    assert spelling.known("pees") is None
    assert not spelling.check("pees")
    assert spelling.known("pees") is False
    assert spelling.suggest("pees") == ["peas"]


def test_another_script_is_never_wrong(harness, spelling, library) -> None:
    use(harness, spelling, "en_GB")
    assert spelling.check("горхо")
    assert library.asked == []
    use(harness, spelling, "ru_RU")
    assert not spelling.check("горхо")
    assert spelling.check("pees")


def test_a_word_of_the_users_own_is_right_from_now_on(harness, spelling, library) -> None:
    use(harness, spelling, "en_GB")
    assert not spelling.check("mangetout")
    with harness.qtbot.waitSignal(spelling.changed):
        spelling.add("mangetout")
    assert spelling.known("mangetout")
    assert "mangetout" in library.words["en_GB"]


def test_it_can_be_switched_off_and_on(harness, spelling, library) -> None:
    use(harness, spelling, "en_GB")
    spelling.choose("")
    assert (spelling.language, harness.session.settings(Behaviour).spelling) == ("", False)
    assert harness.session.settings(Behaviour).spelling_language == "en_GB"
    spelling.choose("ru_RU")
    harness.qtbot.waitUntil(lambda: spelling.language == "ru_RU")


def test_a_language_without_a_dictionary_checks_nothing(harness, spelling, library) -> None:
    use(harness, spelling, "en_GB")
    spelling.choose("ja")
    harness.qtbot.waitUntil(lambda: not spelling._loading)
    assert spelling.language == ""
    assert spelling.check("pees")


def test_without_the_library_nothing_is_begun(harness) -> None:
    none = SpellingService(harness.session, harness, lambda: None)
    assert not none.begin()
    assert none.languages == ()
    assert none.close()
