"""Full-text search: what is found, what stays hidden, and that no query is an error."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from desktop.store.conversations.conversations import ConversationStore
from desktop.store.database.database import Database
from desktop.store.search import search
from desktop.store.search.indexing import index_step


def found(store: ConversationStore, query: str, limit: int = 50) -> list[str]:
    return [store.message(hit.message_id).text for hit in store.search(query, limit)]


@pytest.fixture
def talk(store: ConversationStore) -> int:
    number = store.create("Talk").id
    for text in (
        "The quick brown fox",
        "北京是中国的首都",
        "def read_file(path): return 100%",
        'Ärger mit Ölen, don\'t "quote" me',
    ):
        store.add_message(number, None, "user", text)
    return number


@pytest.mark.parametrize(
    ("query", "texts"),
    [
        ("quick", ["The quick brown fox"]),
        ("QUICK fox", ["The quick brown fox"]),
        ("fox quick", ["The quick brown fox"]),
        ("uic row", ["The quick brown fox"]),
        ("quick wolf", []),
        ("中国", ["北京是中国的首都"]),
        ("京", ["北京是中国的首都"]),
        ("中国的首", ["北京是中国的首都"]),
        ("read_file(path)", ["def read_file(path): return 100%"]),
        ("100%", ["def read_file(path): return 100%"]),
        ("0%", ["def read_file(path): return 100%"]),
        ("%", ["def read_file(path): return 100%"]),
        ("d_", ["def read_file(path): return 100%"]),
        ("ärger", ['Ärger mit Ölen, don\'t "quote" me']),
        ('"quote"', ['Ärger mit Ölen, don\'t "quote" me']),
        ("don't", ['Ärger mit Ölen, don\'t "quote" me']),
        ("NOT", []),
        ("   ", []),
        ("", []),
    ],
)
def test_queries(store: ConversationStore, talk: int, query: str, texts: list[str]) -> None:
    assert found(store, query) == texts


def test_the_index_follows_every_change(store: ConversationStore, talk: int, database: Database) -> None:
    question = store.add_message(talk, None, "user", "unicorn question")
    reply = store.add_message(talk, question.id, "assistant", "", "running")
    store.checkpoint(reply.id, "a pegasus appears")
    assert found(store, "pegasus") == []  # indexed at the end of the reply
    store.finish(reply.id, "a pegasus appears and leaves", "complete", {})
    assert found(store, "pegasus leaves") == ["a pegasus appears and leaves"]
    store.resume(reply.id)
    assert found(store, "pegasus") == []
    store.finish(reply.id, "a dragon instead", "stopped", {})
    assert found(store, "pegasus") == []
    assert found(store, "dragon") == ["a dragon instead"]
    store.delete_message(question.id)
    assert found(store, "unicorn") == []
    assert found(store, "dragon") == []  # below a deleted message
    store.undelete_message(question.id)
    assert found(store, "dragon") == ["a dragon instead"]
    database.execute("DELETE FROM conversations WHERE id = ?", (talk,))
    assert found(store, "dragon") == []
    database.execute("INSERT INTO message_words (message_words, rank) VALUES ('integrity-check', 1)")


def test_a_killed_reply_is_indexed_on_opening(store: ConversationStore, database: Database) -> None:
    number = store.create().id
    reply = store.add_message(number, None, "assistant", "", "running")
    store.checkpoint(reply.id, "a comet passes")
    assert found(ConversationStore(database), "comet") == ["a comet passes"]
    database.execute("INSERT INTO message_words (message_words, rank) VALUES ('integrity-check', 1)")


def test_latest_first_and_the_limit(store: ConversationStore) -> None:
    number = store.create().id
    for count in range(20):
        store.add_message(number, None, "user", f"needle {count}")
    assert found(store, "needle", 3) == ["needle 19", "needle 18", "needle 17"]
    assert found(store, "needle", 0) == []


def test_the_snippet_shows_the_word(store: ConversationStore) -> None:
    number = store.create("Long").id
    store.add_message(number, None, "user", "before " * 100 + "the\nneedle here " + "after " * 100)
    hit = store.search("needle")[0]
    assert "the needle here" in hit.snippet
    assert (hit.snippet[0], hit.snippet[-1], hit.title, hit.conversation_id) == ("…", "…", "Long", number)
    assert len(hit.snippet) < 110


@pytest.mark.parametrize(
    ("before", "after", "marks"), [(0, 90, ""), (0, 91, "…"), (26, 64, ""), (33, 57, "…")]
)
def test_a_snippet_says_where_it_leaves_something_out(
    store: ConversationStore, before: int, after: int, marks: str
) -> None:
    store.add_message(store.create().id, None, "user", "x" * before + "needle" + "y" * after)
    snippet = store.search("needle")[0].snippet
    assert (snippet[0] == "…", snippet[-1] == "…") == (before > 32, after > 90)
    assert snippet.replace("…", "").strip("xy") == "needle"
    assert snippet.count("…") == len(marks)


def test_a_snippet_has_no_marks_but_those_asked_for(store: ConversationStore) -> None:
    text = "## Rivers\n**The *needle* of** `f(x)` and [a map](https://example.org) say a*b and **more**"
    store.add_message(store.create().id, None, "assistant", text)
    plain = "Rivers The needle of f(x) and a map say a*b and more"
    hit = store.search("needle")[0]
    assert hit.snippet == plain
    assert [hit.snippet[first:behind] for first, behind in hit.spans] == ["needle"]
    assert text[hit.place :].startswith("needle")
    assert "**more**" in store.search("**more**")[0].snippet


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    query=st.text(max_size=40), text=st.text(min_size=1, max_size=60).filter(lambda text: "\0" not in text)
)
def test_any_query_is_valid_and_every_part_is_found(store: ConversationStore, query: str, text: str) -> None:
    store.search(query)
    number = store.create().id
    message = store.add_message(number, None, "user", text)
    for word in text.split():
        if word.isascii():
            assert message.id in [hit.message_id for hit in store.search(word, 100_000)]
    store.delete(number)


def filled(store: ConversationStore, database: Database, count: int) -> int:
    """A conversation of `count` messages, more than a search reads without the index."""
    number = store.create("Filled").id
    with database.transaction():
        for place in range(count):
            text = (
                f"entry{place} common words of every message "
                + ("rarely seen " if place % 1000 == 3 else "")
                + "filler " * 20
            )
            database.execute(
                "INSERT INTO messages (conversation_id, role, text, state, created_at) VALUES (?, 'user', "
                "?, 'complete', 1)",
                (number, text),
            )
    return number


def test_the_places_of_the_words(store: ConversationStore) -> None:
    number = store.create().id
    store.add_message(number, None, "user", "x " * 200 + "Die STRASSE zum Café, straße!")
    hit = store.search("cafe\u0301 straße")[0]
    assert [hit.snippet[first:behind] for first, behind in hit.spans] == ["STRASSE", "Café", "straße"]
    assert store.message(hit.message_id).text[hit.place :].startswith("STRASSE")


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Ein Gespräch über Brücken", "bruck"),
        ("naïve café", "CAFÉ"),
        ("cafe\u0301 in NFD", "café"),
        ("北京是中国的首都", "国的首"),
        ("東京タワー", "ﾀﾜｰ"),
        ("안녕하세요 세계", "안녕"),
        ("สวัสดีชาวโลก", "ชาวโลก"),
        ("well done 👍🏽", "👍"),
        ("ПРИВЕТ мир", "привет"),
        ("Ελλάδα ΟΔΟΣ", "οδος"),
        ("नमस्ते दुनिया", "दुनि"),
        ("def read_file(path):", "read_file(pa"),
        ('say "hello" AND go', '"hello" AND'),
    ],
)
def test_the_index_finds_every_script(
    store: ConversationStore, database: Database, text: str, query: str
) -> None:
    expected = store.add_message(store.create().id, None, "user", text).id
    filled(store, database, 1500)
    assert [hit.message_id for hit in store.search(query)] == [expected]


def test_typing_a_word_finds_it_from_the_first_letter(store: ConversationStore, database: Database) -> None:
    expected = store.add_message(store.create().id, None, "user", "xylophone concert").id
    filled(store, database, 1500)
    for length in range(1, 10):
        assert [hit.message_id for hit in store.search("xylophone"[:length])] == [expected]
    assert [hit.message_id for hit in store.search("concert xyl")] == [expected]
    assert store.search("ylophone") == ()
    assert [hit.message_id for hits in store.search_rest("ylophone") for hit in hits] == [expected]


def test_pages_of_hits_and_the_rest_are_everything(store: ConversationStore, database: Database) -> None:
    number = filled(store, database, 3000)
    everything = [
        row[0] for row in database.execute("SELECT id FROM messages WHERE text LIKE '%rarely%'").fetchall()
    ]
    hits = store.search("seen rarely", 2)
    assert [hit.message_id for hit in hits] == everything[:0:-1]
    assert [
        hit.message_id for hit in store.search("seen rarely", 2, before=hits[-1].message_id)
    ] == everything[:1]
    rest = [hit.message_id for step in store.search_rest("arely", (everything[0],)) for hit in step]
    assert sorted(rest) == everything[1:]
    assert len({hit.message_id for hit in store.search("common", 200)}) == 200
    store.delete(number)
    assert store.search("common") == () == store.search("rarely seen")


def test_the_rest_begins_with_what_the_index_offers(
    store: ConversationStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "SCAN_COST", 1000)
    number = store.create().id
    expected = [store.add_message(number, None, "user", "xylophone").id for _ in range(130)]
    filled(store, database, 1500)
    steps = [[hit.message_id for hit in step] for step in store.search_rest("xylophone")]
    assert [step for step in steps[:6] if step] == [expected[:69:-1], expected[69:9:-1], expected[9::-1]]
    assert (len(steps) > 30, any(steps[6:])) == (True, False)


@pytest.mark.parametrize(("common", "count"), [(1000, 0), (2000, 50)])
def test_a_word_is_looked_up_by_its_beginning_unless_that_is_common(
    store: ConversationStore, database: Database, monkeypatch: pytest.MonkeyPatch, common: int, count: int
) -> None:
    store.add_message(store.create().id, None, "user", "the first message is no sample of all")
    filled(store, database, 1500)
    monkeypatch.setattr(search, "_COMMON", common)
    monkeypatch.setattr(search, "RECENT_COST", 0)
    assert len(store.search("commo")) == count
    assert len(store.search("common")) == 50


def test_words_that_are_common_but_never_adjacent(store: ConversationStore, database: Database) -> None:
    filled(store, database, 4000)
    expected = database.execute("SELECT id FROM messages ORDER BY id LIMIT 1 OFFSET 5").fetchone()[0]
    database.execute("UPDATE messages SET text = 'words_common ' || text WHERE id = ?", (expected,))
    quick = store.search("words_common")
    assert [hit.message_id for hits in store.search_rest("words_common") for hit in hits] == [expected]
    assert {hit.message_id for hit in quick} <= {expected}


def test_what_is_below_a_deleted_message_is_not_found_in_an_old_file(
    store: ConversationStore, database: Database
) -> None:
    number = store.create().id
    above = store.add_message(number, None, "user", "above")
    store.add_message(number, above.id, "assistant", "a hidden answer")
    store.delete_message(above.id)
    assert store.search("hidden") == ()
    # like an old file before its messages are indexed
    database.execute("UPDATE conversations SET holes = 0")
    database.execute("UPDATE search_state SET low = 3")
    assert store.search("hidden") == ()
    while not index_step(database).done:
        pass
    assert store.search("hidden") == ()
    store.undelete_message(above.id)
    assert len(store.search("hidden")) == 1


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=st.text(st.characters(exclude_categories=()), max_size=30))
def test_no_query_is_an_error_with_the_index(
    store: ConversationStore, database: Database, query: str
) -> None:
    if not store.list():
        filled(store, database, 1500)
    assert len(store.search(query, 5)) <= 5
    next(store.search_rest(query), ())
