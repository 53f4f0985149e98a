"""Which part of a web page each part of a chat is."""

from __future__ import annotations

from dataclasses import replace

from desktop.store.conversations.records import NOTEBOOK
from desktop.store.transfer.exporters.html import html_page
from desktop.store.transfer.exporters.markdown import markdown
from desktop.store.transfer.records import ConversationRecord, MessageRecord
from engine.words import set_language

USER = MessageRecord("a", None, "user", "\n1 < 2?\n", 1_700_000_000.0)
REPLY = MessageRecord("b", "a", "assistant", "<think>\nHm.\n</think>\n\n*Yes.*", None)
CHAT = ConversationRecord(
    "s", "k", "Small  <numbers>", None, None, (USER, REPLY), system_prompt="\nBe <brief>.\n"
)


def page(*chats: ConversationRecord, title: str = "") -> str:
    return "".join(html_page(chats, title))


def test_each_part_has_its_class() -> None:
    text = page(CHAT)
    assert '<h1 dir="auto">Small &lt;numbers&gt;</h1>' in text
    assert '<div class="system" dir="auto">Be &lt;brief&gt;.</div>' in text
    assert '<div class="user" dir="auto">1 &lt; 2?</div>' in text
    thoughts, rest = text.split('<div class="thoughts">', 1)[1].split('<div class="text">', 1)
    assert "Hm." in thoughts
    assert "<em>Yes.</em>" in rest
    assert "Hm." not in rest
    assert "2023" in text.split('<div class="user"')[0].rsplit("<h2>", 1)[1]  # when it was written
    assert " · " not in text.split('<div class="thoughts">')[0].rsplit("<h2>", 1)[1]


def test_the_title_of_the_page() -> None:
    assert "<title>Small &lt;numbers&gt;</title>" in page(CHAT)
    assert "<title>Mine</title>" in page(CHAT, title="Mine")
    unnamed = replace(CHAT, title=" ")
    assert '<h1 dir="auto">Chat</h1>' in page(unnamed)
    assert "<title>Chat</title>" in page(unnamed)
    assert "<title>Chats</title>" in page()


def test_several_chats_are_divided_by_lines() -> None:
    assert [page(*[CHAT] * count).count("<hr>") for count in (0, 1, 3)] == [0, 0, 2]
    assert page(CHAT, CHAT).count("<title>") == 1


def test_a_notebook_is_its_document() -> None:
    document = replace(REPLY, parent=None, text="\n*one*\n two\n")
    text = page(replace(CHAT, kind=NOTEBOOK, messages=(document,)))
    assert '<div class="document" dir="auto">*one*\n two</div>' in text
    assert "<h2>" not in text


def test_dates_and_prompts_are_left_out_where_there_are_none() -> None:
    text = page(replace(CHAT, system_prompt=" \n"))
    assert 'class="system"' not in text
    assert '<p class="date">' not in text
    assert '<p class="date">' in page(replace(CHAT, created_at=1_700_000_000.0))


def test_headings_are_in_the_language_of_the_window() -> None:
    set_language("de", ".", ",")
    try:
        web, text = page(CHAT), "".join(markdown([CHAT]))
    finally:
        set_language("en")
    assert "<h2>Systemprompt</h2>" in web
    assert "\n## Systemprompt\n" in text
    assert "\n> **Gedanken**\n>\n> " in text
