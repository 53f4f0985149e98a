"""Which turns are left out of a full context, and replies in their own tokens."""

from __future__ import annotations

import itertools

import pytest

from engine.core import Message
from engine.errors import ContextTooLong
from engine.generator.prompt.context import OldestFirst, WrittenReplies, reply_room, turns
from tests.engine.generator.fakes import tokenizer


def encode(messages):
    """As many ids as the contents say, and one for each message."""
    return [0] * sum(1 + int(message.content) for message in messages)


def talk(*sizes, system=9):
    """A system message, then user and assistant in turn."""
    roles = ["user", "assistant"] * len(sizes)
    return [Message("system", str(system))] + [
        Message(role, str(size)) for role, size in zip(roles, sizes, strict=False)
    ]


def test_reply_room():
    assert (reply_room(8192, 100), reply_room(8192, 5000), reply_room(8192, 0)) == (100, 2048, 2048)


def test_turns_go_together():
    roles = ["system", "assistant", "user", "assistant", "tool", "assistant", "system", "user", "user"]
    assert turns([Message(role, "") for role in roles]) == [[1], [2, 3, 4, 5], [7], [8]]


def test_nothing_is_left_out_while_it_fits():
    assert OldestFirst(800).fit(talk(99, 99, 99), encode, 200) == (0, [0] * 310)
    assert OldestFirst(510).fit(talk(99, 99, 99), encode, 200)[0] == 0
    assert OldestFirst(509).fit(talk(99, 99, 99), encode, 200)[0] == 2


def test_a_message_alone_stays_where_it_leaves_less_than_the_usual_room():
    assert OldestFirst(400).fit(talk(380), encode, 100) == (0, [0] * 391)


def test_oldest_turns_go_first_whole_and_never_the_system_prompt():
    messages = talk(*[99] * 9)
    dropped, ids = OldestFirst(800).fit(messages, encode, 100)
    assert (dropped, len(ids)) == (4, 510)
    assert len(ids) + 100 + 800 // 8 <= 800


def test_the_cut_stays_for_several_turns():
    window, cuts = OldestFirst(1600), []
    for turn in range(5, 30):
        dropped, ids = window.fit(talk(*[99] * (2 * turn + 1)), encode, 100)
        assert len(ids) + 100 <= 1600
        cuts.append(dropped)
    assert cuts == sorted(cuts)
    changes = sum(a != b for a, b in itertools.pairwise(cuts))
    assert changes < len(cuts) / 2 + 1
    assert window.fit(talk(1, 1, 1), encode, 100)[0] == 0
    assert window.fit(talk(*[98] * 41), encode, 100)[0] == min(
        cut for cut in range(0, 42, 2) if 10 + (41 - cut) * 99 + 300 <= 1600
    )


def test_the_last_message_may_take_the_replys_room_but_not_more():
    assert OldestFirst(400).fit(talk(50, 50, 380), encode, 100) == (2, [0] * 391)
    assert OldestFirst(391).fit(talk(50, 50, 380), encode, 100) == (2, [0] * 391)
    words = (
        r"has 431 tokens, but the context holds 400, of which 100 are reserved for the reply; "
        r"shorten it by 131 "
    )
    with pytest.raises(ContextTooLong, match=words):
        OldestFirst(400).fit(talk(50, 50, 420), encode, 100)
    with pytest.raises(ContextTooLong):
        OldestFirst(400).fit([Message("system", "500")], encode, 100)


def test_a_long_conversation_is_encoded_whole_once_and_its_end_in_short_parts():
    encoded: list[int] = []

    def counted(messages):
        encoded.append(len(encode(messages)))
        return encode(messages)

    messages = talk(*[99] * 2001)
    dropped, ids = OldestFirst(8192).fit(messages, counted, 2048)
    most = 8192 - 2048 - 8192 // 8
    assert len(ids) + 200 > most >= len(ids)
    assert dropped == 2001 - (len(ids) - 10) // 100
    assert encoded[0] == 200_110
    assert max(encoded[1:]) < 2 * 8192
    assert len(encoded) < 12

    encoded.clear()
    with pytest.raises(ContextTooLong):
        OldestFirst(8192).fit(talk(*[99] * 2000, 250_000), counted, 2048)
    assert len(encoded) == 3


def test_an_open_reply_keeps_its_question():
    messages = [*talk(99, 99, 99), Message("assistant", "50")]
    assert OldestFirst(300).fit(messages, encode, 10)[0] == 2


# Replies in their own tokens


def ids(text):
    return tokenizer().encode(text, special=True)


START, END = (
    "<|im_start|>assistant\n",
    "<|im_end|>\n<|im_start|>user\nnext<|im_end|>\n<|im_start|>assistant\n",
)


def odd(text):
    """`text` byte by byte: never what the tokenizer gives."""
    alphabet = {tokenizer().token_bytes(i): i for i in range(tokenizer().vocab_size)}
    return [alphabet[bytes([byte])] for byte in text.encode()]


def test_a_reply_gets_its_own_tokens_back():
    written = WrittenReplies(tokenizer())
    prompt = ids(START)
    written.remember(prompt, odd("the quick"))
    again = ids(START + "the quick" + END)
    assert written.restore(again) == prompt + odd("the quick") + ids(END) != again
    for other in (START + "the quick fox" + END, START + "the quic" + END, "a" + START + "the quick" + END):
        assert written.restore(ids(other)) == ids(other)


def test_several_replies_and_a_continued_one():
    written = WrittenReplies(tokenizer())
    first = ids(START)
    written.remember(first, odd("the"))
    second = written.restore(ids(START + "the" + END))
    written.remember(second, odd("quick"))
    opened = written.restore(ids(START + "the" + END + "quick"))
    assert opened == second + odd("quick")
    written.remember(opened, odd(" brown"))
    assert written.restore(ids(START + "the" + END + "quick brown" + END)) == second + odd(
        "quick brown"
    ) + ids(END)


def test_replies_with_control_tokens_are_not_remembered():
    written = WrittenReplies(tokenizer())
    written.remember(ids(START), [*odd("a"), *ids("<|user|>"), *odd("b")])
    assert written.restore(ids(START + "a" + END)) == ids(START + "a" + END)


def test_the_memory_is_bounded():
    written = WrittenReplies(tokenizer(), keep=3)
    for turn in "abcde":
        written.remember(ids(turn + START), odd("the"))
    kept = [
        turn for turn in "abcde" if written.restore(ids(turn + START + "the")) != ids(turn + START + "the")
    ]
    assert kept == list("cde")
