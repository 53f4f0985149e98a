"""The message tree: what is shown after each change, compared with a plain Python model; titles, lists,
recovery.
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from desktop.store.conversations import conversations
from desktop.store.conversations.conversations import ConversationStore
from desktop.store.conversations.folders import FolderStore
from desktop.store.conversations.forking import fork
from desktop.store.conversations.participants import UNNAMED, Author
from desktop.store.conversations.records import NOTEBOOK, auto_title
from desktop.store.conversations.stores import ConversationStores
from desktop.store.conversations.titles import is_untitled, set_model_title
from desktop.store.database.database import Database, StoreError
from tests.work import calls_in, database_work


def texts(store: ConversationStore, conversation_id: int) -> list[str]:
    return [message.text for message in store.path(conversation_id)]


def talk(store: ConversationStore, *words: str) -> tuple[int, list[int]]:
    """A conversation of alternating user and assistant messages."""
    conversation = store.create().id
    ids: list[int] = []
    for number, word in enumerate(words):
        role = "assistant" if number % 2 else "user"
        ids.append(store.add_message(conversation, ids[-1] if ids else None, role, word).id)
    return conversation, ids


def test_regenerate_keeps_the_old_reply_and_what_followed(store: ConversationStore) -> None:
    conversation, ids = talk(store, "hi", "first", "more", "end")
    other = store.add_message(conversation, ids[0], "assistant", "second")
    assert texts(store, conversation) == ["hi", "second"]
    assert (other.variant_index, other.variant_count) == (1, 2)
    store.show_variant(ids[1])
    assert texts(store, conversation) == ["hi", "first", "more", "end"]
    assert [(m.variant_index, m.variant_count) for m in store.path(conversation)] == [
        (0, 1),
        (0, 2),
        (0, 1),
        (0, 1),
    ]
    assert store.variants(ids[1]) == (ids[1], other.id)


@pytest.mark.parametrize("write", ["message", "replies", "document"])
def test_what_is_written_brings_its_chat_to_the_top(
    store: ConversationStore, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    clock = itertools.count(1_000_000)
    monkeypatch.setattr(conversations, "time", SimpleNamespace(time=lambda: float(next(clock))))
    (first, ids), (second, _) = talk(store, "hi"), talk(store, "good day")
    assert [entry.id for entry in store.list()] == [second, first]
    if write == "message":
        store.add_message(first, ids[0], "assistant", "hello")
    elif write == "replies":
        store.add_replies(first, ids[0], [UNNAMED, UNNAMED])
    else:
        store.set_text(ids[0], "hi there")
    assert [entry.id for entry in store.list()] == [first, second]


def test_a_message_in_an_unknown_state_is_not_added(store: ConversationStore) -> None:
    conversation, ids = talk(store, "hi")
    with pytest.raises(ValueError, match="cannot be in state 'half'; it is one of"):
        store.add_message(conversation, ids[0], "assistant", "hello", "half")
    assert texts(store, conversation) == ["hi"]


def test_edit_makes_a_sibling_at_every_level(store: ConversationStore) -> None:
    conversation, ids = talk(store, "hi", "hello", "how?")
    first = store.edit_message(ids[0], "good day")
    assert texts(store, conversation) == ["good day"]
    assert first.parent_id is None
    store.show_variant(ids[2])  # brings its ancestors with it
    assert texts(store, conversation) == ["hi", "hello", "how?"]
    store.edit_message(ids[1], "hello there")
    assert texts(store, conversation) == ["hi", "hello there"]


def test_delete_and_undo(store: ConversationStore) -> None:
    conversation, ids = talk(store, "hi", "one", "more")
    second = store.add_message(conversation, ids[0], "assistant", "two").id
    store.delete_message(second)
    assert texts(store, conversation) == ["hi", "one", "more"]
    assert store.path(conversation)[1].variant_count == 1
    store.delete_message(ids[1])
    assert texts(store, conversation) == ["hi"]
    store.undelete_message(ids[1])
    assert texts(store, conversation) == ["hi", "one", "more"]
    store.undelete_message(second)
    assert texts(store, conversation) == ["hi", "two"]
    store.delete_message(ids[0])
    assert texts(store, conversation) == []
    with pytest.raises(StoreError, match="deleted"):
        store.variants(ids[0])
    store.undelete_message(ids[0])
    assert texts(store, conversation) == ["hi", "two"]


@pytest.mark.parametrize("seed", range(8))
def test_random_changes_against_a_plain_model(store: ConversationStore, seed: int) -> None:
    draw = random.Random(seed)
    conversation = store.create().id
    parent: dict[int, int | None] = {}
    shown: dict[int | None, int] = {}
    deleted: set[int] = set()

    def expected() -> list[int]:
        path: list[int] = []
        at: int | None = None
        while True:
            beside = sorted(m for m, p in parent.items() if p == at and m not in deleted)
            if not beside:
                return path
            at = shown[at] if shown.get(at) in beside else beside[-1]
            path.append(at)

    for _ in range(120):
        path = expected()
        action = draw.choice(["add", "add", "sibling", "show", "delete", "undelete"])
        if action == "add" or not parent:
            at = path[-1] if path else None
            new = store.add_message(conversation, at, draw.choice(["user", "assistant"]), "x").id
            parent[new], shown[at] = at, new
        elif action == "sibling" and path:
            old = draw.choice(path)
            new = store.edit_message(old, "y").id
            parent[new] = parent[old]
            shown[parent[old]] = new
        elif action == "show":
            at = draw.choice(sorted(parent))
            store.show_variant(at)
            while at is not None:
                shown[parent[at]] = at
                at = parent[at]
        elif action == "delete" and path:
            at = draw.choice(path)
            store.delete_message(at)
            deleted.add(at)
        elif action == "undelete" and deleted:
            at = draw.choice(sorted(deleted))
            store.undelete_message(at)
            deleted.discard(at)
            shown[parent[at]] = at
        assert [message.id for message in store.path(conversation)] == expected()
    for message in store.path(conversation):
        beside = sorted(m for m, p in parent.items() if p == parent[message.id] and m not in deleted)
        assert (message.variant_index, message.variant_count) == (beside.index(message.id), len(beside))
        assert store.message(message.id) == message


def test_a_running_reply(store: ConversationStore, database: Database) -> None:
    conversation, ids = talk(store, "count")
    reply = store.add_message(conversation, ids[0], "assistant", "", "running")
    store.checkpoint(reply.id, "one two")
    assert store.message(reply.id).text == "one two"
    done = store.finish(
        reply.id, "one two three", "complete", {"reason": "stop_token", "stats": {"new_tokens": 3}}
    )
    assert (done.text, done.state, done.stats["stats"]["new_tokens"]) == ("one two three", "complete", 3)
    store.checkpoint(reply.id, "late")  # a checkpoint after the end changes nothing
    assert store.message(reply.id).text == "one two three"
    store.resume(reply.id)
    store.checkpoint(reply.id, "one two three four")
    again = ConversationStore(database)
    assert (again.message(reply.id).state, again.message(reply.id).text) == ("stopped", "one two three four")
    with pytest.raises(ValueError, match="half"):
        store.finish(reply.id, "", "half", {})


def test_replies_of_several_are_added_together_and_the_others_can_be_discarded(
    store: ConversationStore,
) -> None:
    conversation, ids = talk(store, "hi", "old")
    ann, ben = store.add_replies(conversation, ids[0], [Author("Ann"), Author("Ben")])
    assert [(each.author.name, each.role, each.text, each.state) for each in (ann, ben)] == [
        ("Ann", "assistant", "", "running"),
        ("Ben", "assistant", "", "running"),
    ]
    assert store.path(conversation)[-1].id == ann.id
    (aside,) = store.add_replies(conversation, ids[0], [Author()], shown=False)
    assert store.path(conversation)[-1].id == ann.id
    assert [each.id for each in store.path_to(aside.id)] == [ids[0], aside.id]
    store.show_variant(ben.id, (ids[1], ann.id))
    assert store.path(conversation)[-1].id == ben.id
    assert store.variants(ben.id) == (ben.id, aside.id)
    with pytest.raises(StoreError, match="is deleted"):
        store.variants(ann.id)
    with pytest.raises(StoreError):
        store.add_replies(conversation, 999, [Author("Ann")])
    assert store.variants(ben.id) == (ben.id, aside.id)


def test_a_fork_copies_the_way_to_a_message_and_the_fields_of_its_chat(database: Database) -> None:
    stores = ConversationStores(database)
    store = stores.kept
    conversation, ids = talk(store, "hi", "first", "more")
    other = store.add_message(conversation, ids[0], "assistant", "second", "running")
    store.set_local_only(conversation, True)
    store.set_system_prompt(conversation, "Be brief.")
    ways = {ids[1]: ["hi", "first"], other.id: ["hi", "second"], ids[2]: ["hi", "first", "more"]}
    for message, words in ways.items():  # of the shown path, and beside it
        made = fork(stores, message)
        assert (store.get(made).title, texts(store, made)) == ("hi (fork)", words)
        assert (store.get(made).local_only, store.get(made).system_prompt) == (True, "Be brief.")
        assert store.path(made)[1].variant_count == 2
        assert {each.state for each in store.path(made)} <= {"complete", "stopped"}
    store.show_variant(ids[1])
    again = fork(stores, ids[2])
    first = store.path(again)[1]
    assert (first.text, texts(store, again)[2]) == ("first", "more")
    assert [store.message(each).text for each in store.variants(first.id)] == ["first", "second"]
    assert store.message(other.id).state == "running"


def test_titles_that_a_model_wrote_go_behind_those_of_the_user(
    store: ConversationStore, database: Database
) -> None:
    untitled, named = talk(store, "hi")[0], talk(store, "hi")[0]
    store.rename(named, "Mine")
    deleted, notebook = talk(store, "hi")[0], store.create(kind=NOTEBOOK).id
    store.delete(deleted)
    for number, free in ((untitled, True), (named, False), (deleted, False), (notebook, False), (999, False)):
        assert is_untitled(database, number) == free
        assert set_model_title(database, number, "Greeting") == free
    assert (store.get(untitled).title, store.get(named).title) == ("Greeting", "Mine")
    assert not is_untitled(database, untitled)
    assert texts(store, notebook) == [""]  # its document is there from the start


def test_conversations_list_and_trash(store: ConversationStore) -> None:
    first, second = talk(store, "apples")[0], talk(store, "pears")[0]
    assert [row.title for row in store.list()] == ["pears", "apples"]
    store.add_message(first, None, "user", "again")
    assert [row.id for row in store.list()] == [first, second]
    store.delete(second)
    assert [row.id for row in store.list()] == [first]
    assert [row.id for row in store.list(deleted=True)] == [second]
    assert store.search("pears") == ()
    assert store.get(second).deleted
    store.restore(second)
    assert {row.id for row in store.list()} == {first, second}
    assert [hit.title for hit in store.search("pears")] == ["pears"]


def test_fields_of_a_conversation_survive_reopening(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.sqlite3")
    store = ConversationStore(database)
    number = store.create(settings={"SamplerSettings": {"temperature": 0.25}}).id
    store.set_system_prompt(number, "Be brief.")
    store.set_model_path(number, "/models/ü.gguf")
    store.set_settings(number, {"StopSettings": {"stop_strings": ["END", "\n"]}})
    message = store.add_message(number, None, "user", "zero\x00byte, 😀, \u2028 and ünïcödé\r\n")
    before = store.get(number)
    database.close()
    database = Database(tmp_path / "a.sqlite3")
    store = ConversationStore(database)
    assert store.get(number) == before
    assert before.settings == {"StopSettings": {"stop_strings": ["END", "\n"]}}
    assert store.path(number) == (message,)
    database.close()


def test_titles(store: ConversationStore) -> None:
    number = store.create().id
    assert store.get(number).title == ""
    store.add_message(number, None, "user", "  \n# Why is the sky blue?\nTell me.")
    assert store.get(number).title == "Why is the sky blue?"
    store.add_message(number, None, "user", "Another first message")
    assert store.get(number).title == "Why is the sky blue?"
    store.rename(number, "  Sky\nand sea ")
    assert store.get(number).title == "Sky and sea"
    store.rename(number, "")
    assert store.get(number).title == "Why is the sky blue?"
    named = store.create("Mine").id
    store.add_message(named, None, "user", "hello")
    assert store.get(named).title == "Mine"


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("short", "short"),
        ("", ""),
        (" \n\t\n", ""),
        ("-5 + 3?", "-5 + 3?"),
        ("- a list", "a list"),
        ("- [ ] **buy** `milk`", "buy milk"),
        ("```python\nprint(2**3)\n```\nWhy is it 8?", "print(2**3)"),
        ("```", "```"),
        ("***\n# **Peas**", "Peas"),
        ("🎉\nPeas", "🎉"),
        ("word " * 30, "word word word word word word word word word…"),
        ("x" * 100, "x" * 47 + "…"),
        ("a" * 48, "a" * 48),
        (
            "one, two, three, four, five, six, seven, eight, nine, ten",
            "one, two, three, four, five, six, seven, eight…",
        ),
    ],
)
def test_auto_title(text: str, title: str) -> None:
    assert auto_title(text) == title
    assert len(title) <= 48


def test_unknown_ids_raise_sentences(store: ConversationStore) -> None:
    conversation, ids = talk(store, "hi")
    other = store.create().id
    for call in (
        lambda: store.get(999),
        lambda: store.summary(999),
        lambda: store.move([conversation], 999),
        lambda: store.rename(999, "x"),
        lambda: store.set_settings(999, {}),
        lambda: store.message(999),
        lambda: store.show_variant(999),
        lambda: store.delete_message(999),
        lambda: store.undelete_message(999),
        lambda: store.edit_message(999, "x"),
        lambda: store.finish(999, "x", "complete", {}),
        lambda: store.add_message(conversation, 999, "user", "x"),
        lambda: store.add_message(999, None, "user", "x"),
        lambda: store.add_message(other, ids[0], "user", "x"),
    ):
        with pytest.raises(StoreError, match=r"^[A-Z].*\.$"):
            call()
    assert texts(store, conversation) == ["hi"]
    assert store.path(999) == ()


def test_the_first_of_a_long_list(store: ConversationStore, database: Database) -> None:
    """Pinned conversations and those in folders come along, however old they are."""
    for number in range(30):
        values = (f"Talk {number}", number, number)
        database.execute("INSERT INTO conversations (title, created_at, updated_at) VALUES (?, ?, ?)", values)
    ids = {row.title: row.id for row in store.list()}
    folder = FolderStore(database).create("Work").id
    store.pin(ids["Talk 3"])
    store.move([ids["Talk 5"]], folder)
    store.delete(ids["Talk 28"])
    assert [row.title for row in store.list(first=2)] == ["Talk 29", "Talk 27", "Talk 5", "Talk 3"]
    assert store.list(first=100) == store.list()
    assert [row.title for row in store.list(deleted=True, first=2)] == ["Talk 28"]
    assert store.is_listed(ids["Talk 0"])
    assert not store.is_listed(ids["Talk 28"])
    assert not store.is_listed(10_000)


def test_ten_thousand_conversations_are_listed_at_once(store: ConversationStore, database: Database) -> None:
    with database.transaction():
        for number in range(10_000):
            values = (f"Talk {number}", number, number)
            database.execute(
                "INSERT INTO conversations (title, created_at, updated_at) VALUES (?, ?, ?)", values
            )
    with database_work(database) as done:
        rows = store.list()
    assert (len(rows), rows[0].title, rows[-1].title) == (10_000, "Talk 9999", "Talk 0")
    # a row is read from the index as it stands: nothing is sorted or looked up
    assert done[0] < 20 * len(rows)
    assert calls_in(store.list) < 4 * len(rows)
    plan = database.execute(
        "EXPLAIN QUERY PLAN SELECT id, title, updated_at, folder_id, pinned, deleted_at FROM conversations "
        "WHERE deleted = ? ORDER BY updated_at DESC, id DESC",
        (0,),
    ).fetchall()
    assert [row[3].split(" (")[0] for row in plan] == [
        "SEARCH conversations USING COVERING INDEX conversations_listed"
    ]


def test_a_checkpoint_costs_the_same_however_long_the_text_is(
    store: ConversationStore, database: Database
) -> None:
    conversation, ids = talk(store, "write a book")
    reply = store.add_message(conversation, ids[0], "assistant", "", "running").id
    text = "All work and no play makes Jack a dull boy. " * 2500
    costs = []
    for length in range(0, len(text), len(text) // 20):
        with database_work(database) as done:
            for _ in range(10):  # the count of one is rounded
                calls = calls_in(lambda length=length: store.checkpoint(reply, text[:length]))
        costs.append((done[0], calls))
    for each in zip(*costs, strict=True):
        assert max(each) - min(each) <= 30, "the text is neither indexed nor read"
    assert max(costs) < (2000, 100)


def test_a_notebook_is_named_after_its_document_until_the_user_names_it(store: ConversationStore) -> None:
    notebook, chat = store.create(kind=NOTEBOOK).id, store.create().id
    (document,) = store.path(notebook)
    store.set_text(document.id, "The  sea\nand more")
    assert store.get(notebook).title == auto_title("The  sea\nand more")
    store.set_text(document.id, "The moon")
    assert store.get(notebook).title == "The moon"
    assert store.path(notebook)[0].text == "The moon"
    store.rename(notebook, "Mine")
    store.set_text(document.id, "The sun", settled=False)
    assert store.get(notebook).title == "Mine"
    assert (store.path(notebook)[0].text, store.path(notebook)[0].state) == ("The sun", "running")
    message = store.add_message(chat, None, "user", "Hello")
    title = store.get(chat).title
    store.name_after(message.id)
    assert store.get(chat).title == title
