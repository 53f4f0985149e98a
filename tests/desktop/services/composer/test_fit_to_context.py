"""Messages shortened to what the context holds; a token is a word here."""

from __future__ import annotations

import pytest

from desktop.services.composer.fit_to_context import fitted, over_text, shortened, size_of
from desktop.services.session.pictures import sent
from desktop.store.attachments.message_format import Attachment, join
from engine.core import ChatRequest, Message, PromptSize


class Words:
    """A source whose context holds `context` words."""

    def __init__(self, context: int) -> None:
        self.context = context

    def size(self, request: ChatRequest) -> PromptSize:
        words = sum(len(message.content.split()) for message in request.messages)
        return PromptSize(words, self.context, 0)


@pytest.mark.parametrize(
    ("text", "context", "found"),
    [
        ("one two three four", 6, "one two three four"),
        ("one two three four", 4, "one two three"),
        ("one two\nthree four", 3, "one two"),
        ("a " + "b" * 40, 3, "a " + "b" * 22),  # a long word is cut inside
    ],
)
def test_a_message_is_cut_after_the_last_word_that_fits(text: str, context: int, found: str) -> None:
    request = ChatRequest((Message("system", "brief"), Message("user", text)))
    assert shortened(request)(Words(context)) == found


def test_the_longest_file_is_cut_first_and_between_lines() -> None:
    request = ChatRequest((Message("user", ""),))
    long, short = Attachment("long.txt", "one line\n" * 9), Attachment("short.txt", "two words")
    whole = fitted(request, (long, short), "Why?")(Words(100))
    assert whole == (long, short)
    words = Words(0).size
    context = words(ChatRequest((Message("user", sent("user", join(whole, "Why?")).content),))).prompt
    cut, same = fitted(request, (long, short), "Why?")(Words(context - 5))
    assert same == short
    assert cut.text.count("one line") in range(3, 9)
    assert fitted(request, (long,), "Why?")(Words(1))[0].text == "one line", "the shortest part of it"
    assert cut.text == long.text[: len(cut.text)]
    fits = sent("user", join((cut, same), "Why?")).content
    assert words(ChatRequest((Message("user", fits),))).prompt <= context - 5


def test_a_message_many_times_too_long_is_counted_in_part() -> None:
    request = ChatRequest((Message("user", "word " * 1000),))
    assert size_of(request)(Words(1000)) == PromptSize(1000, 1000, 0)
    size = size_of(request)(Words(10))
    assert (size.prompt, size.exact) == (1000, False)
    assert over_text(size) == "about 990 tokens"
    assert over_text(PromptSize(11, 10, 0)) == "1 token"


def test_the_last_message_of_the_user_is_measured_and_cut() -> None:
    """Also where the reply to it is begun already."""
    early, reply, begun = (
        Message("user", "one two"),
        Message("assistant", "three"),
        Message("assistant", "Well,"),
    )
    request = ChatRequest((early, reply, Message("user", "four five six"), begun), continue_last=True)
    assert shortened(request)(Words(6)) == "four five"
    long = ChatRequest((early, reply, Message("user", "word " * 1000), begun), continue_last=True)
    assert not size_of(long)(Words(10)).exact


def test_passages_are_kept_by_words_and_meaning_in_half_of_the_room() -> None:
    request = ChatRequest((Message("user", ""),))
    parts = [f"{name} {'filler ' * 120}\n\n" for name in ("zero", "one", "two", "three", "four")]
    files = (Attachment("short.txt", "tiny"), Attachment("long.txt", "".join(parts)))
    cut = fitted(request, files, "two", by_match=True, meaning=((), (4, 2, 0, 1, 3)))(Words(600))
    assert cut[0] == files[0]
    assert cut[1].note == "2 of 5 passages"
    assert "two " in cut[1].text
    assert "four " in cut[1].text
