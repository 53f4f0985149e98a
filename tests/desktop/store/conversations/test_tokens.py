"""Token traces: packed and unpacked unchanged, small, and kept correct through continuing, editing and
branching.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from desktop.store.conversations.conversations import ConversationStore
from desktop.store.conversations.token_trace import UNKNOWN, TokenTrace
from desktop.store.database.database import Database
from engine.core import Alternative, TokenInfo

SHARES = st.floats(0, 1, width=32)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


def pieces(ids: list[int]) -> st.SearchStrategy[list[Alternative]]:
    return st.lists(st.builds(Alternative, st.sampled_from(ids), st.just("x"), SHARES, SHARES), max_size=4)


TOKENS = st.lists(
    st.builds(
        TokenInfo, st.integers(0, 300_000), TEXTS, SHARES, SHARES, top=st.just(()),
        alternatives=pieces([1, 2, 3, 200_000]).map(tuple), entropy=SHARES,
        drafted=st.booleans(), healed=st.booleans(), seconds=SHARES,
    ),
    max_size=12,
)  # fmt: skip


KEPT = (
    "017801758e3b0e8240144567063f21b2000a0b36226e840685a1b2b7641976d6ee82840db904cf9d910489bce4ccfbcfbbd6"
    "18733bf0d4d7f1f57e3efaa6f539a90507096c600b3b504fa6bef8d33b539e532a8f7b3df10f27e5b137b023b41b3ce1f0dd"
    "230c36d56356e0a42103699d6bd9934b6f018b9b4b0d659c31d2b98afee29a4bc2afce72cc1e5581b5fb535f333279699417"
    "29d497a6ba7befbb0fc1bb1ee4"
)
"""The `sample` as version 1 of the file form has it."""


def traced(*tokens: TokenInfo, model: str = "m") -> TokenTrace:
    trace = TokenTrace(model)
    trace.extend(tokens)
    return trace


def word(id: int, text: str, *others: tuple[int, str], healed: bool = False) -> TokenInfo:
    found = tuple(Alternative(number, name, 0.25, 0.125) for number, name in ((id, text), *others))
    return TokenInfo(id, text, 0.5, 0.25, alternatives=found, entropy=1.5, healed=healed)


def all_tokens(trace: TokenTrace) -> list[TokenInfo]:
    return [trace.token(index) for index in range(len(trace))]


@pytest.mark.slow
@given(TOKENS)
def test_packing_and_unpacking_change_nothing(tokens: list[TokenInfo]) -> None:
    trace = traced(*tokens)
    found = TokenTrace.unpack(trace.pack())
    assert found is not None
    assert found.model == "m"
    assert all_tokens(found) == all_tokens(trace) == tokens
    assert found.text == trace.text == "".join(token.text for token in tokens)


def sample() -> list[TokenInfo]:
    """Tokens with different numbers of alternatives, without any, and without text."""
    return [
        word(1, "a", (12, "b")),
        word(2, ""),
        TokenInfo(3, "cé😀", 0.5, 0.25, entropy=0.5, drafted=True, seconds=1.5),
        word(4, "d", (5, "\\xff"), (6, "f"), (7, "g"), healed=True),
        TokenInfo(5, "e", 0.125, 0.0625, drafted=True, healed=True),
        word(6, "f"),
    ]


def test_parts_are_packed_and_joined_without_a_change() -> None:
    tokens = sample()
    whole = traced(*tokens)
    assert all_tokens(whole) == tokens
    assert [whole.at(place) for place in range(-1, 9)] == [-1, 0, 2, 2, 2, 3, 4, 5, -1, -1]
    for first in range(len(tokens) + 1):
        for last in range(first, len(tokens) + 2):
            part = whole.part(first, last)
            assert all_tokens(part) == tokens[first:last]
            assert part.length == len(part.text) == sum(len(token.text) for token in tokens[first:last])
            found = TokenTrace.unpack(part.pack())
            assert found is not None
            assert (all_tokens(found), found.text, found.model) == (tokens[first:last], part.text, "m")
        made = whole.part(0, first)
        made.join(whole.part(first, len(tokens)))
        assert (all_tokens(made), made.text, made.length) == (tokens, whole.text, whole.length)
        assert made.piece(7) == "g"
    made.append(word(8, "h", (9, "i")))
    assert made.token(6) == word(8, "h", (9, "i"))


def test_the_file_form_of_a_trace_does_not_change() -> None:
    """What earlier versions of the program have kept is still read."""
    kept = bytes.fromhex(KEPT)
    found = TokenTrace.unpack(kept)
    assert found is not None
    assert all_tokens(found) == sample()
    assert TokenTrace.unpack(b"\2" + kept[1:]) is None


@pytest.mark.slow
@given(TOKENS)
def test_each_character_belongs_to_its_token(tokens: list[TokenInfo]) -> None:
    trace = traced(*tokens)
    owners = [number for number, token in enumerate(tokens) for _ in token.text]
    assert [trace.at(place) for place in range(-1, len(owners) + 1)] == [-1, *owners, -1]


def test_ten_thousand_tokens_fit_into_a_megabyte() -> None:
    draw = random.Random(1)
    trace = TokenTrace("m")
    for _ in range(10_000):
        ids = [draw.randrange(50_000) for _ in range(5)]
        others = tuple(Alternative(id, f" word{id}", draw.random(), draw.random()) for id in ids)
        trace.append(
            TokenInfo(
                ids[0],
                f" word{ids[0]}",
                draw.random(),
                draw.random(),
                (),
                others,
                draw.random(),
                seconds=draw.random(),
            )
        )
    assert len(trace.pack()) < 1_000_000


@pytest.mark.parametrize("damage", [b"", b"\x01", b"\x02" + b"x" * 40, b"\x01not zlib"])
def test_a_damaged_trace_is_rejected(damage: bytes) -> None:
    assert TokenTrace.unpack(damage) is None


@pytest.mark.slow
@given(TOKENS.filter(bool), st.integers(0, 10_000), st.integers(0, 255))
def test_a_changed_byte_is_noticed(tokens: list[TokenInfo], place: int, value: int) -> None:
    data = bytearray(traced(*tokens).pack())
    data[place % len(data)] = value
    found = TokenTrace.unpack(bytes(data))
    assert found is None or all_tokens(found) == tokens  # zlib's checksum


def test_ids_are_known_until_text_without_tokens_or_a_healed_token() -> None:
    trace = traced(word(1, "a"), word(2, "b")).covering("ab, typed")
    trace.append(word(3, "c"))
    assert [trace.ids_before(index) for index in range(4)] == [(), (1,), (1, 2), None]
    assert trace.ids[2] == UNKNOWN
    healed = traced(word(1, "a"), word(2, "b", healed=True), word(3, "c"))
    assert [healed.ids_before(index) for index in range(3)] == [(), (1,), None]


def test_another_text_has_none_of_the_tokens() -> None:
    trace = traced(word(1, "a"), word(2, "b")).covering("xb")
    assert list(trace.ids) == [UNKNOWN]
    assert trace.text == "xb"


def test_a_branch_has_the_tokens_before_and_the_chosen_one() -> None:
    trace = traced(word(1, "The"), word(2, " cat", (7, " dog")), word(3, " sat"))
    branch = trace.branched("The dog", (1, 7))
    assert (list(branch.ids), branch.text, branch.model) == ([1, 7], "The dog", "m")
    chosen = branch.token(1)
    assert (chosen.raw_probability, chosen.probability, chosen.entropy) == (0.25, 0.125, 1.5)
    assert chosen.alternatives == trace.token(1).alternatives
    assert (list(trace.ids), trace.text) == ([1, 2, 3], "The cat sat")


def test_a_branch_with_unknown_ids_keeps_what_is_the_same() -> None:
    trace = traced(word(1, "The"), word(2, " cat", (7, " car")), word(3, " sat"))
    assert list(trace.branched("The car", ()).ids) == [1, UNKNOWN]
    assert trace.branched("The car", ()).text == "The car"
    assert list(trace.branched("The car", (9, 7)).ids) == [1, UNKNOWN]


def test_tokens_are_kept_and_deleted_with_their_message(store: ConversationStore, database: Database) -> None:
    conversation = store.create().id
    question = store.add_message(conversation, None, "user", "q")
    reply = store.add_message(conversation, question.id, "assistant", "", "running")
    assert store.tokens(reply.id) == b""
    store.finish(reply.id, "ab", "complete", {}, traced(word(1, "ab")).pack())
    found = TokenTrace.unpack(store.tokens(reply.id))
    assert found is not None
    assert found.text == "ab"
    store.delete_message(reply.id)
    store.undelete_message(reply.id)
    assert store.tokens(reply.id)
    database.execute("DELETE FROM conversations WHERE id = ?", (conversation,))
    assert database.execute("SELECT count(*) FROM message_tokens").fetchone() == (0,)


@pytest.mark.slow
@given(TOKENS, st.data())
def test_an_edit_keeps_exactly_the_tokens_around_it(tokens: list[TokenInfo], data: st.DataObject) -> None:
    trace = traced(*tokens)
    low = data.draw(st.integers(0, trace.length))
    high = data.draw(st.integers(low, trace.length))
    text = trace.text[:low] + data.draw(TEXTS) + trace.text[high:]
    found = trace.edited(text)
    assert found.text == text
    assert [found.end(index) - found.starts[index] >= 0 for index in range(len(found))] == [True] * len(found)
    again = TokenTrace.unpack(found.pack())
    assert again is not None
    for index in range(len(found)):
        if found.ids[index] != UNKNOWN:
            assert found.token(index) in [trace.token(place) for place in range(len(trace))]
    whole = [
        index
        for index in range(len(trace))
        if trace.end(index) <= low and trace.end(index) > trace.starts[index]
    ]
    assert [found.token(index) for index in whole] == [trace.token(index) for index in whole]


def test_two_edits_are_one_unknown_piece_and_emoji_are_single_characters() -> None:
    trace = traced(word(1, "A😀"), word(2, " b"), word(3, " c"))
    once = trace.edited("A😀x b c")
    assert list(once.ids) == [1, UNKNOWN, 2, 3]
    assert list(once.edited("A😀xy b c").ids) == [1, UNKNOWN, 2, 3]
    assert list(once.starts) == [0, 2, 3, 5]
    assert once.edited(once.text) is once
    end = traced(word(1, "a"), word(2, " b")).edited("a c")
    assert list(end.ids) == [1, UNKNOWN]
    assert list(end.edited("xa c").ids) == [UNKNOWN, 1, UNKNOWN]
    chosen = traced(word(1, "a"), word(2, " b", (9, " z"))).chosen(
        1, Alternative(9, " z", 0.25, 0.125), "a z"
    )
    assert (list(chosen.ids), chosen.text, chosen.token(1).alternatives[1].id) == ([1, 9], "a z", 9)
