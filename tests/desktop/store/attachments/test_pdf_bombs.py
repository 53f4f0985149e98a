"""PDF files made to hang or to fill memory: a sentence or a bounded text, and the process that read them is
gone.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from desktop.store.attachments import files
from desktop.store.attachments.documents import reading
from desktop.store.attachments.files import Unreadable, read_attachment

SECONDS = 2.0


def made(*objects: str | bytes) -> bytes:
    """A file of these objects, from number 1 on; the first is the catalogue."""
    data, table = b"%PDF-1.7\n", ""
    for number, content in enumerate(objects, 1):
        table += f"{len(data):010} 00000 n \n"
        body = content.encode("latin-1") if isinstance(content, str) else content
        data += b"%d 0 obj\n" % number + body + b"\nendobj\n"
    end = (
        f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer\n<< /Size {len(objects) + 1} "
        "/Root 1 0 R >>\n"
    )
    return data + end.encode() + f"startxref\n{len(data)}\n%%EOF\n".encode()


def stream(content: bytes, more: str = "", packed: bool = False) -> bytes:
    body = zlib.compress(content, 9) if packed else content
    kind = " /Filter /FlateDecode" if packed else ""
    return f"<< /Length {len(body)}{kind} {more} >>\nstream\n".encode() + body + b"\nendstream"


FONT = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"


def one_page(content: bytes, font: str = FONT, *more: str | bytes, resources: str = "") -> bytes:
    return made(
        "<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << /Font << /F 5 "
        f"0 R >> {resources} >> >>",
        content, font, *more,
    )  # fmt: skip


def bomb() -> bytes:
    """A hundred megabytes of spaces in less than one."""
    pack = zlib.compressobj(1)
    body = b"".join(pack.compress(b" " * (1 << 20)) for _ in range(100)) + pack.flush()
    return one_page(
        f"<< /Length {len(body)} /Filter /FlateDecode >>\nstream\n".encode() + body + b"\nendstream"
    )


def laughs() -> bytes:
    """Forms that draw the next form ten times each, ten levels deep."""
    forms: list[bytes] = []
    for depth in range(10):
        inner = b"/X Do " * 10 if depth < 9 else b"BT /F 9 Tf (ha) Tj ET"
        uses = f"/XObject << /X {7 + depth} 0 R >>" if depth < 9 else ""
        resources = f"/Resources << /Font << /F 5 0 R >> {uses} >>"
        forms.append(stream(inner, f"/Type /XObject /Subtype /Form /BBox [0 0 9 9] {resources}"))
    return one_page(stream(b"/X Do"), FONT, *forms, resources="/XObject << /X 6 0 R >>")


def mapped(lines: bytes) -> bytes:
    """A page of letters whose font maps them as the `lines` of a table say."""
    table = b"begincmap\n1 begincodespacerange <0000> <FFFF> endcodespacerange\n" + lines + b"\nendcmap"
    font = (
        "<< /Type /Font /Subtype /Type0 /BaseFont /X /Encoding /Identity-H /DescendantFonts [7 0 R] "
        "/ToUnicode 6 0 R >>"
    )
    inner = (
        "<< /Type /Font /Subtype /CIDFontType2 /BaseFont /X /CIDSystemInfo << /Registry (A) /Ordering (I) "
        "/Supplement 0 >> >>"
    )
    return one_page(stream(b"BT /F 9 Tf <00410042> Tj ET"), font, stream(table), inner)


BOMBS: dict[str, Callable[[], bytes]] = {
    "a hundred megabytes in one": bomb,
    "forms in forms": laughs,
    "a form in itself": lambda: one_page(
        stream(b"/X Do"), FONT,
        stream(b"/X Do", "/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /X 6 0 R "
            ">> >>"),
        resources="/XObject << /X 6 0 R >>",
    ),
    "a table of four thousand million "
    "letters": lambda: mapped(b"1 beginbfrange <00000000> <FFFFFFFF> <0041> endbfrange"),
    "pages that hold themselves": lambda: made(
        "<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 1000000 >>"
    ),
    "a number that is itself": lambda: one_page(b"<< /Length 4 0 R >>\nstream\nBT\nendstream"),
    "pages nested ten thousand deep": lambda: made(
        "<< /Type /Catalog /Pages 2 0 R >>", *(f"<< /Type /Pages /Kids [{number} 0 R] /Count 1 >>"
        for number in range(3, 10_003))
    ),
    "brackets": lambda: made("<< /Type /Catalog /Pages " + "[" * 100_000),
    "a count without pages": lambda: made("<< /Type /Catalog /Pages 2 0 R >>",
    "<< /Type /Pages /Kids [] /Count 2000000000 >>"),
    "a table of places that leads "
    "round": lambda: b"%PDF-1.7\nxref\n0 0\ntrailer\n<< /Size 1 /Prev 9 /Root 1 0 R >>\nstartxref\n9\n"
        b"%%EOF\n",
    "nothing but a head": lambda: b"%PDF-1.7\n" + b"\0" * 100_000,
}  # fmt: skip


QUICK = (
    "a hundred megabytes in one",
    "forms in forms",
    "a table of four thousand million letters",
    "pages that hold themselves",
)


@pytest.mark.parametrize(
    "kind", [*QUICK, *(pytest.param(kind, marks=pytest.mark.slow) for kind in BOMBS if kind not in QUICK)]
)
def test_a_bomb_gives_a_sentence_or_a_bounded_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path = tmp_path / "bomb.pdf"
    path.write_bytes(BOMBS[kind]())
    assert path.stat().st_size < 4 << 20
    monkeypatch.setattr(reading, "MOST_S", SECONDS)
    monkeypatch.setattr(reading, "_GRACE_S", 0.0)
    monkeypatch.setattr(reading, "_MOST_MEMORY", 1 << 30)
    before = psutil.Process().memory_info().rss
    attachment, sentence = None, ""
    try:
        attachment = read_attachment(path, threading.Event())
    except Unreadable as error:
        sentence = str(error)
    if attachment is None:
        assert sentence.startswith("“bomb.pdf” ")
        assert "\n" not in sentence
    else:
        assert len(attachment.text) <= files.MOST_BYTES
    assert psutil.Process().memory_info().rss - before < 256 << 20
    assert not [
        child
        for child in psutil.Process().children(recursive=True)
        if "documents.process" in " ".join(child.cmdline())
    ]


PROGRAM = """
import sys, threading
from pathlib import Path
from desktop.store.attachments.files import read_attachment
threading.Thread(target=read_attachment, args=(Path(sys.argv[1]), threading.Event()), daemon=True).start()
sys.stdin.read()
"""


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("killed", [False, True], ids=["quit", "killed"])
def test_the_reader_ends_with_the_program(tmp_path: Path, killed: bool) -> None:
    """Nothing waits for the thread that would stop it."""
    path = tmp_path / "long.pdf"
    words = b"BT /F 9 Tf " + b"(words and words) Tj " * 350_000 + b"ET"  # a page of a minute
    path.write_bytes(one_page(stream(words, packed=True)))
    command = [sys.executable, "-c", PROGRAM, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as program:
        assert program.stdin is not None
        until = time.monotonic() + 30
        while not (children := psutil.Process(program.pid).children()):
            assert time.monotonic() < until
            time.sleep(0.01)
        (reader,) = children
        time.sleep(0.5)
        assert reader.is_running()
        if killed:
            program.kill()
        else:
            program.stdin.close()
        assert (program.wait(10) == 0) is not killed
    assert psutil.wait_procs([reader], 5)[0]


def test_invalid_characters_do_not_reach_a_message(tmp_path: Path) -> None:
    """A font can map a letter to a lone surrogate, which no database can hold, or to a control character."""
    path = tmp_path / "odd.pdf"
    path.write_bytes(mapped(b"2 beginbfchar <0041> <D800> <0042> <0000> endbfchar"))
    try:
        text = read_attachment(path, threading.Event()).text
    except Unreadable:
        return
    text.encode()
    assert "\x00" not in text


def test_one_page_is_bounded_like_all_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "long.pdf"
    path.write_bytes(one_page(stream(b"BT /F 9 Tf " + b"(words and words) Tj " * 2000 + b"ET", packed=True)))
    monkeypatch.setattr(files, "MOST_BYTES", 5000)
    attachment = read_attachment(path, threading.Event())
    assert len(attachment.text) <= 5000
    assert attachment.note
