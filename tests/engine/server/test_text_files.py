"""Files of text in requests."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from engine.server.failure import ApiError
from engine.server.fields import Fields
from engine.server.gemini.request import messages_of as contents_of
from engine.server.host import ServedModel
from engine.server.openai.conversation import messages_of
from engine.server.responses.create import response_call
from engine.server.responses.stored import StoredResponses

MODEL = ServedModel("tiny", True, 1024)
TEXT = "Grüße, Ωmega\n"
READ = f"Read:\nnotes.md:\n{TEXT}\n"


def coded(data: bytes, type: str = "text/markdown") -> str:
    return f"data:{type};base64,{base64.b64encode(data).decode()}"


def chat(file: dict[str, Any]) -> str:
    parts = [{"type": "text", "text": "Read:"}, {"type": "file", "file": file}]
    return messages_of(Fields({"messages": [{"role": "user", "content": parts}]}))[0].content


@pytest.mark.parametrize("data", [
    coded(TEXT.encode()), coded(TEXT.encode(), "application/octet-stream"), coded(TEXT.encode("utf-8-sig")),
    coded(TEXT.encode()).partition(",")[2],
])  # fmt: skip
def test_a_file_of_text_is_read_after_its_name(data: str) -> None:
    assert chat({"filename": "notes.md", "file_data": data}) == READ


def test_in_responses() -> None:
    file = {"type": "input_file", "filename": "notes.md", "file_data": coded(TEXT.encode())}
    content = [{"type": "input_text", "text": "Read:"}, file]
    call = response_call(Fields({"input": [{"role": "user", "content": content}]}), MODEL, StoredResponses())
    assert call.request is not None
    assert call.request.messages[0].content == READ


@pytest.mark.parametrize("name", ["notes.md", ""])
def test_in_google_s_contents(name: str) -> None:
    blob = {"mimeType": "text/plain", "data": base64.b64encode(TEXT.encode()).decode(), "displayName": name}
    sent = {"contents": [{"parts": [{"text": "Read:"}, {"inlineData": blob}]}]}
    assert contents_of(Fields(sent))[0].content == (READ if name else f"Read:\n{TEXT}\n")


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ({"file_id": "a"}, "keeps no files"), ({"filename": "a.txt"}, "keeps no files"),
        ({"file_data": coded(b"%PDF-1.7", "application/pdf")}, "of the type 'application/pdf'"),
        ({"file_data": coded(b"RIFF", "audio/wav")}, "of the type 'audio/wav'"),
        ({"file_data": coded(b"a\xff")}, "not a text in UTF-8"),
        ({"file_data": coded(b"a\0b")}, "not a text in UTF-8"),
        ({"file_data": "data:text/plain;base64,%%%"}, "is not base64, but the bytes of a file"),
        ({"file_data": 5}, "but a text was expected"),
    ],
)  # fmt: skip
def test_other_files_are_refused(file: dict[str, Any], reason: str) -> None:
    with pytest.raises(ApiError, match=reason) as caught:
        chat(file)
    assert caught.value.failure.param == "messages[0].content[1].file.file_data"
