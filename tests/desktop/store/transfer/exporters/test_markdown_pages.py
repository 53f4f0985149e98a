"""Footnotes, addresses and directions in exported web pages, and the same in a browser: images, headings,
widths.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from PySide6.QtCore import QBuffer
from PySide6.QtGui import QColor, QImage

from desktop.store.transfer.exporters.html import html_page, renderer
from desktop.store.transfer.exporters.print import print_pieces
from desktop.store.transfer.records import ConversationRecord, MessageRecord

ARABIC, HEBREW = "مرحبا بالعالم", "שלום עולם"
PINK = QColor("#ff00fe")


def chat(*texts: str, asked: str = "Hi", prompt: str = "") -> ConversationRecord:
    rows = [MessageRecord("q", None, "user", asked, 1.7e9)]
    for number, text in enumerate(texts):
        rows.append(MessageRecord(str(number), rows[-1].key, "assistant", text, 1.7e9))
    return ConversationRecord("inglenook", "k", "Title", 1.7e9, messages=tuple(rows), system_prompt=prompt)


def words(html: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


# -- footnotes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a[^1] b[^n]\n\n[^n]: two\n[^1]: one", "a 1 b 2 one ↩︎ two ↩︎"),
        ("a[^1] b[^1]\n\n[^1]: one", "a 1 b 1 one ↩︎ ↩︎"),
        ("a[^1]\n\n[^1]: one\n[^2]: nobody asked", "a 1 one ↩︎ nobody asked"),
        ("a[^1]\n\n[^1]: one\n[^1]: the same label", "a 1 one ↩︎ the same label"),
        ("a[^1]\n\n[^1]: one\n\n    more\n\n    ```\n    code\n    ```\n\nend", "a 1 end one more code ↩︎"),
        ("> a[^1]\n>\n> [^1]: one [^2]\n>     [^2]: inner", "a 1 one 2 ↩︎ inner ↩︎"),
        ("a[^none] ^[inline] `[^1]`", "a[^none] ^[inline] [^1]"),
        ("a[^1]\n\n[^1]:", "a 1 ↩︎"),
    ],
)
def test_footnotes(text: str, expected: str) -> None:
    assert words(renderer().render(text)) == expected


def test_notes_that_nothing_refers_to_have_places_of_their_own_after_the_others() -> None:
    html = renderer().render("a[^1]\n\n[^x]: one\n[^1]: two\n[^y]: three\n[^z]: four")
    assert re.findall(r'id="(note-0-\d+)"\s*>\s*<p>(\w+)', html) == [
        ("note-0-1", "two"), ("note-0-2", "one"), ("note-0-3", "three"), ("note-0-4", "four"),
    ]  # fmt: skip


def test_footnotes_of_several_replies_are_distinct_and_link_both_ways() -> None:
    html = "".join(
        html_page([chat("a[^1]\n\n[^1]: one", "b[^1]\n\n[^1]: two"), chat("c[^1]\n\n[^1]: three")])
    )
    places = re.findall(r' id="([^"]+)"', html)
    ways = re.findall(r'href="#([^"]+)"', html)
    assert len(places) == len(set(places)) == 6
    assert sorted(ways) == sorted(places)


# -- addresses


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("see https://a.org/b?c=d_e, and http://x.org.", ["https://a.org/b?c=d_e", "http://x.org"]),
        ("www.a.org/x(y) and WWW.b.org!", ["http://www.a.org/x(y)", "http://WWW.b.org"]),
        ("mail a.b@c.org", ["mailto:a.b@c.org"]),
        ("main.py, README.md, node.js, 1.2.3.4 and wwww.a.org", []),
        ("javascript:alert(1) file:///etc/passwd `https://a.org` www.", []),
        ("见https://a.org/x。然后（www.b.org）", ["https://a.org/x", "http://www.b.org"]),
        ("**https://a.org** and https://b.org/ü", ["https://a.org", "https://b.org/%C3%BC"]),
        ("[named](https://a.org) <https://b.org>", ["https://a.org", "https://b.org"]),
    ],
)
def test_bare_addresses_are_links(text: str, addresses: list[str]) -> None:
    assert re.findall(r'href="([^"]*)"', renderer().render(text)) == addresses


@pytest.mark.slow
def test_hostile_text_does_not_take_long() -> None:
    begin = time.process_time()
    for piece in ("www.", "http://a", "a@", "[^1]", "[^1]: ", "> ", "- ", "\u05d0 ", "|a", "http://www."):
        renderer().render(piece * 3000)
        renderer().render((piece + "\n") * 3000)
    assert time.process_time() - begin < 8


# -- directions


def directions(html: str) -> list[tuple[str, str]]:
    return re.findall(r'<(\w+)[^>]* dir="(\w+)"', html)


def test_each_block_has_the_direction_of_its_words() -> None:
    text = f"Hi\n\n{ARABIC}\n\n# {HEBREW}\n\n- {HEBREW}\n- English\n\n> {ARABIC}\n\n"
    text += f"|{HEBREW}|b|\n|-|-|\n|1|{HEBREW}|\n\n1. a\n\n   {ARABIC}"
    assert directions(renderer().render(text)) == [
        ("p", "rtl"), ("h1", "rtl"), ("ul", "rtl"), ("li", "ltr"), ("blockquote", "rtl"), ("div", "rtl"),
        ("th", "ltr"), ("p", "rtl"),
    ]  # fmt: skip
    assert (
        directions(renderer().render(f"`code` {ARABIC}\n\n123\n\n`code` only\n\n[{ARABIC}](https://a.org)"))
        == [("p", "rtl")] * 2
    )


# -- in a browser


def picture() -> str:
    image = QImage(100, 50, QImage.Format.Format_RGB32)
    image.fill(PINK)
    buffer = QBuffer()
    buffer.open(QBuffer.OpenModeFlag.ReadWrite)
    image.save(buffer, "PNG")
    return f"data:image/png;base64,{base64.b64encode(bytes(buffer.data().data())).decode()}"


def browser(page: Path, *options: str) -> str:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    assert program is not None
    profile = f"--user-data-dir={page.parent / 'profile'}"
    command = [program, "--headless", "--no-sandbox", "--disable-gpu", profile, *options, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


MEASURE = """<script>
const shown = (name) => [...document.querySelectorAll(name)].map((each) => {
  const style = getComputedStyle(each);
  return [style.direction, parseFloat(style.fontSize), style.color, each.scrollWidth > each.clientWidth + 1];
});
const root = document.documentElement;
document.title = JSON.stringify({page: [root.scrollWidth, root.clientWidth],
  heads: shown(".text h1, .text h2, .text h3"),
  label: shown("article > h2")[0], body: shown(".text p")[0], list: shown(".text ul")[0],
  tables: shown(".wide"), user: shown(".user")[0]});
</script></body>"""


@pytest.mark.skipif(
    not (shutil.which("chromium") or shutil.which("google-chrome")),
    reason="Chromium is not installed: pages are not looked at",
)
def test_a_browser_shows_it(tmp_path: Path) -> None:
    wide = "|" + "a long column|" * 30 + "\n|" + "-|" * 30 + "\n|" + "value|" * 30
    text = (
        f"# One\n\n## Two\n\n### Three\n\ntext {'long' * 100}\n\n![p]({picture()})\n\n- "
        f"{HEBREW}\n\n{wide}\n\n|{HEBREW}|b|\n|-|-|\n|1|2|"
    )
    page = tmp_path / "page.html"
    page.write_text("".join(html_page([chat(text, asked=f"{HEBREW}\nthen English")])), encoding="utf-8")
    shot = tmp_path / "shot.png"
    browser(page, f"--screenshot={shot}", "--window-size=800,1600", "--hide-scrollbars")
    seen = QImage(str(shot))
    colours = [seen.pixelColor(x, y) for x in range(0, seen.width(), 10) for y in range(0, seen.height(), 10)]
    assert 30 <= colours.count(PINK) <= 70  # of 100 by 50 pixels
    measured = tmp_path / "measured.html"
    html = re.sub(r"<meta http-equiv=[^>]*>\n", "", page.read_text(encoding="utf-8")).replace(
        "</body>", MEASURE
    )
    measured.write_text(html, encoding="utf-8")
    title = re.search(r"<title>(.*?)</title>", browser(measured, "--dump-dom", "--window-size=800,1600"))
    assert title is not None
    found = json.loads(title[1])
    assert found["page"][0] <= found["page"][1]
    assert [table[3] for table in found["tables"]] == [True, False]  # the wide one scrolls on its own
    assert [table[0] for table in found["tables"]] == ["ltr", "rtl"]
    assert found["list"][0] == "rtl"
    sizes = [head[1] for head in found["heads"]]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 3
    assert sizes[-1] > found["body"][1]
    assert {head[2] for head in found["heads"]} == {found["body"][2]}  # not the grey of who spoke
    assert found["label"][2] != found["body"][2]


# -- what is printed


def test_nested_code_and_quotes_are_printed_with_their_background() -> None:
    text = "1. a\n\n   ```python\n   x = 1\n   ```\n\n   > quoted\n\n2. b\n\n> out\n>\n> ```\n> y\n> ```\n"
    html = "".join(piece.html for piece in print_pieces(chat(text)))
    assert html.count('bgcolor="#f6f7f9"') == 2
    assert html.count('bgcolor="#c4c6d0"') == 1
    assert html.count("<blockquote>") == html.count("</blockquote>") == 2
    assert 'class="grid"' not in html


def test_any_number_of_footnotes_is_printed_as_a_list() -> None:
    many = (
        "".join(f"a[^{n}] " for n in range(150)) + "\n\n" + "\n".join(f"[^{n}]: note {n}" for n in range(150))
    )
    pieces = [piece.html for piece in print_pieces(chat(many)) if 'class="notes"' in piece.html]
    assert len(pieces) == 3
    assert [re.findall(r'start="(\d+)"', piece) for piece in pieces] == [[], ["61"], ["121"]]
    assert "↩" not in "".join(pieces)
    assert [words(piece).split("note ")[1].split()[0] for piece in pieces] == ["0", "60", "120"]
