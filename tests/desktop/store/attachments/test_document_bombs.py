"""Documents that are made to hang or to fill memory: a sentence."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from desktop.store.attachments.documents import reading
from desktop.store.attachments.files import Unreadable, read_attachment
from tests.desktop.store.attachments.document_files import (
    W,
    line,
    open_document,
    package,
    packed,
    row,
    word,
    workbook,
)


def laughs() -> bytes:
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    return package({
        "mimetype": "application/vnd.oasis.opendocument.text", "META-INF/manifest.xml": "<m/>",
        "content.xml": f'<!DOCTYPE a [<!ENTITY e0 "ha">{entities}]><a><body>&e11;</body></a>',
    })  # fmt: skip


BOMBS = {
    "entities": laughs,
    "an outer entity": lambda: package({
        "mimetype": "application/vnd.oasis.opendocument.text", "META-INF/manifest.xml": "<m/>",
        "content.xml": '<!DOCTYPE a [<!ENTITY e SYSTEM "file:///etc/passwd">]><a><body>&e;</body></a>',
    }),
    "nested deep": lambda: open_document("text", "<text:section>" * 50_000 + "</text:section>" * 50_000),
    "a part of 300 MB": lambda: packed(
        "content.xml", b"<a>", b" " * (1 << 20), 300, b"</a>",
        mimetype="application/vnd.oasis.opendocument.text", **{"META-INF/manifest.xml": "<m/>"},
    ),
    "a cell at the end of a sheet": lambda: workbook(
        ("One", "visible", row(1, A="a") + row(1_048_576, XFD="z"))
    ),
    "words of 200 MB": lambda: packed(
        "word/document.xml", f"<w:document {W}><w:body>".encode(), line("x" * 1000).encode() * 1000, 190,
        b"</w:body></w:document>",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "kind",
    [
        "entities", "an outer entity", "a cell at the end of a sheet", "nested deep",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("a part of 300 MB", "words of 200 MB")),
    ],
)  # fmt: skip
def test_a_bomb_gives_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    path = tmp_path / "bomb.docx"
    path.write_bytes(BOMBS[kind]())
    assert path.stat().st_size < 4 << 20
    monkeypatch.setattr(reading, "MOST_S", 10.0)
    monkeypatch.setattr(reading, "_GRACE_S", 0.0)
    monkeypatch.setattr(reading, "_MOST_MEMORY", 1 << 30)
    with pytest.raises(Unreadable, match=r"damaged|too long or too much memory|no text"):
        read_attachment(path, threading.Event())


def test_memory_is_bounded_where_the_system_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "hard.docx"
    path.write_bytes(word(line("Words")))
    monkeypatch.setattr("sys.executable", str(tmp_path / "sleeper"))
    (tmp_path / "sleeper").write_text("#!/bin/sh\nexec sleep 1000\n")
    (tmp_path / "sleeper").chmod(0o755)
    monkeypatch.setattr(reading, "_MOST_MEMORY", 1000)
    with pytest.raises(Unreadable, match="too much memory"):
        read_attachment(path, threading.Event())
