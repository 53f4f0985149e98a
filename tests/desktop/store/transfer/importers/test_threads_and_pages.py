"""Perplexity's threads, and Gemini's chats in a page of activity."""

from __future__ import annotations

import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from desktop.store.conversations.conversations import ConversationStore
from desktop.store.database.database import Database
from desktop.store.transfer.importers.peek import is_chats
from desktop.store.transfer.importers.programs.gemini_page import activities
from desktop.store.transfer.importers.programs.perplexity import Perplexity
from tests.desktop.store.transfer.importers.files import broken, imported, run, shown, written

ENTRY = {
    "uuid": "2", "context_uuid": "c", "thread_title": "Later", "display_model": "turbo", "query_str": "Sure?",
    "entry_created_datetime": "2026-02-07T10:01:00Z", "entry_updated_datetime": "2026-02-07T10:02:00Z",
    "sources": {"sources": ["web"]},
    "blocks": [
        {"intended_usage": "plan", "plan_block": {"goals": []}},
        {"intended_usage": "ask_text", "markdown_block": {"answer": "", "chunks": ["Ye", "s [x](pplx://a/b)."]}},
        {"intended_usage": "web_results", "web_result_block": {"web_results": [{"name": "A", "url": "u"}]}},
    ],
    "collection_info": {"title": "My  space"},
}  # fmt: skip
FIRST = {
    **ENTRY, "uuid": "1", "thread_title": "Sky", "query_str": "Why?",
    "entry_created_datetime": "2026-02-07T10:00:00Z",
    "blocks": [{"intended_usage": "ask_text", "markdown_block": {"answer": "So."}}],
}  # fmt: skip
LOADED = {"status": "success", "entries": [ENTRY, FIRST], "has_next_page": False}
MADE = {
    "metadata": {"thread_title": "Sky", "thread_id": "c", "thread_created_at": "2026-02-07T10:00:00Z",
                 "thread_updated_at": "2026-02-07T10:02:00Z"},
    "conversations": [
        {"uuid": "1", "query": "Why?", "answer": "So.", "model": "turbo", "timestamp": "2026-02-07T10:00:00Z",
         "sources": [{"title": "A", "url": "u", "snippet": ""}]},
        {"uuid": "2", "query": "Sure?", "answer": "Yes x.", "model": "turbo",
         "timestamp": "2026-02-07T10:01:00Z"},
    ],
}  # fmt: skip
THREAD = [("user", "Why?"), ("assistant", "So."), ("user", "Sure?"), ("assistant", "Yes x.")]


@pytest.mark.parametrize(("value", "folder"), [(LOADED, ("My space",)), (MADE, ())], ids=["loaded", "made"])
def test_threads_of_perplexity_are_put_in_order(
    value: dict[str, Any],
    folder: tuple[str, ...],
    database: Database,
    store: ConversationStore,
    tmp_path: Path,
) -> None:
    path = written(tmp_path / "thread.json", value)
    assert is_chats(path)
    events = run(database, path)
    [event] = imported(events)
    assert (event.source, broken(events)) == ("perplexity", [])
    head = store.get(event.conversation_id)
    start = datetime(2026, 2, 7, 10, tzinfo=UTC).timestamp()
    assert (head.title, head.created_at, head.updated_at) == ("Sky", start, start + 120)
    assert shown(store, event.conversation_id) == THREAD
    path_shown = store.path(event.conversation_id)
    assert [message.stats.get("model") for message in path_shown] == [None, "turbo", None, "turbo"]
    assert [message.created_at for message in path_shown] == [start, start, start + 60, start + 60]
    assert Perplexity().read(value, lambda *_: None).folder == folder


LOGO = '<img src="https://r2cdn.perplexity.ai/pplx-full-logo-primary-dark%402x.png" style="height:64px"/>\n\n'
SITE = LOGO + (
    "# Why?\n\nSo.\n\n***\n\n## Part\n\n```sh\nx\n\n---\n\n# no question\n```\n\n[^1_1]: https://a.b\n\n"
    '<span style="display:none">[^1_2]</span>\n\n<div align="center">⁂</div>\n\n---\n\n# Sure?\n\nYes.'
)


def test_the_markdown_that_perplexity_writes(
    database: Database, store: ConversationStore, tmp_path: Path
) -> None:
    path = tmp_path / "Sky.md"
    path.write_text(SITE, encoding="utf-8")
    [event] = imported(run(database, path))
    assert (event.source, event.title) == ("perplexity", "Sky")
    assert shown(store, event.conversation_id) == [
        ("user", "Why?"),
        (
            "assistant",
            "So.\n\n***\n\n## Part\n\n```sh\nx\n\n---\n\n# no question\n```\n\n[^1_1]: https://a.b",
        ),
        ("user", "Sure?"),
        ("assistant", "Yes."),
    ]
    empty = tmp_path / "empty.md"
    empty.write_text(LOGO + "Nothing asked", encoding="utf-8")
    assert broken(run(database, empty))[-1].reason.startswith("It contains no chats of a known program")


CELL = '<div class="content-cell mdl-cell mdl-cell--6-col mdl-typography--body-1'


def card(words: str, product: str = "Gemini Apps") -> str:
    return (
        '<div class="outer-cell mdl-cell mdl-cell--12-col"><div class="mdl-grid"><div class="header-cell">'
        f'<p class="mdl-typography--title">{product}<br></p></div>{CELL}">{words}</div>'
        f'{CELL} mdl-typography--text-right"></div><div class="content-cell mdl-typography--caption">'
        f"<b>Products:</b><br>&emsp;{product}<br></div></div></div>"
    )


def page(*cards: str) -> bytes:
    style = "<html><head><style>.mdl-grid{}" + " " * 70_000 + "</style></head><body>"
    return (style + "".join(cards) + "</body></html>").encode()


CARDS = (
    card("Prompted&nbsp;1 &lt; 2,<br>or not?<br>Attached 2 files.<br>- <a href=\"a%20b.txt\">a b.txt</a><br>"
         "-&nbsp;<a href=\"c.png\">c.png</a><br>May 19, 2026, 7:07:02\u202fPM GMT-03:00<br>"
         "<p>It is <strong>so</strong>.</p><ul><li>a</li></ul>"),
    card("Gav instruktionen&nbsp;Asked my boss?<br>19 mai 2026 22:07:03 UTC<br><p>Ja.</p>", "Gemini-appar"),
    card("Used an Assistant feature<br>May 19, 2026, 7:07:02 PM UTC<br>"),
    card("Searched for&nbsp;bread<br>May 19, 2026, 7:07:02 PM UTC<br><p>x</p>", "Search"),
    card("Prompted&nbsp;When?<br>at some time in 2026, 7:07<br>Now."),
)  # fmt: skip


@pytest.mark.parametrize("zipped", [False, True])
def test_geminis_page_has_a_chat_for_each_card(
    zipped: bool, database: Database, store: ConversationStore, tmp_path: Path
) -> None:
    path = tmp_path / ("takeout.zip" if zipped else "MyActivity.html")
    if zipped:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("Takeout/gems.html", "<div></div>")
            archive.writestr("Takeout/MyActivity.html", page(*CARDS))
    else:
        path.write_bytes(page(*CARDS))
    assert is_chats(path)
    events = run(database, path)
    assert broken(events) == []
    found = [
        (shown(store, event.conversation_id), store.get(event.conversation_id)) for event in imported(events)
    ]
    assert {event.source for event in imported(events)} == {"gemini"}
    assert [turns for turns, _head in found] == [
        [
            ("user", "[file: a b.txt]\n\n[file: c.png]\n\n1 < 2,\nor not?"),
            ("assistant", "It is **so**.\n\n- a"),
        ],
        [("user", "Asked my boss?"), ("assistant", "Ja.")],
        [("user", "When?"), ("assistant", "Now.")],
    ]
    evening = datetime(2026, 5, 19, 22, 7, 2, tzinfo=UTC).timestamp()
    assert [head.created_at for _turns, head in found[:2]] == [evening, evening + 1]
    assert [event.outcome for event in imported(run(database, path))] == ["known"] * 3


@pytest.mark.parametrize(
    ("words", "moment"),
    [
        ("18 Sept 2025, 12:02:52 CET", (2025, 9, 18, 12, 2, 52)),
        ("2026年6月19日 0:23:08 CST", (2026, 6, 19, 0, 23, 8)),
        ("10 de mai. de 2026, 03:46:09 BRT", (2026, 5, 10, 3, 46, 9)),
        ("1. 2. 2026 10:00:00 SEČ", (2026, 2, 1, 10, 0, 0)),
        ("3 juil. 2026, 10:00 CEST", (2026, 7, 3, 10, 0, 0)),
        ("4 février 2026, 10:00:01", (2026, 2, 4, 10, 0, 1)),
        ("Jul 3, 2026, 12:15:00 AM PDT", (2026, 7, 3, 0, 15, 0)),
        ("Jul 3, 2026, 12:15:00 p.m. PDT", (2026, 7, 3, 12, 15, 0)),
    ],
)
def test_times_of_other_languages_are_this_machines(words: str, moment: tuple[int, ...]) -> None:
    year, *rest = moment
    [found] = activities(page(card(f"Prompted&nbsp;x<br>{words}<br>y")))
    assert found["time"] == datetime(year, *rest).timestamp()


@pytest.mark.parametrize("words", ["31 Feb 2025, 12:02:52 CET", "19 blub 2026, 10:00", "1 Jan 2026, 10:77"])
def test_times_that_do_not_exist_stay_words(words: str) -> None:
    [found] = activities(page(card(f"Prompted&nbsp;x<br>{words}<br>y")))
    assert found["time"] == words


@pytest.mark.parametrize(
    "words", ["Prompted&nbsp;x<br>no time<br>y", "x<br>May 1, 2026, 7:07 PM<br> <br>", "x"]
)
def test_a_card_without_a_time_or_an_answer_is_no_chat(words: str) -> None:
    assert list(activities(page(card(words)))) == []


def test_other_pages_are_no_chats(database: Database, tmp_path: Path) -> None:
    for number, words in enumerate([b"<html><p>Gemini</p></html>", page(card("x", "Search")), b""]):
        path = tmp_path / f"{number}.html"
        path.write_bytes(words)
        assert not is_chats(path)
        assert broken(run(database, path))[-1].reason.startswith("It contains no chats of a known program")
