"""HTML in replies, exported: what formats text does so, everything else is text."""

from __future__ import annotations

import pytest

from desktop.store.transfer.exporters.html import highlighted, renderer


def rendered(text: str) -> str:
    return str(renderer().render(text, {"page": 1})).strip()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("H<sub>2</sub>O", "H<sub>2</sub>O"),
        ('<KBD class="x" onclick="f()">C</kbd>', "<kbd>C</kbd>"),
        ("one<br>two", "one<br />\ntwo"),
        ("<summary>More</summary>", "<strong>More</strong>"),
        ("H~2~O", "H<s>2</s>O"),
        ("a <b>bold", "a &lt;b&gt;bold"),
        ("a</b> b", "a&lt;/b&gt; b"),
        ('<span style="x">a</span>', "&lt;span style=&quot;x&quot;&gt;a&lt;/span&gt;"),
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("<img src=x onerror=f()> <sub>a</sub>", "&lt;img src=x onerror=f()&gt; <sub>a</sub>"),
        ("<!-- <sub>a</sub> -->", "&lt;!-- &lt;sub&gt;a&lt;/sub&gt; --&gt;"),
        ("`<sub>a</sub>`", "<code>&lt;sub&gt;a&lt;/sub&gt;</code>"),
    ],
)
def test_html_in_a_paragraph(text: str, expected: str) -> None:
    found = rendered(text)
    assert found.startswith("<p")
    assert found.partition(">")[2].removesuffix("</p>").strip() == expected


def test_a_block_of_html_is_text_and_details_show_what_they_hold() -> None:
    found = rendered("<div>\n<iframe src=x></iframe>\n</div>")
    assert "<div" not in found
    assert "<iframe" not in found
    found = rendered("<details>\n<summary>More</summary>\n\nInside **all**.\n\n</details>")
    assert "details" not in found
    assert "<strong>More</strong>" in found
    assert "Inside <strong>all</strong>." in found


def test_code_is_coloured_where_its_language_is_known_and_it_is_not_too_long() -> None:
    assert '<span class="kc">True</span>' in highlighted("x = True", "python")
    for code, language in (("x = True", ""), ("x = True", "nonsense"), ("x = True\n" * 12_000, "python")):
        assert highlighted(code, language) == ""


def test_only_embedded_pictures_are_shown_others_are_links() -> None:
    assert '<img src="data:image/png;base64,AA" alt="p">' in rendered("![p](data:image/png;base64,AA)")
    assert '<a href="http://x/p.png">p</a>' in rendered("![p](http://x/p.png)")
    assert '<a href="http://x/p.png">http://x/p.png</a>' in rendered("![](http://x/p.png)")
