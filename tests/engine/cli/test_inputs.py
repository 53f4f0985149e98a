"""What people give to commands: paths into model stores, and texts as editors and shells write them."""

from __future__ import annotations

import argparse
import io
import json
import sys
from pathlib import Path

import pytest

from engine.cli.flags import add_prompt, model_path, read_file
from engine.cli.opening import piped_message, prompt_ids, read_messages
from engine.core import Message
from engine.errors import BadSetting
from engine.hub.local.scan import model_title
from engine.text.tokenizer.tokenizer import Tokenizer
from tests.tiny import write_tokenizer

DIGEST = "0123456789abcdef" * 4


def made(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_paths_into_the_cache_of_hugging_face(tmp_path: Path) -> None:
    repository = tmp_path / "models--org--tiny-1.5B"
    blob = made(repository / "blobs" / "abc")
    snapshot = repository / "snapshots" / "r1"
    for revision in ("r1", "r2"):
        made(repository / "snapshots" / revision / "config.json")
    (snapshot / "tiny.gguf").symlink_to(blob)
    made(repository / "refs" / "main", "r1")
    for path in (repository, repository / "snapshots", snapshot, snapshot / "config.json"):
        assert model_path(f"{path}/" if path.is_dir() else str(path)) == str(snapshot)
    assert model_title(snapshot) == "tiny-1.5B"
    assert model_title(snapshot / "tiny.gguf") == "tiny"
    assert model_title(tmp_path / "Tiny-0.5B-Instruct") == "Tiny-0.5B-Instruct"


def test_paths_into_the_store_of_ollama(tmp_path: Path) -> None:
    manifest = made(tmp_path / "manifests" / "registry.ollama.ai" / "library" / "tiny" / "latest")
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{DIGEST}"}
    manifest.write_text(json.dumps({"layers": [layer]}))
    assert model_path(str(manifest)) == str(manifest)  # its blob is missing: opening it says so
    blob = made(tmp_path / "blobs" / f"sha256-{DIGEST}")
    assert model_path(str(manifest)) == str(blob)
    manifest.write_text("{")
    assert model_path(str(manifest)) == str(manifest)
    assert model_path("~nobody/tiny.gguf") == "~nobody/tiny.gguf"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_texts_with_a_byte_order_mark(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "text.txt"
    file.write_bytes("Größe\r\n".encode(encoding))
    assert read_file(file) == "Größe\r\n"


@pytest.mark.parametrize(("data", "place"), [(b"a\0b\0", 1), (b"caf\xe9", 3), (b"\xff\xfea", 2)])
def test_what_is_no_text_is_refused(tmp_path: Path, data: bytes, place: int) -> None:
    file = tmp_path / "text.txt"
    file.write_bytes(data)
    with pytest.raises(BadSetting, match=rf"is not UTF-8 text \(byte {place}\)"):
        read_file(file)


def test_a_prompt_from_a_file_or_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tokenizer(tmp_path)
    tokenizer, parser = Tokenizer.from_folder(tmp_path), argparse.ArgumentParser()
    add_prompt(parser, messages=True)
    expected = prompt_ids(parser.parse_args(["--prompt", "the\ncat"]), tokenizer)
    for end in ("", "\n", "\r\n"):
        file = made(tmp_path / "prompt.txt")
        file.write_bytes(f"the\ncat{end}".encode())
        assert prompt_ids(parser.parse_args(["--file", str(file)]), tokenizer) == expected
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the\ncat\n")))
    assert prompt_ids(parser.parse_args(["--file", "-"]), tokenizer) == expected
    for data, told in ((b"[", "<stdin> must hold a JSON list"), (b"\xff", "<stdin> is not UTF-8 text")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        with pytest.raises(BadSetting, match=told):
            read_messages(Path("-"))


def test_a_message_that_is_piped(monkeypatch: pytest.MonkeyPatch) -> None:
    def stdin(data: bytes, *, terminal: bool = False) -> None:
        piped = io.TextIOWrapper(io.BytesIO(data))
        piped.isatty = lambda: terminal  # type: ignore[method-assign]
        monkeypatch.setattr(sys, "stdin", piped)

    stdin("Größe?\nOr weight?\n".encode())
    assert piped_message() == Message("user", "Größe?\nOr weight?")
    for data, terminal in ((b"a question", True), (b"", False), (b" \n", False)):
        stdin(data, terminal=terminal)
        with pytest.raises(BadSetting, match="There is no prompt"):
            piped_message()
    monkeypatch.setattr(sys, "stdin", None)  # as without a console
    with pytest.raises(BadSetting, match="There is no prompt"):
        piped_message()


def test_messages_in_parts(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": " two"}]
    body = {"model": "tiny", "messages": [{"role": "user", "content": parts}], "temperature": 0}
    assert read_messages(made(tmp_path / "m.json", json.dumps(body))) == (Message("user", "one two"),)
    for content in ([], [{"type": "image_url"}], [*parts, "three"], 5):
        wrong = json.dumps([{"role": "user", "content": content}])
        with pytest.raises(BadSetting, match="role"):
            read_messages(made(tmp_path / "m.json", wrong))
