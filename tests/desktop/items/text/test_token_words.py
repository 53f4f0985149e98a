"""Tokens as text, and the start of a reply that continues with another token."""

from __future__ import annotations

import pytest

from desktop.items.text.token_words import beginning, percent, visible
from desktop.store.conversations.token_trace import TokenTrace
from engine.core import Alternative, TokenInfo


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", "(part of a character)"), (" the", "␣the"), ("  ", "␣␣"), ("a b ", "a b␣"),
        ("\n\n", "\\n\\n"), ("\t", "\\t"), ("\x07", "\\x07"),
        ("\u200b", "\\u200b"), ("漢🎉", "漢🎉"), ("\\xf0\\x9f", "\\xf0\\x9f"),
    ],
)  # fmt: skip
def test_visible(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize(
    ("share", "shown"),
    [(0, "0.0 %"), (1, "100.0 %"), (0.123456, "12.3 %"), (0.0004, "0.0400 %"), (1e-9, "< 0.0001 %")],
)
def test_percent(share: float, shown: str) -> None:
    assert percent(share) == shown


def other(id: int, text: str) -> Alternative:
    return Alternative(id, text, 0.1, 0.1)


def trace(*tokens: tuple[int, str, tuple[Alternative, ...]]) -> TokenTrace:
    made = TokenTrace("m")
    made.extend(TokenInfo(id, text, 0.5, 0.5, alternatives=others) for id, text, others in tokens)
    return made


def test_the_text_and_ids_before_and_the_other_token() -> None:
    found = trace((1, "The", ()), (2, " cat", (other(2, " cat"), other(7, " dog"))), (3, " sat", ()))
    assert beginning(found, 1, other(7, " dog")) == ("The dog", (1, 7))
    assert beginning(found, 0, other(9, "A")) == ("A", (9,))


def test_parts_of_a_character_have_no_text_yet() -> None:
    """🎉 is f0 9f 8e 89: three tokens, of which the last has the text."""
    first, second = other(1, "\\xf0\\x9f"), other(2, "\\x8e")
    found = trace(
        (1, "", (first,)),
        (2, "", (second,)),
        (3, "🎉", (other(3, "\\x89"), other(4, "\\x8a"), other(5, "\\x8e"))),
    )
    assert beginning(found, 0, first) == ("", (1,))
    assert beginning(found, 1, second) == ("", (1, 2))
    assert beginning(found, 2, other(4, "\\x8a")) == ("🎊", (1, 2, 4))
    assert beginning(found, 2, other(8, "\\x8a \\xc3")) == ("🎊 ", (1, 2, 8))


def test_the_first_word_lacks_its_space() -> None:
    found = trace(
        (1, "Hello", (other(1, " Hello"), other(2, " Hi"))), (3, " you", (other(3, " you"), other(4, " all")))
    )
    assert beginning(found, 0, other(2, " Hi")) == ("Hi", (2,))
    assert beginning(found, 1, other(4, " all")) == ("Hello all", (1, 4))


def test_after_text_without_tokens_only_the_text_is_known() -> None:
    found = TokenTrace("m").covering("typed")
    found.append(TokenInfo(3, " on", 0.5, 0.5, alternatives=(other(4, " off"),)))
    assert beginning(found, 1, other(4, " off")) == ("typed off", ())
