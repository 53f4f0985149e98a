"""Which files of a chat a later question is asked about, and what of the chat the model reads anyway."""

from __future__ import annotations

import pytest

from desktop.services.composer.follow_ups import files_of, read_anyway
from desktop.store.attachments.message_format import Attachment, join
from desktop.store.attachments.picture_marks import mark_of
from desktop.store.attachments.whole_texts import packed

PART = join([Attachment("book.txt", "One", "1 of 9 passages")], "What?")
WHOLE = join([Attachment("list.txt", "rye, oats")], "And this?")


@pytest.mark.parametrize(
    ("texts", "kept", "found"),
    [
        (["no file", "Attached file: c.txt (no file)", WHOLE], [("c.txt", "c")], {"list.txt": "rye, oats"}),
        ([WHOLE, join([Attachment("list.txt", "rye")], "Now?")], [], {"list.txt": "rye"}),
        ([PART, PART], [("book.txt", "One, two"), ("book.txt", "One, two, three"), ("book.txt", "Three")],
         {"book.txt": "One, two, three"}),
        ([PART], [], {}),
        ([WHOLE], [("list.txt", "not trimmed in any message"), ("gone.txt", "of no message")],
         {"list.txt": "rye, oats"}),
        ([PART, join([Attachment("book.txt", "All of it")], "")], [("book.txt", "All")],
         {"book.txt": "All of it"}),
        ([join([Attachment("a.jpg", "", picture=mark_of("a.jpg", "a" * 32, 4, 3)), Attachment("b.txt", "")],
               "")], [], {}),
    ],
)  # fmt: skip
def test_the_whole_files_of_a_chat(
    texts: list[str], kept: list[tuple[str, str]], found: dict[str, str]
) -> None:
    files = files_of(texts, [packed(name, text) for name, text in kept])
    assert {file.name: file.text for file in files} == found
    assert all(not file.note and file.picture is None for file in files)


@pytest.mark.parametrize(
    ("room", "read"), [(0, "abcd\nef\ng"), (7, "abcd\nef\ng"), (6, "ef\ng"), (4, "ef\ng"), (2, "g")]
)
def test_the_last_texts_that_fit_are_read_anyway(room: int, read: str) -> None:
    assert read_anyway(["abcd", "ef", "g"], room) == read
    assert read_anyway(["abcd"], 3) == ""
