"""Files as text: how they are read, and how they are written into a message."""

from __future__ import annotations

import codecs
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from desktop.store.attachments import files, message_format
from desktop.store.attachments.files import Unreadable, decoded, read_attachment
from desktop.store.attachments.message_format import (
    Attachment,
    auto_source,
    cut,
    cut_inside,
    join,
    kind_of,
    lines_of,
    note_text,
    passages_in,
    split,
)
from desktop.store.conversations.records import auto_title
from desktop.store.settings.prompt_variables import filled, variables, with_date

NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp", "Z")), min_size=1, max_size=20)
TEXTS = st.text(
    st.sampled_from("ab`\n #:()é漢") | st.characters(exclude_categories=("Cs",), exclude_characters="\r"),
    max_size=200,
)


@given(st.lists(st.tuples(NAMES, TEXTS), max_size=3), TEXTS)
@example([("notes.md", "```py\nprint()\n```"), ("b.md", "````\n```\n````")], "Why?")
def test_files_are_read_back_from_a_message_unchanged(named, own) -> None:
    attachments = [Attachment(name, text.rstrip("\n")) for name, text in named]
    own = own.strip() if not own.strip().startswith("Attached file: ") else ""
    message = join(attachments, own)
    found, place = split(message)
    assert [attachment for _, attachment in found] == attachments
    assert message[place:] == own


def test_a_title_is_made_of_the_users_words_or_the_file_names() -> None:
    named = [Attachment("a.py", "print()"), Attachment("b.csv", "1,2", "first 1 of 9 lines")]
    assert auto_title(join(named, "What is this?")) == "What is this?"
    assert auto_title(join(named, "")) == auto_title(join(named, "") + "\n\n \n") == "a.py, b.csv"
    assert auto_source("Attached file: x\nno fence") == "Attached file: x\nno fence"
    assert auto_title(" \n") == ""
    assert join([replace(named[1], name="b\n.csv")], "Why?") == (
        "Attached file: b .csv (first 1 of 9 lines)\n```csv\n1,2\n```\n\nWhy?"
    )
    assert split(join(named, "w"))[0][1][1] == named[1]
    assert [kind_of(file.name) for file in named] == ["code", "table"]
    assert [lines_of(text) for text in ("", "a", "a\nb")] == [0, 1, 2]


def test_a_file_cut_twice_still_states_its_full_length() -> None:
    whole = Attachment("a.txt", "\n".join(map(str, range(3000))))
    once = cut(whole, 1000)
    assert once.note == "first 1,000 of 3,000 lines"
    assert cut(once, 10).note == "first 10 of 3,000 lines"
    assert cut(whole, 3000) is whole
    assert cut_inside(Attachment("a.json", "x" * 50), 20) == Attachment(
        "a.json", "x" * 20, "first 20 of 50 characters"
    )


@pytest.mark.parametrize(
    "encoding",
    ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252", "shift_jis", "cp1251"],
)
def test_every_usual_encoding_is_detected(encoding) -> None:
    text = {
        "shift_jis": "これは日本語の文章です。文字コードを調べるために、少し長めに書きます。\n" * 5,
        "cp1251": "Это русский текст, достаточно длинный, чтобы узнать кодировку.\n" * 5,
    }.get(encoding, "Grüße, señor: a naïve café — plain words around it.\n")
    assert decoded(text.encode(encoding)) == text


@pytest.mark.parametrize("text", ["Grüße", "café", "señor", "Größe: 5 €, “schön”"])
def test_a_short_text_is_western_also_after_a_mark_of_utf_8(text) -> None:
    assert decoded(text.encode("cp1252")) == text
    assert decoded(codecs.BOM_UTF8 + text.encode("cp1252")) == text


def test_a_wrong_guess_of_the_encoding_is_no_end(monkeypatch) -> None:
    """It is made from the beginning; what follows may not be of that encoding."""
    guess = SimpleNamespace(encoding="cp1253", could_be_from_charset=["cp1253"], chaos=0.0)

    class Matches(list):
        def best(self):
            return self[0]

    monkeypatch.setattr("charset_normalizer.from_bytes", lambda data: Matches([guess]))
    assert decoded("Ελλάδα".encode("cp1253")) == "Ελλάδα"
    assert decoded(b"\xe5 \xaa") == "å ª"  # 0xAA is no character of cp1253
    monkeypatch.setattr(guess, "encoding", "no_encoding")
    assert decoded(b"\xe5") == "å"
    assert decoded(b"\xe5 \x81") is None  # nor 0x81 of cp1252


def test_binary_data_is_refused_with_a_sentence(tmp_path) -> None:
    stop = threading.Event()
    cases = {
        "photo.png": (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "neither text nor a picture"),
        "zero.bin": (b"text, a zero \x00 and more text", "neither text nor a picture"),
        "codes.bin": (bytes(range(1, 7)) * 40, "neither text nor a picture"),
        "noise.bin": (bytes(range(256)) * 40, "neither text nor a picture"),
        "empty.txt": (b"  \n", "is empty"),
        "broken.pdf": (b"%PDF-1.7\nnothing that follows is right", "is damaged"),
        "big.log": (b"x" * (9 << 20), "Attach the relevant part"),
    }
    for name, (data, words) in cases.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(Unreadable, match=words):
            read_attachment(tmp_path / name, stop)
    with pytest.raises(Unreadable, match="cannot be read"):
        read_attachment(tmp_path / "gone.txt", stop)
    with pytest.raises(Unreadable, match="is a folder"):
        read_attachment(tmp_path, stop)
    (tmp_path / "dos.txt").write_bytes(b"one\r\ntwo\r\n")
    assert read_attachment(tmp_path / "dos.txt", stop) == Attachment("dos.txt", "one\ntwo")


def test_a_text_of_the_largest_size_is_read_and_no_larger_one(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 2000)
    path = tmp_path / "long.txt"
    path.write_bytes(b"x" * 2000)
    assert read_attachment(path, threading.Event()).text == "x" * 2000
    path.write_bytes(b"x" * 2001)
    with pytest.raises(Unreadable, match="Attach the relevant part"):
        read_attachment(path, threading.Event())


def pdf(*pages: str) -> bytes:
    """A small PDF with a line of text on each page."""
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    kids = []
    for page in pages:
        stream = f"BT /F1 12 Tf 72 720 Td ({page}) Tj ET" if page else ""
        kids.append(f"{len(objects) + 1} 0 R")
        objects.append("<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 "
            "R >> >> "
            f"/Contents {len(objects) + 2} 0 R >>")  # fmt: skip
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>"
    data, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(data))
        data += f"{number} 0 obj\n{body}\nendobj\n".encode()
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    return data + (f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer\n"
        f"<< /Size {len(objects) + 1} "
        f"/Root 1 0 R >>\nstartxref\n{len(data)}\n%%EOF\n").encode()  # fmt: skip


@pytest.mark.parametrize(
    "note",
    [
        "first 3 of 1,200 lines",
        "first 1 of 3 pages",
        "first 20 of 4,000 characters",
        "first 20 characters",
        "3 of 1,040 passages",
        "the user's own",
    ],
)
def test_notes_are_said_in_the_language_of_the_user(note, monkeypatch) -> None:
    """In English they stay as they are."""
    assert note_text(note) == note
    monkeypatch.setattr(message_format, "_", lambda text, /, **values: text.format(**values).upper())
    assert note_text(note) == (note.upper() if "own" not in note else note)
    assert passages_in(note) == (1040 - 1037 if "passages" in note else 0)


@pytest.mark.slow
def test_a_pdf_is_read_page_by_page_and_its_problems_are_reported(tmp_path, monkeypatch) -> None:
    stop, path = threading.Event(), tmp_path / "paper.pdf"
    path.write_bytes(pdf("First page", "", "Third page"))
    assert read_attachment(path, stop) == Attachment(
        "paper.pdf", "[Page 1]\nFirst page\n\n[Page 3]\nThird page"
    )
    monkeypatch.setattr("desktop.store.attachments.documents.reading.MOST_PAGES", 1)
    assert read_attachment(path, stop) == Attachment(
        "paper.pdf", "[Page 1]\nFirst page", "first 1 of 3 pages"
    )
    path.write_bytes(pdf("", ""))
    with pytest.raises(Unreadable, match="contains no text"):
        read_attachment(path, stop)
    from pypdf import PdfReader, PdfWriter

    path.write_bytes(pdf("Secret"))
    writer = PdfWriter(clone_from=PdfReader(path))
    writer.encrypt("password", algorithm="RC4-128")
    writer.write(path)
    with pytest.raises(Unreadable, match="is encrypted"):
        read_attachment(path, stop)


def test_variables_of_a_prompt() -> None:
    text = "Say {{ text }} in {{language=French}}, {{text=x}}, {{not\nthis}}, {{{odd}}}"
    assert variables(text) == {"text": "x", "language": "French", "odd": ""}
    assert (
        filled(text, {"text": "{{language}}"})
        == "Say {{language}} in French, {{language}}, {{not\nthis}}, {}"
    )
    assert filled("plain", {}) == "plain"


def test_the_date_in_a_prompt_is_known_by_the_names_that_others_give_it() -> None:
    text = "{{date}}, {{ current_date }}, {{CURRENT_DATE}}, {{dates}}, {{ topic }}, {date}"
    assert with_date(text, "1 May") == "1 May, 1 May, 1 May, {{dates}}, {{ topic }}, {date}"


def test_reading_a_hard_pdf_ends_on_request_or_after_a_time(tmp_path, monkeypatch) -> None:
    path = tmp_path / "hard.pdf"
    path.write_bytes(pdf("First page"))
    monkeypatch.setattr("sys.executable", str(tmp_path / "sleeper"))
    (tmp_path / "sleeper").write_text("#!/bin/sh\nexec sleep 1000\n")
    (tmp_path / "sleeper").chmod(0o755)
    stop = threading.Event()
    threading.Timer(0.1, stop.set).start()
    with pytest.raises(Unreadable, match="was stopped, or took too long"):
        read_attachment(path, stop)
    monkeypatch.setattr("desktop.store.attachments.documents.reading.MOST_S", 0.0)
    monkeypatch.setattr("desktop.store.attachments.documents.reading._GRACE_S", 0.1)
    with pytest.raises(Unreadable, match="was stopped, or took too long"):
        read_attachment(path, threading.Event())


@pytest.mark.slow
def test_the_reader_of_pdfs_has_bounded_memory(tmp_path, monkeypatch) -> None:
    path = tmp_path / "large.pdf"
    path.write_bytes(pdf("word " * 200_000))
    assert read_attachment(path, threading.Event()).text.startswith("word word")
    monkeypatch.setattr("desktop.store.attachments.documents.reading._MOST_MEMORY", 10 << 20)
    with pytest.raises(Unreadable):
        read_attachment(path, threading.Event())
