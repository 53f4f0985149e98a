"""Provenance: packing, small size, replacing and deleting replies, and keeping temporary chats."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from desktop.store.conversations.conversations import ConversationStore
from desktop.store.conversations.stores import ConversationStores
from desktop.store.database.database import Database
from desktop.store.provenance.provenance import Provenance, common_length, pack, unpack
from desktop.store.provenance.provenance_store import ProvenanceStore
from engine.core import Rendered

IDS = st.lists(st.integers(0, 40), max_size=30).map(tuple)
FACTS = {
    "settings": {"SamplerSettings": {"temperature": 0.7, "order": ["a", "b"]}},
    "engine": "1",
    "started": 12.5,
    "x": "ü\ud800",
}


def made(ids: tuple[int, ...], negative: tuple[int, ...] = (), **facts: object) -> Provenance:
    words = tuple((id, bytes([id, 200]), id % 5 == 0) for id in dict.fromkeys(ids + negative))
    passes = (((0, max(1, len(ids) - 1)), (len(ids), 1)), *((((0, 0),),) if negative else ()))
    return Provenance(
        {**FACTS, **facts}, Rendered(ids, len(ids) % 3, bool(len(ids) % 2), negative, passes, words)
    )


@given(IDS, IDS, IDS)
def test_packing_and_unpacking_change_nothing(
    ids: tuple[int, ...], before: tuple[int, ...], negative: tuple[int, ...]
) -> None:
    origin, base = made(ids, negative), made(before, started=3)
    assert unpack(pack(origin)) == origin
    assert unpack(pack(origin, base), base) == origin
    assert unpack(pack(Provenance(FACTS), base), base) == Provenance(FACTS)
    same = next(
        (at for at, (a, b) in enumerate(zip(ids, before, strict=False)) if a != b), min(len(ids), len(before))
    )
    assert common_length(ids, before) == same


def test_damaged_data_is_rejected() -> None:
    data = pack(made((1, 2, 3)))
    assert unpack(b"") is None
    assert unpack(b"\x09" + data[1:]) is None
    assert unpack(data[:-6]) is None
    assert unpack(pack(made((1, 2, 3)), made((1, 2)))) is None, "it needs its base"


def chain(store: ConversationStore, origins: ProvenanceStore, count: int) -> dict[int, Provenance]:
    chat, parent, found, ids = store.create().id, None, {}, tuple(range(200))
    for turn in range(count):
        parent = store.add_message(chat, parent, "user", "?").id
        parent = store.add_message(chat, parent, "assistant", "!").id
        ids += tuple(range(turn, turn + 60))
        found[parent] = made(tuple(id % 40 for id in ids), started=float(turn))
        origins.save(parent, found[parent])
    return found


def test_a_chat_of_replies_is_small_and_survives_a_replaced_one(
    store: ConversationStore, database: Database
) -> None:
    origins = ProvenanceStore(database)
    found = chain(store, origins, 60)
    assert {message: origins.load(message) for message in found} == found
    rows = database.execute("SELECT depth, length(data) FROM message_origins ORDER BY message_id").fetchall()
    assert max(depth for depth, _ in rows) == 24
    assert [depth for depth, _ in rows].count(0) == 3
    assert sum(size for _, size in rows) < 60 * 260, "each costs what is new in it"
    middle = sorted(found)[30]
    found[middle] = made((5, 6, 7), started=99.0)
    origins.save(middle, found[middle])
    assert {message: origins.load(message) for message in found} == found
    database.execute("UPDATE message_origins SET data = x'0102' WHERE message_id = ?", (middle,))
    assert origins.load(middle) is None
    assert origins.load(middle + 1) is None


def test_it_is_kept_with_a_temporary_chat(database: Database) -> None:
    stores = ConversationStores(database)
    found = chain(stores.temporary, stores.provenance(1 << 30), 3)
    chat = stores.temporary.message(next(iter(found))).conversation_id
    assert not database.execute("SELECT 1 FROM message_origins").fetchall(), "nothing of it is on the disk"
    kept = stores.keep(chat)
    replies = [message.id for message in stores.kept.path(kept.id) if message.role == "assistant"]
    assert [stores.provenance(reply).load(reply) for reply in replies] == list(found.values())
    assert all(stores.provenance(message).load(message) is None for message in found)
    stores.close()
