"""Several participants and one model: messages, stops, turns, and names removed from replies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from desktop.services.session.leading_name import LeadingName
from desktop.services.session.scene import (
    AuthoredMessage,
    Scene,
    SceneParticipant,
    mentioned,
    next_in_order,
    next_participant,
    replies_since_user,
)
from desktop.store.conversations.participants import Author, Cast, name_of

ADA, BOB = SceneParticipant("Ada", "You love numbers.\nAnd more."), SceneParticipant("Bob", "A baker.", 7)
HELLO, REPLY, OTHER = (
    AuthoredMessage("user", "Hello"),
    AuthoredMessage("assistant", "Hi!", Author("Ada")),
    AuthoredMessage("assistant", "Bread?", Author("Bob", 7)),
)


def pairs(messages) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in messages if message.role != "system"]


def test_the_one_who_replies_is_the_assistant_and_all_others_are_the_user() -> None:
    said = [HELLO, REPLY, OTHER]
    ada = Scene("Be brief.", (ADA, BOB), ADA, "Cy").messages(said)
    assert pairs(ada) == [
        ("user", "Cy: Hello"),
        ("assistant", "Ada: Hi!"),
        ("user", "Bob: Bread?"),
        ("assistant", "Ada: "),
    ]
    bob = Scene("", (ADA, BOB), BOB).messages(said, begun=False)
    assert pairs(bob) == [("user", "User: Hello"), ("user", "Ada: Hi!"), ("assistant", "Bob: Bread?")]
    assert ada[0].content == (
        "Be brief.\n\nThis is a conversation between Ada, Bob and Cy.\nYou are Ada. Write only what Ada "
        "says next, in one turn.\nThe others:\nBob: A baker.\n\nYou love numbers.\nAnd more."
    )


def test_of_the_others_one_line_is_told_and_no_more_than_160_characters() -> None:
    for words, told in (("\n  A  baker.\nOf bread.", "A baker."), ("x" * 160, "x" * 160)):
        other = SceneParticipant("Bob", words)
        system = Scene("", (ADA, other), ADA).messages([HELLO])[0].content
        assert f"\nBob: {told}\n" in system
    other = SceneParticipant("Bob", "word " * 40)
    system = Scene("", (ADA, other), ADA).messages([HELLO])[0].content
    assert f"\nBob: {'word ' * 30}word…\n" in system


def test_a_renamed_persona_keeps_its_messages_and_strangers_keep_theirs() -> None:
    renamed = SceneParticipant("Robert", persona=7)
    said = [
        HELLO,
        OTHER,
        AuthoredMessage("assistant", "Old", Author("Zoe")),
        AuthoredMessage("assistant", "Older"),
    ]
    made = pairs(Scene("", (ADA, renamed), renamed, "Cy").messages(said, begun=False))
    assert made == [
        ("user", "Cy: Hello"),
        ("assistant", "Robert: Bread?"),
        ("user", "Zoe: Old"),
        ("user", "Assistant: Older"),
    ]


def test_a_user_and_one_participant_need_no_names() -> None:
    scene = Scene("", (ADA,), ADA, "Cy")
    assert pairs(scene.messages([HELLO, AuthoredMessage("assistant", "Yes?")])) == [
        ("user", "Hello"),
        ("assistant", "Yes?"),
    ]
    assert scene.system([HELLO]).startswith("This is a conversation between Ada and Cy.\nYou are Ada.")
    two = pairs(scene.messages([HELLO, AuthoredMessage("user", "Me too", Author("Di"))]))
    assert two == [("user", "Cy: Hello"), ("user", "Di: Me too"), ("assistant", "Ada: ")]


def test_a_continued_reply_is_the_last_message_and_a_user_message_comes_first() -> None:
    scene = Scene("", (ADA, BOB), ADA)
    assert pairs(scene.messages([HELLO, REPLY], goes_on=True))[-1] == ("assistant", "Ada: Hi!")
    assert pairs(scene.messages([])) == [("user", "(The conversation begins.)"), ("assistant", "Ada: ")]
    thinking = Scene("", (ADA, BOB), ADA, begins=False)
    assert pairs(thinking.messages([HELLO])) == [("user", "User: Hello")]


def test_the_reply_ends_before_another_one_speaks() -> None:
    stops = Scene("", (ADA, BOB), ADA, "Cy").stops([HELLO, AuthoredMessage("assistant", "x", Author("Zoe"))])
    assert {"\nBob:", "\nCy:", "\nZoe:", "\n**Bob:**", "\n**Bob**:"} <= set(stops)
    assert not any("Ada" in stop for stop in stops)


@pytest.mark.parametrize(("text", "expected"), [
    ("Bob, ask Ada", "Ada"), ("ada and BOB!", "Bob"), ("Bobby and Adam", None), ("", None), ("Ask Lee", None),
    ("Ann?", "Ann Lee"), ("Ann Lee", "Ann Lee"), ("Bob_", None), ("(Bob)", "Bob"),
])  # fmt: skip
def test_the_one_who_is_mentioned_last_answers(text: str, expected: str | None) -> None:
    namesake = SceneParticipant("Ann Roe")  # of two who are meant alike the first one answers
    found = mentioned(text, [ADA, BOB, SceneParticipant("Ann Lee"), namesake])
    assert (found.name if found else None) == expected


def test_the_order_of_turns() -> None:
    participants, zoe = (ADA, BOB), SceneParticipant("Zoe")
    assert next_participant(Cast(turn="hand"), participants, [HELLO]) is None
    assert next_participant(Cast(turn="turn"), (), [HELLO]) is None
    order = [
        next_in_order((*participants, zoe), said).name
        for said in ([HELLO], [HELLO, REPLY], [HELLO, REPLY, OTHER, HELLO])
    ]
    assert order == ["Ada", "Bob", "Zoe"]
    assert next_in_order(participants, [HELLO, OTHER]) is ADA
    named = Cast(turn="named")
    assert next_participant(named, participants, [AuthoredMessage("user", "Bob?")]) is BOB
    assert next_participant(named, participants, []) is next_in_order(participants, [])
    # not herself
    assert (
        next_participant(
            named, participants, [HELLO, AuthoredMessage("assistant", "I am Ada", Author("Ada"))]
        )
        is BOB
    )
    assert next_participant(named, participants, [AuthoredMessage("user", "Nobody")]) is ADA
    assert [
        replies_since_user(said) for said in ([], [HELLO], [HELLO, REPLY, OTHER], [REPLY, HELLO, OTHER])
    ] == [0, 0, 2, 1]


def through(pieces: list[str], opened: str = "", names=("Ada", "Bob", "Ada Lee")) -> tuple[str, LeadingName]:
    filter = LeadingName(names, opened, (("<think>", "</think>"),))
    return "".join(filter.feed(piece) for piece in pieces) + filter.end(), filter


CASES = [
    ("Ada: Hello", "Hello"), ("  ada:Hello", "Hello"), ("**Ada:** Hello", "Hello"),
    ("**Ada**: Hello", "Hello"), (" Bob: \n Hi", "Hi"), ("Ada Lee: x", "x"), ("Adam: x", "Adam: x"),
    ("Ada said: x", "Ada said: x"), ("\n\nYes", "Yes"), ("Ada:", ""), ("Ad", "Ad"), ("", ""),
    ("Hello\nBob: no", "Hello\nBob: no"),
    ("<think>Ada: hm</think>\n\nAda: Yes", "<think>Ada: hm</think>\n\nYes"),
    ("<think>never closed", "<think>never closed"), ("<thi", "<thi"), ("İ: x", "İ: x"),
]  # fmt: skip


@pytest.mark.slow_after(6)
@pytest.mark.parametrize(("text", "expected"), CASES)
@given(data=st.data())
def test_a_name_is_removed_however_the_text_is_split(text: str, expected: str, data) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    found, filter = through(pieces)
    assert found == expected
    assert len(text) - filter.removed == len(found)


@given(st.lists(st.text("Ada Bob:*İß<think/>\nx", max_size=9), max_size=7), st.sampled_from(["", "</think>"]))
def test_only_the_beginning_changes_however_the_text_is_split(pieces: list[str], opened: str) -> None:
    text = "".join(pieces)
    found, filter = through(pieces, opened)
    assert found == through([text], opened)[0]
    assert text.endswith(found) or filter.after_thought
    assert len(text) - filter.removed == len(found)
    if not opened and not filter.after_thought:
        assert not found.casefold().startswith(("ada:", "bob:")) or text.casefold().count(":") > 1


def test_nothing_is_removed_inside_an_opened_thought() -> None:
    assert through(["Ada: I th", "ink</thi", "nk> A", "da: So"], "</think>")[0] == "Ada: I think</think> So"


KEYS = st.sampled_from(["participants", "own", "turn", "automatic", "name", "persona", "writing_as"])
LEAF = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
ENTRY = st.dictionaries(KEYS, LEAF)
VALUE = LEAF | ENTRY | st.lists(LEAF | ENTRY, max_size=3)


@given(VALUE | st.dictionaries(KEYS, VALUE))
def test_any_json_makes_a_cast_that_survives_a_round_trip(value) -> None:
    made = Cast.of(value)
    assert Cast.read(made.text()) == made
    assert all(participant.name == name_of(participant.name) != "" for participant in made.participants)


def test_a_damaged_cast_is_empty() -> None:
    assert Cast.read("{") == Cast.read("[1]") == Cast.read("") == Cast()
    assert Cast(own=("Cy", "Di"), writing_as="Di").user == "Di"
    assert Cast(own=("Cy",), writing_as="gone").user == "Cy"
    assert name_of(" A: \n b ") == "A b"


def test_a_text_is_shown_as_soon_as_no_name_and_no_thought_can_begin_it() -> None:
    filter = LeadingName(("Ada",), "", (("<think>", "</think>"),))
    assert [filter.feed(piece) for piece in ("A", "dam", " eats")] == ["", "Adam", " eats"]
    filter = LeadingName(("Ada",), "", (("<think>", "</think>"),))
    assert [filter.feed(piece) for piece in ("<th", "e", " end")] == ["", "<the", " end"]
    filter = LeadingName(("Ada",), "", (("<think>", "</think>"),))
    shown = [filter.feed(piece) for piece in ("<think>", "a long thought", "</think>", "\n", "Ada: ", "Yes")]
    assert shown[1].startswith("<think>a long")
    assert shown[2:4] == ["", ""]  # what follows the thought may be blanks
    assert shown[5] == "Yes"
    assert "".join(shown) == "<think>a long thought</think>\nYes"


def test_a_name_at_the_end_of_a_thought_that_never_ends_stays() -> None:
    assert through(["<think>hm Ada: x"])[0] == "<think>hm Ada: x"
