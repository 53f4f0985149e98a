"""Documents of office programs, e-books and notebooks as text."""

from __future__ import annotations

import datetime
import io
import json
import threading
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from desktop.store.attachments.documents import epub, packages, reading, sheets
from desktop.store.attachments.documents.markdown import from_html, table
from desktop.store.attachments.documents.process import read_document
from desktop.store.attachments.files import Unreadable, read_attachment
from desktop.store.attachments.message_format import Attachment, kind_of, message_text
from tests.desktop.store.attachments.document_files import (
    OFFICE,
    book,
    cells,
    encrypted_zip,
    line,
    notebook,
    old_file,
    open_document,
    package,
    presentation,
    relations,
    row,
    shape,
    word,
    workbook,
)

MOST = 100_000


@pytest.fixture
def text(tmp_path: Path) -> Any:
    """What is read of the bytes of a file, without a process."""

    def read(data: bytes, name: str = "file", most: int = MOST) -> str:
        (tmp_path / name).write_bytes(data)
        answer = read_document(str(tmp_path / name), 500, most, 30.0)
        assert "pages" in answer, answer
        (found,) = answer["pages"]
        assert answer["cut"] is (len(found) == most)
        return str(found)

    return read


def trouble(tmp_path: Path, data: bytes, name: str = "file") -> str:
    (tmp_path / name).write_bytes(data)
    return str(read_document(str(tmp_path / name), 500, MOST, 30.0).get("trouble"))


def test_word(text: Any) -> None:
    found = text(
        word(
            line("The whole", "T") + line("A part", "H") + line("Plain *words* with_marks, 漢字")
            + "<w:p><w:ins><w:r><w:t>kept</w:t></w:r></w:ins>"
            "<w:del><w:r><w:delText>gone</w:delText></w:r></w:del>"
            '<w:r><w:footnoteReference w:id="2"/></w:r></w:p>'
            f"<w:tbl>{cells('Name', 'Sum')}{cells('a|b', '3')}</w:tbl>"
        )
    )  # fmt: skip
    blocks = found.split("\n\n")
    assert blocks[:3] == ["# The whole", "## A part", "Plain *words* with_marks, 漢字"]
    assert blocks[3].startswith("kept")
    assert "gone" not in found
    assert blocks[4] == "| Name | Sum |\n| --- | --- |\n| a\\|b | 3 |"
    assert "A note." in blocks[5]


def test_pictures_of_a_word_document_are_left_out(text: Any) -> None:
    picture = (
        f'<w:p><w:r><w:drawing><wp:inline xmlns:wp="{OFFICE}drawingml/2006/wordprocessingDrawing">'
        f'<a:graphic xmlns:a="{OFFICE}drawingml/2006/main"><a:graphicData><pic:pic '
        f'xmlns:pic="{OFFICE}drawingml/2006/picture"><pic:blipFill><a:blip r:embed="i"/></pic:blipFill>'
        "</pic:pic>"
        "</a:graphicData></a:graphic></wp:inline></w:drawing></w:r></w:p>"
    )
    data = word(line("before") + picture + line("after"), **{
        "word/_rels/document.xml.rels": relations(i="image media/one.png"), "word/media/one.png": "PNG" * 99,
    })  # fmt: skip
    assert text(data) == "before\n\nafter"


def test_readings_above_words_are_left_out_and_the_words_kept(text: Any) -> None:
    ruby = "<w:r><w:ruby><w:rt>{}</w:rt><w:rubyBase>{}</w:rubyBase></w:ruby></w:r>".format
    run = "<w:r><w:t>{}</w:t></w:r>".format
    body = f"<w:p>{run('A ')}{ruby(run('とうきょう'), run('東京'))}{run('B')}{ruby('', run('京都'))}</w:p>"
    assert text(word(body)) == "A 東京B京都"


def test_a_panic_of_a_reader_is_a_broken_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    def panic(path: str) -> str:
        raise PanicException

    monkeypatch.setattr("desktop.store.attachments.documents.word.read", panic)
    assert trouble(tmp_path, word(line("Words"))) == "broken"


def test_a_file_that_takes_too_much_memory_is_not_said_to_be_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(path: str) -> str:
        raise MemoryError

    monkeypatch.setattr("desktop.store.attachments.documents.word.read", fill)
    with pytest.raises(MemoryError):  # the process ends without an answer
        trouble(tmp_path, word(line("Words")))


def test_slides_are_found_where_they_usually_are_without_a_list_of_relations(text: Any) -> None:
    found = io.BytesIO()
    with ZipFile(io.BytesIO(presentation(shape("words", kind="body")))) as whole, ZipFile(found, "w") as cut:
        for name in whole.namelist():
            if name != "_rels/.rels":
                cut.writestr(name, whole.read(name))
    assert text(found.getvalue()) == "## Slide 1\n\nwords"


def test_slides_are_in_their_order_with_titles_levels_tables_and_notes(text: Any) -> None:
    boxes = "".join(f"<a:tc><a:txBody><a:p><a:r><a:t>{t}</a:t></a:r></a:p></a:txBody></a:tc>" for t in "cd")
    data = presentation(
        shape("last", kind="body"),
        shape("A", "title", kind="ctrTitle") + shape("point", ">below", kind="") + shape("7", kind="sldNum")
        + f"<p:grpSp>{shape('grouped')}</p:grpSp>"
        + f"<mc:AlternateContent><mc:Choice>{shape('new')}</mc:Choice>"
            f"<mc:Fallback>{shape('old')}</mc:Fallback>"
        "</mc:AlternateContent>"
        f"<p:graphicFrame><a:tbl><a:tr>{boxes}</a:tr><a:tr>{boxes}</a:tr></a:tbl></p:graphicFrame>"
        + shape("Later title", kind="title"),
        n1=shape("say this", kind="body") + shape("2", kind="sldNum"),
    )  # fmt: skip
    assert text(data) == (
        "## Slide 1: A title\n\npoint\n  below\n\ngrouped\n\nnew\n\n| c | d |\n| --- | --- |\n| c | d |\n\n"
        "Later title\n\nNotes: say this\n\n## Slide 2\n\nlast"
    )


def test_sheets_are_csv_as_their_cells_show(text: Any) -> None:
    data = workbook(
        ("Sales", "visible", row(2, A="Bolt, long", B=3, C=1.25, D=True) + row(9, C="far")),
        ("Secret", "hidden", row(1, A="hidden")),
        ("Empty", "visible", ""),
        ("More", "visible", row(1, A=-2.0, B='"')),
    )
    assert text(data) == '## Sales\n\n"Bolt, long",3,1.25,TRUE\n\n,,far\n\n## More\n\n-2,""""'
    assert text(workbook(("One", "visible", row(1, A="x", B=2)))) == "x,2"
    long = workbook(("One", "visible", row(1, A="x" * 50) * 9), ("Two", "visible", row(1, A="y")))
    assert text(long, most=20) == "## One\n\n" + "x" * 12


def test_dates_of_sheets() -> None:
    day = datetime.datetime(2026, 1, 2)
    shown = ["2026-01-02", "2026-01-02 03:00:00", "2026-01-02", "00:00:00", "", "1e+20"]
    values = (day, day.replace(hour=3), day.date(), day.time(), "", 1e20)
    assert [sheets._cell(value) for value in values] == shown


def test_open_document_texts(text: Any) -> None:
    cell = "<table:table-cell><text:p>{}</text:p></table:table-cell>".format
    body = (
        '<office:text><text:tracked-changes><text:p>gone</text:p></text:tracked-changes>'
        '<text:h text:outline-level="2">A part</text:h><text:h>Top</text:h>'
        '<text:h text:outline-level="9"><text:span/>Deep</text:h>'
        '<text:p>one<text:s text:c="2"/>two<text:tab/><text:span>three</text:span><text:line-break/>four'
        "<office:annotation><text:p>a comment</text:p></office:annotation></text:p>"
        "<text:p>noted<text:note><text:note-citation>1</text:note-citation><text:note-body>"
        "<text:p>the note</text:p><text:p>goes on"
        "</text:p></text:note-body></text:note>.</text:p>"
        "<text:list><text:list-item><text:p>item</text:p><text:p>goes on</text:p><text:list><text:list-item>"
        "<text:p>inner</text:p></text:list-item></text:list></text:list-item></text:list>"
        f"<table:table><table:table-column/><table:table-header-rows><table:table-row>{cell('h')}{cell('i')}"
        f"</table:table-row></table:table-header-rows><table:table-row>{cell('v')}<table:covered-table-cell/>"
        "</table:table-row></table:table>"
        "<text:section><text:p>inside<text:span><draw:frame><draw:text-box><text:p>in a box</text:p>"
        "</draw:text-box></draw:frame></text:span></text:p></text:section></office:text>"
    )  # fmt: skip
    assert text(open_document("text", body)) == (
        "## A part\n\n# Top\n\n###### Deep\n\none  two\tthree\nfour\n\nnoted (the note goes on).\n\n"
        "- item\n  goes on\n  - inner\n\n"
        "| h | i |\n| --- | --- |\n| v |  |\n\ninside\n\nin a box"
    )


def test_open_document_presentations(text: Any) -> None:
    box = "<draw:frame><draw:text-box><text:p>{}</text:p></draw:text-box></draw:frame>".format
    notes = f"<presentation:notes>{box('say')}</presentation:notes>"
    pages = f"<draw:page>{box('first')}{notes}</draw:page><draw:page>{box('second')}</draw:page>"
    body = f"<office:presentation>{pages}</office:presentation>"
    assert text(open_document("presentation-template", body)) == (
        "## Slide 1\n\nfirst\n\nNotes: say\n\n## Slide 2\n\nsecond"
    )


def test_chapters_of_a_book_in_the_order_of_reading(text: Any) -> None:
    chapters = {
        "one%201.xhtml": "<?xml version='1.0'?><html><head><title>t</title></head><body><h1>One</h1><p>A "
        "<a href='x'>link</a><script>no()</script><img src='p'/> é</p></body></html>",
        "two.xhtml": "<html><body><p>Two</p></body></html>",
    }
    assert text(book(chapters, "babz")) == "Two\n\n# One\n\nA link é\n\nTwo"
    assert text(book(chapters, "b" * 40), most=6) == "Two\n\nT"
    with ZipFile(io.BytesIO(book(chapters, "b" * 40))) as archive:  # the rest is not even read
        assert epub.read(archive, 6) == "Two\n\nTwo\n\nTwo"
    # without a first part that says what it is
    with ZipFile(io.BytesIO(book(chapters, "b"))) as archive:
        assert text(package({name: archive.read(name) for name in archive.namelist()[1:]})) == "Two"


@pytest.mark.parametrize(("encrypted", "expected"), [("OEBPS/f.OTF", "None"), ("OEBPS/two.xhtml", "locked")])
def test_a_book_with_copy_protection(tmp_path: Path, encrypted: str, expected: str) -> None:
    """Fonts may be encrypted in any book."""
    protection = f'<encryption><CipherReference URI="{encrypted}"/></encryption>'
    data = book({"two.xhtml": "<p>Two</p>"}, "a", **{"META-INF/encryption.xml": protection})
    assert trouble(tmp_path, data) == expected


def test_notebooks(text: Any) -> None:
    outputs = [
        {"output_type": "stream", "text": ["1\n", "2\n"]},
        {"output_type": "display_data", "data": {"image/png": "AAAA"}},
        {"output_type": "execute_result", "data": {"text/plain": ["[1,\n", " 2]"]}},
        {"output_type": "error", "ename": "ValueError", "evalue": "bad"},
    ]
    data = notebook(
        {"cell_type": "markdown", "source": ["# Head\n", "words"]},
        {"cell_type": "code", "source": "s = '```'", "outputs": outputs},
        {"cell_type": "code", "source": "", "outputs": []},
        metadata={"kernelspec": {"language": "julia"}},
    )
    assert text(data, "a.ipynb") == (
        "# Head\nwords\n\n````julia\ns = '```'\n````\n\n```\n1\n2\n```\n\n```\n[1,\n 2]\n```\n\n"
        "```\nValueError: bad\n```"
    )
    old = {"nbformat": 3, "worksheets": [{"cells": [{"cell_type": "code", "input": "x", "outputs": []}]}]}
    assert text(json.dumps(old).encode("utf-8-sig"), "b.ipynb") == "```python\nx\n```"


def test_rich_text(text: Any) -> None:
    found = text(
        rb"{\rtf1\ansi\ansicpg1252{\fonttbl{\f0 Arial;}}\f0 Hello \b bold\b0\par Gr\'fc\'dfe \u8364?}"
    )
    assert found.split() == ["Hello", "bold", "Grüße", "€"]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (old_file("WordDocument"), "old"), (old_file("PowerPoint Document"), "old"),
        (old_file("EncryptedPackage"), "locked"), (old_file("Workbook"), "None"), (old_file("Book"), "None"),
        (old_file(), "unknown"),
        (old_file("ENCRYPTEDPACKAGE", "Workbook"), "locked"), (old_file("Workbook", "WordDocument"), "old"),
        (old_file()[:600], "broken"),
        (package({"a.txt": "words"}), "unknown"), (package({"mimetype": "image/x"}), "unknown"),
        (package({"word/other.xml": "<a/>"}), "broken"), (package({"ppt/presentation.xml": "<a"}), "broken"),
        (package({"xl/workbook.xml": "<a/>"}), "broken"), (encrypted_zip(), "locked"),
        (package({"META-INF/container.xml": "<a/>"}), "broken"), (b"PK\x03\x04" + b"x" * 99, "broken"),
        (open_document("text", "<text:p>", **{"META-INF/manifest.xml": "<encryption-data/>"}), "locked"),
        (open_document("text", "<text:p>"), "broken"), (b"%PDF-1.7", "broken"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_told_apart(tmp_path: Path, data: bytes, expected: str) -> None:
    assert trouble(tmp_path, data) == expected


@pytest.mark.parametrize("content", [b"[]", b"{}", b"not JSON", b'{"cells": [{"cell_type": 3}, 4]}', b"\xff"])
def test_broken_notebooks(tmp_path: Path, content: bytes) -> None:
    assert trouble(tmp_path, content, "a.ipynb") == "broken"


@pytest.mark.parametrize(
    ("data", "name", "words"),
    [
        (old_file("WordDocument"), "letter.doc", "before 2007"),
        (package({"a.txt": "words"}), "some.zip", "neither text nor a picture"),
        (open_document("text", "<text:p>"), "torn.odt", "is damaged"),
        (old_file("EncryptedPackage"), "secret.docx", "without a password"),
        (word(line(" ")), "blank.docx", "contains no text"),
    ],
)  # fmt: skip
def test_each_trouble_has_its_sentence(tmp_path: Path, data: bytes, name: str, words: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(Unreadable, match=words) as error:
        read_attachment(tmp_path / name, threading.Event())
    assert str(error.value).startswith(f"“{name}”")


def test_documents_are_attached_whatever_their_names_end_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.bin"
    path.write_bytes(word(line("Words")))
    assert read_attachment(path, threading.Event()) == Attachment("report.bin", "Words")
    monkeypatch.setattr("desktop.store.attachments.files.MOST_BYTES", 3)
    assert read_attachment(path, threading.Event()) == Attachment("report.bin", "Wor", "first 3 characters")
    monkeypatch.setattr(reading, "MOST_DOCUMENT_BYTES", 3)
    with pytest.raises(Unreadable, match="documents can be at most"):
        read_attachment(path, threading.Event())


def test_a_message_says_what_a_document_has_become() -> None:
    assert [kind_of(name) for name in ("a.xlsx", "b.ODS", "c.docx")] == ["table", "table", "file"]
    assert message_text(Attachment("a.xls", "1,2")) == "Attached file: a.xls\n```csv\n1,2\n```"
    assert message_text(Attachment("b.docx", "# A")) == "Attached file: b.docx\n```markdown\n# A\n```"


def test_a_part_that_is_longer_than_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "MOST_PART_BYTES", 4)
    with ZipFile(io.BytesIO(package({"a": "12345", "b": "1234"}))) as archive:
        assert packages.part(archive, "b") == b"1234"
        with pytest.raises(ValueError, match="too long"):
            packages.part(archive, "a")


def test_tables_and_html() -> None:
    assert table([]) == table([["", " "]]) == ""
    assert table([["a"], ["b", "c\nd|"]]) == "| a |  |\n| --- | --- |\n| b | c d\\| |"
    assert from_html("<p>a <a href='http://x'>b</a></p><ul><li>c<ul><li>d</li></ul></li></ul>") == (
        "a [b](http://x)\n\n- c\n  - d"
    )
