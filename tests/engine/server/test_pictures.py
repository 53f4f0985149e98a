"""Pictures in the requests of every API, and the sentences about those that cannot be read."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from PIL import Image

from engine.core import ChatRequest, Message, Picture
from engine.server.failure import ApiError
from engine.server.fields import Fields
from engine.server.gemini.request import asked_of
from engine.server.host import ServedModel
from engine.server.kept_files import KeptFiles
from engine.server.lm_studio.chat import studio_call
from engine.server.lm_studio.sockets.settings import prediction_of
from engine.server.ollama.conversation import chat_request, text_request
from engine.server.openai.chat import chat_call
from engine.server.pictures import MOST, decoded, message_of, parts_of
from engine.server.responses.create import response_call
from engine.server.responses.stored import StoredResponses
from tests.engine.server.lm_studio.wire import ANY, BRIEF, Wire, layers
from tests.engine.server.served import Served, ask
from tests.engine.vision.tiny.chats import Reply, asked
from tests.engine.vision.tiny.families import FAMILIES

SEES = ServedModel("tiny", loaded=True, context_length=1024, reads_pictures=True)
BLIND = ServedModel("tiny", loaded=True, context_length=1024)


def file_of(colour: tuple[int, int, int] = (200, 30, 60), kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (30, 20), colour).save(out, kind)
    return out.getvalue()


PNG, JPEG = file_of(), file_of((0, 90, 10), "JPEG")
CODED = base64.b64encode(PNG).decode()
URL = f"data:image/png;base64,{CODED}"
OTHER = "data:image/jpeg;base64," + base64.b64encode(JPEG).decode()
FOUND = Picture("", "", 30, 20, "image/png", PNG)
OTHERS = Picture("", "", 30, 20, "image/jpeg", JPEG)
SEEN = Message("user", "See [picture] and [picture].", pictures=(FOUND, OTHERS))
PARTS = [
    {"type": "text", "text": "See "}, {"type": "image_url", "image_url": {"url": URL, "detail": "low"}},
    {"type": "text", "text": " and "}, {"type": "image_url", "image_url": OTHER},
    {"type": "text", "text": "."},
]  # fmt: skip


def of_chat(*parts: Any, model: ServedModel = SEES) -> Message:
    body = Fields({"messages": [{"role": "user", "content": list(parts)}]})
    return chat_call(body, model, 1).requests[0].messages[0]


def of_responses(*parts: Any, model: ServedModel = SEES) -> Message:
    body = Fields({"input": [{"role": "user", "content": list(parts)}]})
    request = response_call(body, model, StoredResponses()).request
    assert request is not None
    return request.messages[0]


def of_gemini(*parts: Any, model: ServedModel = SEES) -> Message:
    return (
        asked_of(Fields({"contents": [{"role": "user", "parts": list(parts)}]}), model, 1)
        .requests[0]
        .messages[0]
    )


def test_parts_of_chats_and_of_responses() -> None:
    assert of_chat(*PARTS) == SEEN
    assert of_responses(
        {"type": "input_text", "text": "See "}, {"type": "input_image", "image_url": URL, "detail": "auto"},
        {"type": "input_text", "text": " and "}, {"type": "input_image", "image_url": OTHER},
        {"type": "input_text", "text": "."},
    ) == SEEN  # fmt: skip


def test_parts_of_googles_contents() -> None:
    blob = {"mimeType": "image/png", "data": CODED}
    other = {"mime_type": "image/jpeg", "data": base64.urlsafe_b64encode(JPEG).decode().rstrip("=")}
    found = of_gemini(
        {"text": "See "}, {"inlineData": blob}, {"text": " and "}, {"inline_data": other}, {"text": "."}
    )
    assert found == SEEN


def test_images_of_ollama_come_before_the_text() -> None:
    body = Fields({"messages": [{"role": "user", "content": "Hi", "images": [CODED, URL]}]})
    request = chat_request(body, SEES)
    assert request is not None
    assert request.messages == (Message("user", "[picture]\n[picture]\nHi", pictures=(FOUND, FOUND)),)
    request = text_request(Fields({"prompt": "Hi", "system": "Be brief.", "images": [CODED]}), SEES)
    assert request is not None
    assert request.messages[1] == Message("user", "[picture]\nHi", pictures=(FOUND,))


def test_parts_of_lm_studios_input() -> None:
    parts = [{"type": "message", "content": "Hi"}, {"type": "image", "data_url": URL}]
    request = studio_call(Fields({"input": parts}), SEES, StoredResponses()).request
    assert request.messages == (Message("user", "Hi\n[picture]", pictures=(FOUND,)),)


def test_files_of_lm_studios_sdks() -> None:
    files = KeptFiles()
    kept = files.keep(URL, len(PNG))
    part = {"type": "file", "name": "a.png", "identifier": kept.id, "sizeBytes": 3, "fileType": "image"}
    content = [{"type": "text", "text": "Hi "}, part]
    fields = prediction_of(
        Fields({"history": {"messages": [{"role": "user", "content": content}]}}), files
    ).fields
    assert chat_call(fields, SEES, 1).requests[0].messages == (
        Message("user", "Hi [picture]", pictures=(FOUND,)),
    )  # fmt: skip


def test_the_least_recently_used_files_are_forgotten() -> None:
    files = KeptFiles(most_bytes=30)
    first, second = files.keep("a" * 12, 9), files.keep("b" * 12, 9)
    assert files.get(first.id) is first
    third = files.keep("c" * 12, 9)
    assert [files.get(one.id) is one for one in (first, second, third)] == [True, False, True]
    large = files.keep("d" * 50, 9)  # the last one stays, however large it is
    assert [files.get(one.id) is one for one in (first, third, large)] == [False, False, True]


def test_words_in_the_text_are_no_picture() -> None:
    message = message_of(["A [picture] and [picture: 1]: ", FOUND, "[picture: 3]"])
    assert message.content == "A [picture] and [picture: 1]: [picture: 2][picture: 3]"
    named = replace(FOUND, name="2")
    assert message.pictures == (named,)
    assert [*parts_of(message)] == ["A [picture] and [picture: 1]: ", named, "[picture: 3]"]


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("https://example.org/a.png", "is an https address, but this server fetches nothing from other"),
        (
            "file:///etc/passwd",
            "'file:///etc/passwd', not the address of a picture; send the picture itself as",
        ),
        ("data:image/png,abc", "is a data: address without base64; send it as"),
        ("data:image/png;base64", "is a data: address without base64; send it as"),
        ("data:image/png;base64,a", "is not base64, but the bytes of a picture file as base64 were expected"),
        ("data:image/png;base64,é", "is not base64"),
        ("data:image/png;base64," + base64.b64encode(b"text").decode(), "The picture cannot be read"),
        ("data:image/png;base64," + base64.b64encode(PNG[:30]).decode(), "The picture cannot be read"),
        ("data:image/png;base64,", "The picture cannot be read"),
        ("data:image/png;base64," + "AAAA" * (7 << 20), "has 22.0 MB, but at most 21 MB are read"),
        ("", "is '', not the address of a picture"),
    ],
)
def test_what_is_no_picture_is_refused(address: str, sentence: str) -> None:
    with pytest.raises(ApiError) as refused:
        of_chat({"type": "image_url", "image_url": {"url": address}})
    failure = refused.value.failure
    assert sentence in failure.message
    assert (failure.status, failure.param) == (400, "messages[0].content[0].image_url.url")


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        ({"type": "input_audio"}, "this model reads text and pictures only; send parts of type"),
        ({"type": "input_image", "file_id": "f"}, "file_id is not supported: this server keeps no files"),
        ({"type": "image_url"}, "image_url is missing; an object with the url of a picture was expected"),
        ({"type": "image_url", "image_url": {"url": 3}}, "image_url.url is 3, but a text was expected"),
    ],
)
def test_other_parts_are_refused(part: Any, sentence: str) -> None:
    with pytest.raises(ApiError, match=sentence):
        of_chat(part)


def test_googles_other_parts_are_refused() -> None:
    for part in (
        {"fileData": {"fileUri": "https://a"}},
        {"inlineData": {"mimeType": "audio/wav", "data": "AAAA"}},
    ):
        with pytest.raises(ApiError, match="whose mimeType begins with image/"):
            of_gemini(part)


@pytest.mark.parametrize("role", ["system", "assistant"])
def test_only_the_user_has_pictures(role: str) -> None:
    body = Fields({"messages": [{"role": role, "content": PARTS[1:2]}]})
    with pytest.raises(ApiError, match="but only text can be read here"):
        chat_call(body, SEES, 1)
    body = Fields({"messages": [{"role": role, "content": "Hi", "images": [CODED]}]})
    with pytest.raises(ApiError, match="only messages of the user can have pictures"):
        chat_request(body, SEES)


def test_too_many_pictures() -> None:
    assert len(of_chat(*PARTS[1:2] * MOST).pictures) == MOST
    with pytest.raises(ApiError, match="messages has 33 pictures, but a request may have at most 32"):
        of_chat(*PARTS[1:2] * (MOST + 1))
    with pytest.raises(ApiError, match="images has 33 pictures"):
        text_request(Fields({"prompt": "Hi", "images": [CODED] * (MOST + 1)}), SEES)


def test_a_model_that_reads_text_only_says_so() -> None:
    with pytest.raises(ApiError, match="this model reads text only"):
        of_chat(*PARTS, model=BLIND)
    with pytest.raises(ApiError, match="this model reads text only"):
        of_responses({"type": "input_image", "image_url": URL}, model=BLIND)
    with pytest.raises(ApiError, match="this model reads text only"):
        of_gemini({"inlineData": {"mimeType": "image/png", "data": CODED}}, model=BLIND)
    with pytest.raises(ApiError, match="this model reads text only"):
        chat_request(Fields({"messages": [{"role": "user", "content": "Hi", "images": [CODED]}]}), BLIND)
    with pytest.raises(ApiError, match="this model reads text only"):
        studio_call(Fields({"input": [{"type": "image", "data_url": URL}]}), BLIND, StoredResponses())


def test_images_of_ollama_are_texts_and_need_the_template() -> None:
    with pytest.raises(ApiError, match="images is 3, but a list of pictures in base64 was expected"):
        text_request(Fields({"prompt": "Hi", "images": 3}), SEES)
    with pytest.raises(ApiError, match="leave out raw and suffix"):
        text_request(Fields({"prompt": "Hi", "raw": True, "images": [CODED]}), SEES)


def test_blanks_and_both_alphabets_of_base64() -> None:
    lines = "\n".join(CODED[at : at + 60] for at in range(0, len(CODED), 60))
    assert decoded(lines, "x") == FOUND
    assert decoded(base64.urlsafe_b64encode(JPEG).decode().rstrip("="), "x") == OTHERS


# -- through the server


@pytest.fixture
def seeing(served: Served, monkeypatch: pytest.MonkeyPatch) -> list[ChatRequest]:
    """The requests that the model of `served` gets, which says that it reads pictures."""
    requests: list[ChatRequest] = []
    chat, loaded = served.chat, served.host._loaded
    assert loaded is not None
    real = type(chat).stream

    def stream(request: ChatRequest, stop: Any) -> Any:
        requests.append(request)
        return real(chat, request, stop)

    monkeypatch.setattr(chat, "stream", stream)
    monkeypatch.setattr(chat, "info", replace(chat.info, reads_pictures=True))
    capabilities = (*loaded.capabilities, "vision")
    seen = replace(loaded, reads_pictures=True, capabilities=capabilities)
    monkeypatch.setattr(served.host, "_loaded", seen)
    return requests


pictured = Message("user", "Hi[picture]", pictures=(FOUND,))
TEXT, IMAGE = {"type": "text", "text": "Hi"}, PARTS[1]
BLOCK = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": CODED}}
BODIES: dict[str, Any] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": [TEXT, IMAGE]}], "max_tokens": 2},
    "/api/v0/chat/completions": {"messages": [{"role": "user", "content": [TEXT, IMAGE]}], "max_tokens": 2},
    "/v1/responses": {"input": [{"role": "user", "content": [TEXT, IMAGE]}], "max_output_tokens": 2},
    "/v1/messages": {"messages": [{"role": "user", "content": [TEXT, BLOCK]}], "max_tokens": 2},
    "/v1beta/models/tiny:generateContent": {
        "contents": [{"parts": [{"text": "Hi"}, {"inlineData": {"mimeType": "image/png", "data": CODED}}]}],
        "generationConfig": {"maxOutputTokens": 2},
    },
    "/api/chat": {
        "messages": [{"role": "user", "content": "Hi", "images": [CODED]}], "options": {"num_predict": 2},
        "stream": False,
    },
    "/api/generate": {"prompt": "Hi", "images": [CODED], "options": {"num_predict": 2}, "stream": False},
    "/api/v1/chat": {
        "input": [{"type": "text", "content": "Hi"}, {"type": "image", "data_url": URL}],
        "max_output_tokens": 2,
    },
}  # fmt: skip


@pytest.mark.loopback
@pytest.mark.parametrize("path", BODIES)
def test_the_model_gets_the_picture(served: Served, seeing: list[ChatRequest], path: str) -> None:
    assert ask(served, path, BODIES[path]).status == 200
    (request,) = seeing
    (message,) = request.messages
    assert (message.pictures, message.role) == ((FOUND,), "user")
    assert "Hi" in message.content
    assert "[picture]" in message.content


@pytest.mark.loopback
@pytest.mark.parametrize("path", BODIES)
def test_a_blind_model_refuses_with_the_form_of_the_api(served: Served, path: str) -> None:
    answer = ask(served, path, BODIES[path])
    assert answer.status == 400
    error = answer.json["error"]
    assert "reads text only" in (error if isinstance(error, str) else error["message"])


@pytest.mark.loopback
def test_anthropics_blocks_are_joined_and_name_no_address(served: Served, seeing: list[ChatRequest]) -> None:
    path, head = "/v1/messages", {"max_tokens": 2}
    messages = [
        {"role": "user", "content": "One"}, {"role": "user", "content": [BLOCK, TEXT]},
        {"role": "assistant", "content": "Two"}, {"role": "user", "content": "Three"},
    ]  # fmt: skip
    assert ask(served, path, {"messages": messages, **head}).status == 200
    assert seeing[0].messages[0] == Message("user", "One\n\n[picture]\n\nHi", pictures=(FOUND,))
    for source, sentence in (
        ({"type": "url", "url": "https://a.example/a.png"}, "this server fetches nothing"),
        ({"type": "file", "file_id": "a"}, 'but "base64" was expected'),
        ({"type": "base64", "data": "AAAA"}, "The picture cannot be read"),
    ):
        body = {"messages": [{"role": "user", "content": [{"type": "image", "source": source}]}], **head}
        answer = ask(served, path, body)
        assert (answer.status, answer.json["type"]) == (400, "error")
        assert sentence in answer.json["error"]["message"]


@pytest.mark.loopback
def test_a_response_keeps_its_pictures(served: Served, seeing: list[ChatRequest]) -> None:
    first = ask(served, "/v1/responses", BODIES["/v1/responses"]).json
    items = ask(served, f"/v1/responses/{first['id']}/input_items").json["data"]
    assert items[0]["content"] == [
        {"type": "input_text", "text": "Hi"}, {"type": "input_image", "image_url": URL, "detail": "auto"},
    ]  # fmt: skip
    body = {"input": "More", "previous_response_id": first["id"], "max_output_tokens": 2}
    assert ask(served, "/v1/responses", body).status == 200
    assert [len(message.pictures) for message in seeing[-1].messages] == [1, 0, 0]


@pytest.mark.loopback
def test_lists_say_that_the_model_reads_pictures(served: Served, seeing: list[ChatRequest]) -> None:
    card = ask(served, "/v1/models").json["data"][0]
    assert card["architecture"]["input_modalities"] == ["text", "image"]
    assert card["capabilities"] == ["completion", "multimodal"]
    mistral = ask(served, "/v1/models", headers={"User-Agent": "mistral-client-python/1"}).json["data"][0]
    assert mistral["capabilities"]["vision"] is True
    assert "vision" in ask(served, "/api/show", {"model": "tiny"}).json["capabilities"]
    assert ask(served, "/api/v0/models").json["data"][0]["type"] == "vlm"
    assert ask(served, "/api/v1/models").json["models"][0]["capabilities"]["vision"] is True
    assert ask(served, "/props").json["modalities"] == {"vision": True, "audio": False}
    assert ask(served, "/v1/model").json["parameters"]["use_vision"] is True
    assert ask(served, "/api/extra/version").json["vision"] is True


@pytest.mark.loopback
def test_lists_say_that_the_model_reads_text_only(served: Served) -> None:
    card = ask(served, "/v1/models").json["data"][0]
    assert card["architecture"]["input_modalities"] == ["text"]
    assert card["capabilities"] == ["completion"]
    assert "vision" not in ask(served, "/api/show", {"model": "tiny"}).json["capabilities"]
    assert ask(served, "/api/v0/models").json["data"][0]["type"] == "llm"
    assert ask(served, "/props").json["modalities"] == {"vision": False, "audio": False}
    assert ask(served, "/api/extra/version").json["vision"] is False


@pytest.mark.loopback
def test_lm_studios_sdks_upload_pictures_first(served: Served, seeing: list[ChatRequest]) -> None:
    with Wire(served, "files") as wire:
        kept = wire.call("uploadFileBase64", {"name": "a.png", "contentBase64": CODED})
        assert (kept["fileType"], kept["sizeBytes"]) == ("image", len(PNG))
        error = wire.call("uploadFileBase64", {"name": "a.txt", "contentBase64": "aGk="})["error"]
        assert "The picture cannot be read" in error["title"]
    part = {"type": "file", "name": "a.png", **kept}
    history = {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}, part]}]}
    with Wire(served) as wire:
        body = {"modelSpecifier": ANY, "history": history, "predictionConfigStack": layers(*BRIEF)}
        assert wire.packets("predict", body)[-1]["type"] == "success"
        vision = {"specifier": {"type": "query", "query": {"vision": True}}, "throwIfNotFound": True}
        assert wire.call("getModelInfo", vision)["vision"] is True
    assert seeing[0].messages == (pictured,)


# -- a model that reads pictures


@pytest.fixture(scope="module")
def eyes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server over a tiny model that reads pictures."""
    found = Served(FAMILIES["idefics3"](tmp_path_factory.mktemp("eyes") / "model").folder, context=2048)
    # the threads of the encoder stay
    assert found.on_model_thread(lambda chat: Reply(chat, [asked("What?", (30, 20))], 1).ids)
    yield found
    found.close()


def texts_of(eyes: Served, body: dict[str, Any], path: str = "/completion") -> str:
    answer = ask(eyes, path, body)
    assert answer.status == 200, answer.body
    return str(answer.json["content"] if path == "/completion" else answer.json["results"][0]["text"])


@pytest.mark.loopback
def test_chats_about_pictures_in_every_api_have_the_same_prompt(eyes: Served) -> None:
    messages = BODIES["/v1/chat/completions"]["messages"]
    count = ask(eyes, "/tokenize", {"messages": messages}).json["count"]
    assert count > 16
    answer = ask(eyes, "/v1/chat/completions", BODIES["/v1/chat/completions"])
    assert answer.json["usage"]["prompt_tokens"] == count
    message = {"messages": BODIES["/v1/messages"]["messages"]}
    assert ask(eyes, "/v1/messages/count_tokens", message).json["input_tokens"] == count
    assert ask(eyes, "/v1/responses/input_tokens", BODIES["/v1/responses"]).json["input_tokens"] == count
    assert ask(eyes, "/api/chat", BODIES["/api/chat"]).json["prompt_eval_count"] == count
    google = "/v1beta/models/tiny:countTokens"
    contents = {"contents": BODIES["/v1beta/models/tiny:generateContent"]["contents"]}
    assert ask(eyes, google, contents).json["totalTokens"] == count
    assert "<image>" in ask(eyes, "/apply-template", {"messages": messages}).json["prompt"]
    assert ask(eyes, "/v1/models").json["data"][0]["capabilities"] == ["completion", "multimodal"]
    assert eyes.idle()


@pytest.mark.loopback
def test_a_text_goes_on_from_pictures(eyes: Served) -> None:
    brief = {"n_predict": 4, "temperature": 0}
    bodies = [
        {"prompt": {"prompt_string": "A <__media__> is", "multimodal_data": [data]}, **brief}
        for data in (CODED, base64.b64encode(JPEG).decode())
    ]
    first, second = (ask(eyes, "/completion", body).json for body in bodies)
    assert first["tokens_predicted"] == second["tokens_predicted"] == 4
    assert first["tokens_evaluated"] == second["tokens_evaluated"] > 16
    assert (first["prompt"], first["content"] == second["content"]) == ("A [picture] is", False)
    kobold = {
        "memory": "A ",
        "images": [CODED],
        "prompt": " is",
        "max_length": 4,
        "temperature": 0,
        "rep_pen": 1,
    }
    assert texts_of(eyes, kobold, "/api/v1/generate") == first["content"]
    assert texts_of(eyes, {"prompt": {"prompt_string": "A"}, **brief}) == texts_of(
        eyes, {"prompt": "A", **brief}
    )
    assert eyes.idle()


@pytest.mark.loopback
@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        (
            "/completion",
            {"prompt": {"prompt_string": "A", "multimodal_data": [CODED]}},
            "has 0 times <__media__>",
        ),
        ("/completion", {"prompt": {"prompt_string": "<__media__>"}}, "1 times <__media__>, but there are 0"),
        ("/completion", {"prompt": {"multimodal_data": 3}}, "but a list of pictures in base64 was expected"),
        ("/completion", {"prompt": "A", "multimodal_data": [CODED]}, "put it into prompt, beside"),
        ("/api/v1/generate", {"prompt": "A", "images": ["aGk="]}, "The picture cannot be read"),
        ("/api/v1/generate", {"prompt": "A", "images": 3}, "but a list of pictures in base64 was expected"),
    ],
)
def test_texts_whose_pictures_are_wrong(eyes: Served, path: str, body: dict[str, Any], sentence: str) -> None:
    answer = ask(eyes, path, body)
    assert (answer.status, sentence in answer.body.decode()) == (400, True), answer.body


@pytest.mark.loopback
def test_a_picture_that_is_damaged_behind_its_header_is_refused(eyes: Served) -> None:
    damaged = base64.b64encode(PNG[:-30]).decode()
    message = {
        "role": "user",
        "content": [{"type": "image_url", "image_url": f"data:image/png;base64,{damaged}"}],
    }
    for stream in (False, True):
        body = {"messages": [message], "max_tokens": 2, "stream": stream}
        answer = ask(eyes, "/v1/chat/completions", body)
        assert b"The picture cannot be read" in answer.body
        assert stream or answer.status == 400
    assert eyes.idle()


@pytest.mark.loopback
def test_a_blind_model_goes_on_from_no_pictures(served: Served) -> None:
    body = {"prompt": {"prompt_string": "<__media__>", "multimodal_data": [CODED]}}
    assert "this model reads text only" in ask(served, "/completion", body).error["message"]
    body = {"prompt": "A", "images": [CODED]}
    assert "this model reads text only" in ask(served, "/api/v1/generate", body).json["error"]
