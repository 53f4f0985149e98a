"""The search among emoji: by the words of their names, in the user's language and in English."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from desktop.items.text.emoji import all_emoji, matching
from engine.words import FOLDER, set_language


@pytest.fixture(autouse=True)
def _english_after() -> Iterator[None]:
    yield
    set_language("en")


def found(query: str) -> list[str]:
    return [each.text for each in matching(query, ())]


def test_words_of_a_name_find_it_by_their_beginnings_in_any_order() -> None:
    assert found("thumbs up")[0] == "👍"
    assert "👍" in found("up thu")
    assert "👍" not in found("humbs")
    assert found("nothing is called so") == []


def test_names_that_begin_with_the_query_come_first() -> None:
    names = [each.name for each in matching("red", ())]
    begins = [name.startswith("red") for name in names]
    assert begins == sorted(begins, reverse=True)
    assert any(begins)
    assert not all(begins)


@pytest.mark.parametrize(
    ("code", "query", "text"),
    [
        ("de", "gesicht freudentränen", "😂"), ("de", "FREUDENTRANEN", "😂"), ("es", "llorando risa", "😂"),
        ("zh_CN", "笑哭", "😂"), ("ja", "嬉し泣き", "😂"), ("ar", "دموع فرح", "😂"), ("de", "joy", "😂"),
    ],
)  # fmt: skip
def test_names_of_other_languages_and_english_ones_are_found(code: str, query: str, text: str) -> None:
    set_language(code)
    assert text in found(query)


def test_without_a_query_the_last_ones_come_first_and_none_is_missing() -> None:
    listed = [each.text for each in matching("", ("👍", "🦊"))]
    assert listed[:2] == ["👍", "🦊"]
    assert len(listed) == len(set(listed)) == len(all_emoji()) > 1500


@pytest.mark.parametrize("code", sorted(path.name for path in FOLDER.iterdir() if path.is_dir()))
def test_every_language_has_names_of_its_own(code: str) -> None:
    english = [each.name for each in all_emoji()]
    set_language(code)
    same = sum(one.name == other for one, other in zip(all_emoji(), english, strict=True))
    assert same < len(english) / 20
