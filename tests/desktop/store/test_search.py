"""Full-text search: what is found, what stays hidden, and that no text a person types is an error."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from desktop.store.conversations import ConversationStore
from desktop.store.database import Database


def found(store: ConversationStore, query: str, limit: int = 50) -> list[str]:
    return [store.message(hit.message_id).text for hit in store.search(query, limit)]


@pytest.fixture
def talk(store: ConversationStore) -> int:
    number = store.create("Talk").id
    for text in ("The quick brown fox", "北京是中国的首都", "def read_file(path): return 100%", 'Ärger mit Ölen, don\'t "quote" me'):
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
    assert found(store, "pegasus") == []  # comes in with the end of the reply
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


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=st.text(max_size=40), text=st.text(min_size=1, max_size=60).filter(lambda text: "\0" not in text))
def test_any_query_is_valid_and_every_part_is_found(store: ConversationStore, query: str, text: str) -> None:
    store.search(query)
    number = store.create().id
    message = store.add_message(number, None, "user", text)
    for word in text.split():
        if word.isascii():
            assert message.id in [hit.message_id for hit in store.search(word, 100_000)]
    store.delete(number)
