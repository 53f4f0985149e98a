"""Pictures in requests, and how it is found out whether a model takes them."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from engine.core import ChatRequest, Message, Picture
from engine.errors import Cancelled
from engine.remote import Capabilities, Provider
from engine.remote.chat import RemoteChat, remote_info
from engine.remote.client import Client, RemoteModel
from engine.remote.estimate import TokenEstimate, picture_tokens
from engine.remote.picture_probe import PicturesFound, find_pictures
from engine.remote.pictures import takes_pictures
from engine.remote.request import prepare
from tests.engine.remote.fake_server import Asked, FakeServer, Reply, json_reply, serving

pytestmark = pytest.mark.loopback
CAN = Capabilities(chat=True, pictures="yes")
BEACH = Picture("beach.jpg", "k1", 640, 480, "image/jpeg", b"\xff\xd8 beach")
BOAT = Picture("boat.png", "k2", 1500, 1500, "image/png", b"\x89PNG boat")
ASKED = Message(
    "user", "[picture: beach.jpg]\n\n[picture: boat.png]\n\nWhich is older?", pictures=(BEACH, BOAT)
)


def sent(request: ChatRequest, capabilities: Capabilities) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = prepare(request, "m", capabilities, "Lab").call.body["messages"]  # type: ignore[index]
    return found


def test_pictures_are_parts_in_their_order_with_the_bytes_of_their_files() -> None:
    system = Message("system", "Be brief.")
    first, message = sent(ChatRequest((system, ASKED)), CAN)
    assert first == {"role": "system", "content": "Be brief."}
    *pictures, text = message["content"]
    assert text == {"type": "text", "text": "Which is older?"}
    urls = [part["image_url"]["url"].split(";base64,") for part in pictures]
    assert [kind for kind, _ in urls] == ["data:image/jpeg", "data:image/png"]
    assert [base64.b64decode(data) for _, data in urls] == [BEACH.data, BOAT.data]


def test_words_around_a_picture_keep_their_places() -> None:
    named = replace(ASKED, content="Ada: [picture: beach.jpg]\n\nLook", pictures=(BEACH,))
    parts = sent(ChatRequest((named,)), CAN)[0]["content"]
    assert [part.get("text", "picture") for part in parts] == ["Ada: ", "picture", "Look"]


@pytest.mark.parametrize("pictures", ["", "no"])
def test_a_model_without_pictures_reads_their_names(pictures: str) -> None:
    (message,) = sent(ChatRequest((ASKED,)), replace(CAN, pictures=pictures))
    assert message["content"] == ASKED.content


def test_a_picture_whose_bytes_are_gone_stays_a_name() -> None:
    lost = replace(ASKED, pictures=(replace(BEACH, data=b""), BOAT))
    parts = sent(ChatRequest((lost,)), CAN)[0]["content"]
    assert [part["type"] for part in parts] == ["text", "image_url", "text"]
    assert parts[0]["text"] == "[picture: beach.jpg]"


def test_tokens_of_pictures_are_estimated_and_do_not_teach_the_measure_of_texts() -> None:
    blind, seeing = TokenEstimate(), TokenEstimate(pictures=True)
    assert seeing.messages((ASKED,)) == blind.messages((ASKED,)) + picture_tokens(640, 480) + 1600
    assert picture_tokens(640, 480) == 409
    seeing.correct((ASKED,), 100_000)
    assert seeing.factor == 1.0


def test_a_prompt_with_pictures_is_not_sent_to_be_counted() -> None:
    with serving() as server:
        server.routes["/tokenize"] = lambda asked: json_reply({"count": 7})
        provider = Provider("lab", "Lab", server.url, counts_tokens=True)
        chat = RemoteChat(provider, "m", replace(CAN, tokenize="vllm"))
        size = chat.size(ChatRequest((ASKED,)))
        assert (size.exact, server.asked) == (False, [])
        assert chat.size(ChatRequest((Message("user", "Hi"),))).exact
        chat.close()


def test_the_reason_against_pictures_has_the_servers_words() -> None:
    provider = Provider("lab", "Lab", "http://127.0.0.1:1/v1")
    assert remote_info(provider, "m", CAN).why_no_pictures == ""
    no = replace(CAN, pictures="no", pictures_why="m is not a multimodal model.")
    assert remote_info(provider, "m", no).why_no_pictures == (
        "m on Lab does not accept pictures: m is not a multimodal model."
    )
    assert "Test it" in remote_info(provider, "m", Capabilities(chat=True)).why_no_pictures
    assert dict(no.rows())["Pictures"] == "no: m is not a multimodal model."
    assert Capabilities.from_json(no.to_json()) == no


@pytest.mark.parametrize(
    ("entry", "takes"),
    [
        ({"architecture": {"input_modalities": ["text", "image"], "modality": "text->text"}}, True),
        ({"architecture": {"input_modalities": ["text"]}}, False),
        ({"architecture": {"modality": "text+image->text"}}, True),
        ({"architecture": {"modality": "text->text+image"}}, False),
        ({"modalities": {"input": ["text", "image"], "output": ["text"]}}, True),
        ({"type": "vlm"}, True),
        ({"type": "llm"}, False),
        ({"type": "model"}, None),
        ({"capabilities": {"vision": True}}, True),
        ({"capabilities": {"vision": False}}, False),
        ({"capabilities": ["completion", "multimodal"]}, True),
        ({"capabilities": ["completion"]}, None),
        ({"capabilities": 7, "architecture": "llama", "modalities": None}, None),
        ({}, None),
    ],
)
def test_what_lists_of_models_say(entry: dict[str, Any], takes: bool | None) -> None:
    assert takes_pictures(entry) is takes


class Model:
    """Answers chats; `looks` says what it does with pictures."""

    def __init__(self, server: FakeServer, looks: str) -> None:
        self.looks = looks
        server.routes["/v1/chat/completions"] = self.chat

    def chat(self, asked: Asked) -> Reply:
        url = asked.body["messages"][0]["content"][0]["image_url"]["url"]
        data = base64.b64decode(url.partition(",")[2])
        if self.looks == "never" or (self.looks == "reads" and not data.startswith(b"\x89PNG")):
            return json_reply({"error": {"message": "m is not a multimodal model"}}, 400)
        if self.looks == "busy":
            return json_reply({"error": {"message": "too many requests"}}, 429)
        choice = {"index": 0, "message": {"content": "A board"}, "finish_reason": "length"}
        return json_reply({"choices": [choice]})


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving() as running:
        yield running


def looked(server: FakeServer, model: RemoteModel | None = None, name: str = "m") -> PicturesFound:
    stop = threading.Event()
    client = Client(Provider("lab", "Lab", server.url), "")

    def chat(**body: Any) -> Any:
        from engine.remote.exchange import Call

        return client.ask(Call("/chat/completions", {"model": name, "max_tokens": 1, **body}), stop)

    return find_pictures(client, model or RemoteModel(name), chat, stop)


Script = Callable[[Asked], Reply]
SAYS: list[tuple[str, Script, str]] = [
    (
        "/v1/models",
        lambda asked: json_reply({"data": [{"id": "m", "architecture": {"input_modalities": ["image"]}}]}),
        "yes",
    ),
    ("/props", lambda asked: json_reply({"modalities": {"vision": True, "audio": False}}), "yes"),
    ("/props", lambda asked: json_reply({"modalities": {"vision": False}}), "no"),
    ("/api/v0/models/m", lambda asked: json_reply({"id": "m", "type": "vlm"}), "yes"),
    (
        "/api/show",
        lambda asked: json_reply(
            {"capabilities": ["completion", "vision"] if asked.body == {"model": "m"} else []}
        ),
        "yes",
    ),
    ("/api/show", lambda asked: json_reply({"capabilities": ["completion", "tools"]}), "no"),
]


@pytest.mark.parametrize(("path", "script", "pictures"), SAYS)
def test_what_a_server_says_is_believed_and_nothing_is_tried(
    server: FakeServer, path: str, script: Script, pictures: str
) -> None:
    Model(server, "never" if pictures == "yes" else "reads")
    server.routes[path] = script
    assert looked(server).pictures == pictures
    assert server.bodies("/v1/chat/completions") == []


@pytest.mark.parametrize(
    ("looks", "found"),
    [
        ("reads", PicturesFound("yes")),
        ("ignores", PicturesFound("no", "it accepts requests with pictures, but does not read them")),
        ("never", PicturesFound("no", "m is not a multimodal model")),
        ("busy", PicturesFound("", "too many requests")),
    ],
)
def test_a_server_that_says_nothing_is_tried_with_a_picture_and_a_broken_one(
    server: FakeServer, looks: str, found: PicturesFound
) -> None:
    Model(server, looks)
    assert looked(server) == found
    assert len(server.bodies("/v1/chat/completions")) == 2


def test_looking_is_stopped_at_once(server: FakeServer) -> None:
    stop = threading.Event()
    stop.set()
    client = Client(Provider("lab", "Lab", server.url), "")
    with pytest.raises(Cancelled):
        find_pictures(client, RemoteModel("m"), lambda **body: pytest.fail("asked"), stop)
