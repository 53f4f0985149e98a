"""The passages of a long file that match a question."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from desktop.store.attachments.message_format import Attachment, join, split
from desktop.store.attachments.passages import LENGTH, further, fused, kept, matching, passages


@given(st.text(st.sampled_from("ab. \n。漢"), max_size=5000))
def test_passages_are_the_whole_text(text: str) -> None:
    found = passages(text)
    assert "".join(found) == text
    assert max(map(len, found)) <= LENGTH
    assert all(len(piece) > LENGTH // 2 for piece in found[:-1])


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ({"\n## ": 550, "\n\n": 700}, 551),
        ({"\n\ndef": 600, "\n\n ": 900}, 602),  # not inside a function
        ({"\n\n": 600, "\n": 900, ". ": 950}, 602),
        ({"\n": 600, ". ": 900}, 601),
        ({". ": 600, " ": 900}, 602),
        ({"。": 700, " ": 900}, 701),
        ({" ": 998}, 999),
        ({"\n\n": 300}, LENGTH),  # too short
        ({}, LENGTH),
    ],
)
def test_a_passage_ends_where_a_paragraph_or_else_a_smaller_part_does(
    ends: dict[str, int], expected: int
) -> None:
    text = "x" * 3000
    for sign, at in ends.items():
        text = text[:at] + sign + text[at + len(sign) :]
    assert len(passages(text)[0]) == expected


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What do cats eat?", [1, 3, 2, 0, 4]),  # the rarest words count most; then what stands beside
        ("EATING?", [1, 2, 0]),  # whatever the ending
        ("mice", [1, 2, 0]),
        ("Über", [2, 3, 1]),
        ("東京の天気", [4, 3]),
        ("here", [0, 1]),
        ("京", []),
        ("それ", []),  # one character in common is no word
        ("", []),
        ('?! "*', []),
        ('AND OR "cats', [3, 1, 4, 2, 0]),
    ],
)
def test_the_passages_that_have_the_words_of_a_question(question: str, expected: list[int]) -> None:
    pieces = [
        "Nothing is here.",
        "A cat eats mice. cats",
        "über den Wolken",
        "cats and cats and cats and dogs",
        "今日の東京は晴れ",
    ]
    assert matching(pieces, question) == expected


def test_what_is_left_of_a_file_says_where_something_is_missing() -> None:
    pieces = ["one\n", "two\n", "three\n", "four\n"]
    file = Attachment("a.txt", "".join(pieces))
    assert kept(file, pieces, [2, 0]) == Attachment("a.txt", "one\n\n[…]\nthree\n\n[…]", "2 of 4 passages")
    assert kept(file, pieces, [1]).text == "[…]\ntwo\n\n[…]"
    assert kept(file, pieces, range(4)) == Attachment("a.txt", "one\ntwo\nthree\nfour", "4 of 4 passages")
    assert kept(file, pieces, [3, 2]).text == "[…]\nthree\nfour"
    # it is read back from a message
    assert split(join([kept(file, pieces, [2])], "Why?"))[0][0][1].note == "1 of 4 passages"


def test_orders_are_fused_by_their_ranks() -> None:
    assert fused([7, 8, 9], [9, 7, 6]) == [7, 9, 8, 6]
    assert fused([1, 2], [2, 1]) == [1, 2]  # the first place counts as much in either
    pieces = ["a dog", "a cat", "felines", "a ship"]
    assert matching(pieces, "cat", (2, 1, 0, 3)) == [1, 2, 0, 3]
    assert matching(pieces, "?", (2, 1)) == [2, 1]


def test_where_something_is_missing_the_heading_or_function_of_what_follows_is_named() -> None:
    pieces = ["# One\n", "text\n", "more\n# Two\n", "end\n", "# Three\nlast"]
    file = Attachment("a.md", "".join(pieces))
    assert kept(file, pieces, [1, 3]).text == "[… One]\ntext\n\n[… Two]\nend\n\n[…]"
    assert kept(file, pieces, [0, 4]).text == "# One\n\n[…]\n# Three\nlast"
    paper = ["[Page 1]\nOne\n\n", "[Page 2]\ntwo\n", "more\n"]
    assert kept(Attachment("a.pdf", ""), paper, [1]).text == "[…]\n[Page 2]\ntwo\n\n[…]"
    assert kept(Attachment("a.pdf", ""), paper, [2]).text == "[… Page 2]\nmore"
    code = ["# no heading\nasync def run(x):\n", "    y\n", "class B:\n", "    z\n"]
    assert kept(Attachment("a.py", ""), code, [1, 3]).text == (
        "[… async def run(x):]\n    y\n\n[… class B:]\n    z"
    )
    assert kept(Attachment("a.txt", ""), ["# " + "x" * 200 + "\n", "y"], [1]).text == f"[… {'x' * 80}]\ny"


def numbered(count: int, words: dict[int, str]) -> tuple[list[str], Attachment]:
    """A file of `count` passages, some of which have words of their own; and these passages."""
    text = "".join(f"Part {n} {words.get(n, '')} {'filler ' * 130}\n\n" for n in range(count))
    return passages(text), Attachment("book.txt", text)


def test_a_later_question_gets_passages_that_are_not_known() -> None:
    pieces, book = numbered(12, {3: "boat", 5: "boat boat", 8: "boat", 9: "cabin"})
    (found,) = further((book,), "And the boat?", "", 2)
    assert found == kept(book, pieces, [5, 3])
    (found,) = further((book,), "And the boat?", f"He: {pieces[5].strip()}\nyes", 2)
    assert found == kept(book, pieces, [3, 8])
    assert further((book,), "And the cabin?", book.text, 2) == ()
    # words that most passages have say nothing, nor do those that none has
    assert further((book,), "filler thanks!", "", 5) == ()
    assert further((), "boat", "", 5) == ()


def test_several_files_take_turns() -> None:
    first, second = numbered(9, dict.fromkeys((1, 2), "boat")), numbered(9, dict.fromkeys((4, 6), "boat"))
    found = further((first[1], second[1]), "boat", "", 3)
    assert [each.note for each in found] == ["2 of 9 passages", "1 of 9 passages"]
    assert "Part 4" in found[1].text


def test_passages_for_a_later_question_are_found_by_meaning_unless_it_is_two_words() -> None:
    _, book = numbered(9, {})
    order = (7, 2, *(n for n in range(9) if n not in (2, 7)))
    (found,) = further((book,), "What of the ship?", "", 2, (order,))
    assert ("Part 7" in found.text, "Part 2" in found.text) == (True, True)
    assert further((book,), "Thank you!", "", 2, (order,)) == ()
