"""Tasks in exported web pages and prints."""

from __future__ import annotations

import pytest

from desktop.store.transfer.exporters.html import renderer


@pytest.mark.parametrize(
    ("text", "shown", "tasks"),
    [
        ("- [x] done *well*\n- [ ] open\n- other", ["☑ done <em>well</em>", "☐ open", "other"], 2),
        ("1. [X] done\n\n2. [ ] open", ["☑ done", "☐ open"], 2),
        ("- a\n  - [ ] nested", ["☐ nested"], 1),
        (
            "- [x]\n- [y] no\n- [x](https://example.org) a link\n- [x]no",
            ["[x]", "[y] no", ">x</a> a link", "[x]no"],
            0,
        ),
        ("[x] a paragraph", ["[x] a paragraph"], 0),
        ("a\n\n[x] b", ["[x] b"], 0),
        ("- a\n\n  [x] b", ["[x] b"], 0),
    ],
)
def test_tasks(text: str, shown: list[str], tasks: int) -> None:
    html = renderer().render(text)
    assert all(words in html for words in shown)
    assert html.count('<li class="task">') == tasks
