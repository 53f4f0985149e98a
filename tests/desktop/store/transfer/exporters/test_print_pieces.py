"""A chat as pieces for printing: what each shows, where long tables are cut, and which way they are read."""

from __future__ import annotations

import re

from desktop.store.conversations.records import NOTEBOOK
from desktop.store.transfer.exporters.print import TABLE_ROWS, Piece, print_pieces
from desktop.store.transfer.records import ConversationRecord, MessageRecord


def printed(text: str, role: str = "assistant", **more: object) -> list[Piece]:
    message = MessageRecord("a", None, role, text)
    return [*print_pieces(ConversationRecord("here", "k", "Title", messages=(message,), **more))]  # type: ignore[arg-type]


def words(piece: Piece) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", piece.html).split())


def rows(piece: Piece) -> list[list[str]]:
    return [
        re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row) for row in re.findall(r"(?s)<tr>(.*?)</tr>", piece.html)
    ]


def test_the_head_and_the_system_prompt_come_first() -> None:
    found = printed("Yes.", created_at=1e9, system_prompt="Be <brief>.")
    assert [words(piece) for piece in found[:4]] == [
        "Title",
        found[1].html[16:-4],
        "System prompt",
        "Be &lt;brief&gt;.",
    ]
    assert [piece.keeps for piece in found[:2]] == [True, True]
    assert (found[3].bar, words(found[-1])) == (True, "Yes.")
    notebook = printed("*Once* upon", kind=NOTEBOOK, system_prompt="Be brief.")
    assert [words(piece) for piece in notebook] == ["Title", "*Once* upon"]


def test_long_tables_are_cut_between_rows_and_each_part_has_the_head() -> None:
    lines = [f"|{n}|x|" for n in range(2 * TABLE_ROWS + 1)]
    parts = [piece for piece in printed("|n|b|\n|-|-|\n" + "\n".join(lines)) if "<table" in piece.html]
    assert [rows(part)[0] for part in parts] == [["n", "b"]] * 3
    found = [row for part in parts for row in rows(part)[1:]]
    assert found == [[str(n), "x"] for n in range(2 * TABLE_ROWS + 1)]
    assert [len(rows(part)) - 1 for part in parts] == [TABLE_ROWS, TABLE_ROWS, 1]
    (whole,) = [
        piece for piece in printed("|n|b|\n|-|-|\n" + "\n".join(lines[:TABLE_ROWS])) if "<table" in piece.html
    ]
    assert len(rows(whole)) == TABLE_ROWS + 1


def test_tables_in_a_script_from_right_to_left_begin_at_the_right() -> None:
    (table,) = [piece for piece in printed("|אחד|שתיים|\n|-|-|\n|1|2|") if "<table" in piece.html]
    assert 'align="right"' in table.html
    assert rows(table) == [["שתיים", "אחד"], ["2", "1"]]
    (table,) = [piece for piece in printed("|1 one|שתיים|\n|-|-|\n|1|2|") if "<table" in piece.html]
    assert 'align="right"' not in table.html
    assert rows(table) == [["1 one", "שתיים"], ["1", "2"]]


def test_lines_and_introductions() -> None:
    found = printed("Like this:\n\n- a\n\n---\n\nEnd.\n\n> said")
    kinds = {words(piece): piece for piece in found}
    assert (kinds["Like this:"].keeps, kinds["End."].keeps) == (True, False)
    assert (kinds["said"].bar, kinds["End."].bar) == (True, False)
    assert [piece.html for piece in found].count("<hr>") == 1
