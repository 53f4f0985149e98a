"""The ranking of the command palette: the best matches, the marked letters, and ten thousand titles within a
frame.
"""

from __future__ import annotations

import random

import pytest

from desktop.items.commands.palette import Entry, EntrySource, fuzzy, narrowed, spans_of
from desktop.items.commands.synonyms import SETTING_WORDS
from desktop.settings import SAVED_SETTINGS
from desktop.store.search.folding import fold
from tests.work import calls_in


def source(*titles: str, words: tuple[str, ...] = ()) -> EntrySource:
    return EntrySource(titles, lambda number: Entry("chat", f"chat:{number}", titles[number]), words)


def best(found: EntrySource, query: str, limit: int = 10) -> list[str]:
    return [match.entry.title for match in found.find(query, limit)]


def test_better_matches_come_first() -> None:
    found = source("A trip to Spain", "Spanish verbs", "Spain", "Despair", "In Spain")
    assert best(found, "spain") == ["Spain", "In Spain", "A trip to Spain"]
    assert best(found, "spa") == ["Spain", "Spanish verbs", "In Spain", "A trip to Spain", "Despair"]
    assert best(found, "zzz") == []


@pytest.mark.parametrize(
    ("query", "title"),
    [
        ("nc", "New chat"),
        ("tmp", "Temperature"),
        ("kbs", "Keyboard shortcuts"),
        ("topk", "Top K"),
        ("AGE cote", "Coté d'âge"),
    ],
)
def test_letters_at_the_starts_of_words_and_accents_are_enough(query, title) -> None:
    found = source("Something else", "Another one entirely", title)
    assert best(found, query)[:1] == [title]


def test_scattered_letters_find_nothing() -> None:
    assert fuzzy(["aoe"], "i bake bread in one large oven") is None
    assert best(source("Lighthouse keeper", "The hub"), "hue") == []


def test_marks_are_places_in_the_original_title() -> None:
    (match,) = source("Große Äpfel und Birnen").find("apf", 5)
    assert [match.entry.title[start:end] for start, end in match.spans] == ["Äpf"]
    (match,) = source("New chat").find("nc", 5)
    assert [match.entry.title[start:end] for start, end in match.spans] == ["N", "c"]
    assert spans_of("ABC", [0, 1, 2]) == ((0, 3),)


def test_other_words_count_less_than_the_title() -> None:
    found = source("Seed", "Random walks", "Temperature", words=("random reproducible", "", "randomness"))
    assert best(found, "random") == ["Random walks"]
    assert best(found, "reproducible") == ["Seed"]
    assert best(found, "seed random") == ["Seed"]


def test_signs_narrow_the_search() -> None:
    assert narrowed("> new ch") == ("action", "new ch")
    assert narrowed("  @spain") == ("chat", "spain")
    assert narrowed("#") == ("setting", "")
    assert narrowed("a > b") == ("", "a > b")


def test_a_long_source_finds_what_a_short_one_does() -> None:
    others = [f"Chat number {number}" for number in range(3000)]
    titles = [*others[:1500], "Lighthouse in the north", "A north light", "Kernel bench", *others[1500:]]
    found = source(*titles)
    assert best(found, "light") == ["Lighthouse in the north", "A north light"]
    assert best(found, "north light") == ["A north light", "Lighthouse in the north"]
    assert best(found, "kb") == ["Kernel bench"]
    assert best(found, "number 2999") == ["Chat number 2999"]
    assert best(found, "chat number 7", 1) == ["Chat number 7"]
    assert best(found, "c", 3) == ["Chat number 0", "Chat number 1", "Chat number 2"]
    assert best(found, "", 1) == ["Chat number 0"]


def test_few_of_ten_thousand_titles_are_matched_closely() -> None:
    draw = random.Random(7)
    words = [
        "plan",
        "holiday",
        "recipe",
        "python",
        "error",
        "the",
        "kernels",
        "garden",
        "letter",
        "budget",
        "Füße",
        "train",
        "写作",
        "boat",
    ]
    titles = [" ".join(draw.choice(words) for _ in range(draw.randint(2, 8))) for _ in range(10_000)]
    found = source(*titles)
    assert calls_in(lambda: found.find("e", 6)) < 10 * len(titles)
    for query in (
        "ho",
        "holiday",
        "hp",
        "pyer",
        "python error",
        "xyzzy",
        "the plan boat",
        "lght",
        "zz",
        "aeiou",
        "e" * 30,
    ):
        assert calls_in(lambda query=query: found.find(query, 6)) < 2 * len(titles), query


def test_every_synonym_belongs_to_something() -> None:
    fields = {f"{cls.__name__}.{name}" for cls in SAVED_SETTINGS for name in cls().to_json()}
    assert set(SETTING_WORDS) <= fields
    assert fold("".join(SETTING_WORDS.values())) == "".join(SETTING_WORDS.values())
