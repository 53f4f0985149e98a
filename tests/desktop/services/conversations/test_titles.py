"""Chats are named by the loaded model: what is asked, what can be a title, when, and when not."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import pytest

from desktop.services.comparison.comparison import ComparisonService
from desktop.services.conversations import titles
from desktop.services.conversations.title_text import later_title_request, title_of, title_request
from desktop.services.conversations.titles import ChatTitles, DueTitle, ask_title
from desktop.services.session import conversations
from desktop.services.session.several import ColumnSettings
from desktop.settings import Behaviour
from desktop.store.attachments.message_format import Attachment, join
from desktop.store.conversations import messages
from desktop.store.conversations.records import StoredMessage
from desktop.store.database.database import StoreError
from engine.core import ChatRequest, Message
from engine.drain import drain
from engine.errors import ContextTooLong
from engine.settings import (
    AdapterSettings,
    ConstraintSettings,
    GuidanceSettings,
    SamplerSettings,
    SpeculationSettings,
    StopSettings,
)
from tests.desktop.fakes import ECHO_INFO, EchoChat
from tests.desktop.services.conftest import Harness
from tests.desktop.services.session.test_store_faults import failing

ASKED, REPLY = "How do I bake bread?", "Take flour, water, salt and yeast; knead the dough well."

# -- the text


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ("Baking Bread at Home", "Baking Bread at Home"),
        ("  Bread with yeast.  ", "Bread with yeast"),
        ("**Bread** and `yeast`", "Bread and yeast"),
        ("“Bread for beginners”", "Bread for beginners"),
        ("Title: Kneading dough", "Kneading dough"),
        ("# Bread\t at\u00a0home", "Bread at home"),
        ("[Bread](http://example.org/x) at home", "Bread at home"),
        ("BAKING", "BAKING"),
        ("**Bread without a pair", "Bread without a pair"),
        ("_Bread_ in C# with snake_case and __init__", "Bread in C# with snake_case and __init__"),
        ("Bread, 2*3 times", "Bread, 2*3 times"),
        ("Salt and yeast", "Salt and yeast"),
        ("Bread, an adventure", "Bread, an adventure"),
        ("Bread\x07 dough", "Bread dough"),
        (
            "How to bake bread in an oven of your own at home now",
            "How to bake bread in an oven of your own at…",
        ),
    ],
)
def test_a_usable_answer_becomes_a_title(answer: str, title: str) -> None:
    assert title_of(answer, "stop_string", ASKED, REPLY) == title
    assert title_of(answer, "stop_token", ASKED, REPLY) == title


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "stop_string"),
        ("  \"' ", "stop_string"),
        ("Bread", "max_tokens"),
        ("Bread", "cancelled"),
        ("Bread", ""),
        ("What's Your Sprite?", "stop_string"),
        ("Salt", "stop_string"),
        ("Bread is life's greatest unsung hero tale", "stop_string"),
        ("Salt, yeast, dragons, castles, knights", "stop_string"),
        ("How to have a conversation", "stop_string"),
        ("<think>The user wants bread", "stop_token"),
        ("[THINK]bread[/THINK]Bread", "stop_token"),
        ("bread " * 20, "stop_token"),
        ("ea", "stop_string"),
    ],
)
def test_an_unusable_answer_is_none(answer: str, reason: str) -> None:
    assert title_of(answer, reason, ASKED, REPLY, [("[THINK]", "[/THINK]")]) == ""


@pytest.mark.parametrize("length", [80, 81])
def test_a_title_is_no_sentence(length: int) -> None:
    found = title_of(("bread " * 20)[: length - 1] + "d", "stop_token", "bread", "")
    assert bool(found) == (length == 80)
    assert len(found) <= 48


@pytest.mark.parametrize(
    ("answer", "question", "usable"),
    [
        ("面包烘焙指南", "如何做面包？", True),
        ("天气预报", "如何做面包？", False),
        ("Выпечка хлеба", "Как испечь хлеб дома?", True),
        ("Погода завтра", "Как испечь хлеб дома?", False),
        ("서울 여행 계획", "서울 여행을 도와줘", True),
    ],
)
def test_scripts_without_spaces_and_other_alphabets(answer: str, question: str, usable: bool) -> None:
    assert title_of(answer, "stop_token", question, "") == (answer if usable else "")


def test_the_request_reads_on_and_ends() -> None:
    speculation, adapters = SpeculationSettings(method="ngram"), AdapterSettings(("/adapter=0.5",))
    asked = ChatRequest(
        (Message("system", "Be brief."), Message("user", "Hi"), Message("assistant", "Well,")),
        SamplerSettings(temperature=1.5, seed=3),
        StopSettings(max_tokens=4000),
        continue_last=True,
        continue_ids=(1, 2),
        speculation=speculation,
        adapters=adapters,
        constraint=ConstraintSettings(banned_strings=("word",)),
        guidance=GuidanceSettings(cfg_scale=2.0),
        report_prompt=True,
    )
    found = title_request(asked, "Well, hello!")
    assert found.messages[:3] == (*asked.messages[:2], Message("assistant", "Well, hello!"))
    assert [message.role for message in found.messages[3:]] == ["user", "assistant"]
    assert found.continue_last
    assert found.continue_ids == ()
    assert found.priority == -1
    assert found.sampler.temperature == 0
    assert found.stops.max_tokens == 24
    assert "\n" in found.stops.stop_strings
    assert found.stops.when_full == "stop", "nothing is read again for a title"
    assert (found.speculation, found.adapters) == (speculation, adapters)
    assert found.guidance.cfg_scale == 1.0
    assert found.constraint == ConstraintSettings(heal=False)
    assert not found.report_prompt


def test_of_a_long_chat_the_ends_are_read() -> None:
    texts = [f"{number} {'word ' * 400}" for number in range(40)]
    path = [
        StoredMessage(number, 1, None, ("user", "assistant")[number % 2], text, "complete", 0.0, {})
        for number, text in enumerate(texts)
    ]
    attached = join([Attachment("long.txt", "of the file " * 100)], "What is in it?")
    path[0] = dataclasses.replace(path[0], text=attached)
    adapters = AdapterSettings(("/adapter=0.5",))
    request, question, reply = later_title_request(path, adapters, SpeculationSettings(method="ngram"))
    text = request.messages[0].content
    assert text.startswith("user: What is in it?\n\nassistant: 1 word")
    assert [f": {number} word" in text for number in (1, 2, 35, 36, 39)] == [True, False, False, True, True]
    assert len(text) < 4000
    assert question.startswith("What is in it?\n36 word")
    assert reply.startswith("1 word")
    assert (request.adapters, request.speculation.method) == (adapters, "ngram")
    assert request.continue_last


# -- the service


class Titled:
    """A harness whose model says the words of the chat, and `answer` where a title is asked for."""

    def __init__(self, harness: Harness) -> None:
        self.harness, self.session = harness, harness.session
        self.titles = ChatTitles(harness.session, harness.session)
        self.answer = "On apples"
        self.hold: threading.Event | None = None
        self.asked: list[ChatRequest] = []
        self.error: Exception | None = None
        stream, chat = type(harness.chat).stream, harness.chat

        def answered(request: ChatRequest, stop: threading.Event) -> object:
            if request.priority != -1:
                return stream(chat, request, stop)
            self.asked.append(request)
            said = dataclasses.replace(
                chat, reply=self.answer, hold=self.hold, ending=("stop_string", '"'), error=self.error
            )
            return stream(said, dataclasses.replace(request, continue_last=False), stop)

        chat.stream = answered  # type: ignore[method-assign, assignment]

    def wait(self, reached: Callable[[], bool]) -> None:
        self.harness.qtbot.waitUntil(reached)

    def settled(self) -> None:
        self.wait(lambda: not self.session.busy and not self.titles.waiting)

    def title(self, chat: int = 0) -> str:
        return self.harness.store.get(chat or self.session.conversation).title

    def set(self, **changes: object) -> None:
        behaviour = self.session.settings(Behaviour)
        self.session.set_settings(dataclasses.replace(behaviour, **changes))


@pytest.fixture
def titled(talking: Harness) -> Titled:
    return Titled(talking)


def test_a_chat_is_named_after_its_first_reply(titled: Titled) -> None:
    harness = titled.harness
    harness.ask("tell me about apples")
    titled.settled()
    assert titled.title() == titled.session.title == "On apples"
    assert harness.said["title_changed"][-1] == ("On apples",)
    assert [row.title for row in titled.session.conversations.summaries()] == ["On apples"]
    assert [message.content for message in titled.asked[0].messages][:2] == ["tell me about apples"] * 2
    titled.answer = "More apples"
    harness.ask("and apples again")
    titled.settled()
    assert len(titled.asked) == 1, "only the first reply"
    assert titled.session.rename_conversation(titled.session.conversation, "")
    assert titled.title() == "tell me about apples", "an empty name brings the first words back"


def test_without_a_usable_answer_the_first_words_stay(titled: Titled) -> None:
    titled.answer = "Something else entirely"
    titled.harness.ask("tell me about apples")
    titled.settled()
    assert len(titled.asked) == 1
    assert titled.title() == "tell me about apples"


def test_a_long_chat_without_a_title_is_not_read_again_with_each_reply(
    titled: Titled, monkeypatch: pytest.MonkeyPatch
) -> None:
    titled.answer = "Something else entirely"
    titled.harness.ask("tell me about apples")
    titled.settled()
    store, chat = titled.harness.store, titled.session.conversation
    last = store.path(chat)[-1].id
    for number in range(200):
        last = store.add_message(chat, last, "assistant" if number % 2 else "user", f"text {number}").id
    assert titled.session.open_conversation(chat)
    read: list[int] = []
    one = messages._message
    monkeypatch.setattr(
        messages, "_message", lambda row, variants: (read.append(row[0]), one(row, variants))[1]
    )
    titled.harness.ask("and pears")
    titled.settled()
    assert len(titled.asked) == 1
    assert 0 < len(read) <= 25


def test_a_title_of_the_users_own_stays(titled: Titled) -> None:
    titled.hold = threading.Event()
    titled.harness.ask("tell me about apples")
    titled.wait(lambda: bool(titled.asked))
    assert titled.session.rename_conversation(titled.session.conversation, "Mine")
    titled.hold.set()
    titled.settled()
    assert titled.title() == "Mine"
    titled.session.new_conversation()
    titled.hold = gate = titled.harness.chat.hold = threading.Event()
    assert titled.session.submit("more about apples")
    assert titled.session.rename_conversation(titled.session.conversation, "Mine too")
    gate.set()
    titled.settled()
    assert len(titled.asked) == 1, "it was not even asked"


def test_it_can_be_switched_off(titled: Titled) -> None:
    titled.set(model_titles=False)
    titled.harness.ask("tell me about apples")
    titled.settled()
    assert titled.asked == []
    assert titled.title() == "tell me about apples"


def test_a_temporary_chat_is_never_named(titled: Titled) -> None:
    assert titled.session.new_temporary()
    titled.harness.ask("tell me about apples")
    titled.settled()
    assert titled.asked == []


@pytest.mark.parametrize("facts", [{"has_chat_template": False}, {"backend": "remote"}])
def test_a_base_model_and_one_elsewhere_are_not_asked(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any]
) -> None:
    titled = Titled(harness)
    info = dataclasses.replace(ECHO_INFO, path="/models/echo.gguf", **facts)
    monkeypatch.setattr(harness.echo, "describe", lambda path: info)
    harness.load()
    harness.ask("tell me about apples")
    titled.settled()
    assert titled.asked == []
    assert titled.title() == "tell me about apples"


@pytest.mark.parametrize("how", ["stopped", "failed", "empty"])
def test_a_reply_that_says_nothing_gives_no_title(titled: Titled, how: str) -> None:
    harness = titled.harness
    if how == "stopped":
        harness.chat.hold = threading.Event()
    elif how == "failed":
        harness.chat.error = ContextTooLong("It is too long.")
    else:
        harness.chat.reply = ""
    assert titled.session.submit("tell me about apples")
    if how == "stopped":
        titled.session.stop()
    titled.settled()
    assert titled.asked == []


def test_an_answer_that_fails_is_no_trouble(titled: Titled) -> None:
    titled.error = ContextTooLong("It is too long.")
    titled.harness.ask("tell me about apples")
    titled.settled()
    assert titled.title() == "tell me about apples"
    assert titled.harness.notices() == []
    assert not titled.session.replies.engine.needs_reload


def test_a_message_does_not_wait_for_a_title(titled: Titled) -> None:
    titled.hold = threading.Event()
    titled.harness.ask("tell me about apples")
    titled.wait(lambda: bool(titled.asked))
    assert titled.session.state == "idle"
    assert not titled.session.busy
    titled.harness.ask("and pears")
    assert titled.harness.texts()[-1] == "and pears"
    assert titled.title() == "tell me about apples"
    titled.hold.set()
    titled.settled()
    assert titled.title() == "On apples"


def test_a_reply_with_other_adapters_goes_before_the_title(titled: Titled) -> None:
    titled.hold = threading.Event()
    titled.harness.ask("tell me about apples")
    titled.wait(lambda: bool(titled.asked))
    titled.session.set_settings(AdapterSettings(("/adapters/other",)))
    titled.harness.ask("and pears")
    titled.hold.set()
    titled.settled()
    assert len(titled.asked) == 2, "the first one was ended for the reply, and asked again"
    assert titled.title() == "On apples"


@pytest.mark.parametrize("other", ["/models/second.gguf", ""])
def test_another_model_is_not_asked(titled: Titled, other: str) -> None:
    titled.hold = threading.Event()
    chat = titled.session.conversation
    titled.harness.ask("tell me about apples")
    titled.wait(lambda: bool(titled.asked))
    if other:
        titled.harness.load(other)
    else:
        titled.session.unload_model()
        titled.wait(lambda: titled.session.state == "no_model")
    titled.hold.set()
    titled.settled()
    assert len(titled.asked) == 1
    assert titled.title(chat) == "tell me about apples"


def test_a_question_in_the_queue_is_not_asked_of_another_model() -> None:
    due = DueTitle(1, "/models/first.gguf", ChatRequest((Message("user", "apples"),)), "apples", "")
    other = EchoChat(dataclasses.replace(ECHO_INFO, path="/models/second.gguf"))
    assert drain(ask_title(other, due, threading.Event())) is None
    assert other.requests == []
    same = EchoChat(dataclasses.replace(ECHO_INFO, path="/models/first.gguf"))
    assert drain(ask_title(same, due, threading.Event())) == ("apples", "stop_token")
    stopped = threading.Event()
    stopped.set()
    assert drain(ask_title(same, due, stopped)) is None


@pytest.mark.parametrize("moment", ["before", "during"])
def test_a_deleted_chat_gets_no_title(titled: Titled, moment: str) -> None:
    harness, chat = titled.harness, titled.session.conversation
    if moment == "during":
        titled.hold = threading.Event()
        harness.ask("tell me about apples")
        titled.wait(lambda: bool(titled.asked))
    else:
        gate = harness.chat.hold = threading.Event()
        assert titled.session.submit("tell me about apples")
        titled.wait(lambda: len(harness.chat.requests) == 1)
    assert titled.session.delete_conversation(chat)
    assert titled.titles.waiting == ()
    if moment == "before":
        gate.set()
    titled.settled()
    assert len(titled.asked) == (moment == "during")
    assert titled.title(chat) == "tell me about apples"


def test_another_file_forgets_what_is_due(titled: Titled) -> None:
    titled.hold = threading.Event()
    titled.harness.ask("tell me about apples")
    titled.wait(lambda: bool(titled.asked))
    assert titled.session.start_again()
    titled.hold.set()
    titled.settled()
    assert titled.title() == "tell me about apples"


def test_several_chats_are_named_one_after_another(titled: Titled) -> None:
    titled.hold = threading.Event()
    chats = []
    for _ in range(3):
        titled.session.new_conversation()
        titled.harness.ask("tell me about apples")
        chats.append(titled.session.conversation)
    titled.wait(lambda: titled.titles.waiting == tuple(chats))
    assert len(titled.asked) == 1
    titled.hold.set()
    titled.settled()
    assert [titled.title(chat) for chat in chats] == ["On apples"] * 3


def test_several_replies_to_the_first_message_give_one_title(titled: Titled) -> None:
    service = ComparisonService(titled.session, titled.session)
    titled.hold = threading.Event()
    assert service.submit("tell me about apples", [ColumnSettings(seed=1), ColumnSettings(seed=2)])
    titled.wait(lambda: not titled.session.busy and bool(titled.asked))
    titled.hold.set()
    titled.settled()
    assert len(titled.asked) == 1
    assert titled.title() == "On apples"


def test_a_store_that_fails_costs_the_title_only(titled: Titled, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_what: object) -> bool:
        raise StoreError("The disk went away.")

    with monkeypatch.context() as broken:
        broken.setattr(titles, "is_untitled", fail)
        titled.harness.ask("tell me about apples")
        titled.settled()
    assert titled.asked == []
    assert titled.harness.notices() == []
    titled.session.new_conversation()
    with monkeypatch.context() as broken:
        broken.setattr(conversations, "set_model_title", fail)
        titled.harness.ask("tell me about apples")
        titled.settled()
    assert titled.title() == "tell me about apples"
    assert titled.harness.texts() == ["tell me about apples"] * 2


def test_a_title_at_every_call_of_the_store(titled: Titled, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reply is always saved; the chat has its first words or the title."""
    harness, call, named = titled.harness, 0, 0
    while True:
        call += 1
        assert titled.session.new_conversation()
        chat = titled.session.conversation
        harness.chat.hold = threading.Event()
        assert titled.session.submit("tell me about apples")
        with failing(monkeypatch, call) as asked:
            harness.chat.hold.set()
            titled.settled()
        assert titled.session.save_replies() == {}
        texts = [(message.text, message.state) for message in harness.store.path(chat)]
        assert texts == [("tell me about apples", "complete")] * 2, call
        assert titled.title(chat) in ("tell me about apples", "On apples"), call
        named += titled.title(chat) == "On apples"
        if asked() < call:
            break
    assert named > 3
    assert call > named + 2


def test_closing_ends_the_title(titled: Titled) -> None:
    titled.hold = threading.Event()
    titled.harness.ask("tell me about apples")
    titled.wait(lambda: bool(titled.asked))
    assert titled.titles.close()
    titled.harness.close_session()
    assert titled.title() == "tell me about apples"
