"""Saved prompts in the database and in files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from desktop.store.conversations.conversations import ConversationStore
from desktop.store.database.database import Database, StoreError
from desktop.store.settings import saved_prompts
from desktop.store.settings.saved_prompts import Prompt, PromptStore, read_prompts, write_prompts


def test_new_ones_get_ids_of_their_own_and_deleted_ones_their_old(
    store: ConversationStore, database: Database
) -> None:
    prompts = PromptStore(database)
    first, second = prompts.put(Prompt(0, " Sum \n up ", "a")), prompts.put(Prompt(0, "", "b"))
    assert prompts.all() == (Prompt(second, "Prompt", "b"), Prompt(first, "Sum up", "a"))
    assert prompts.put(Prompt(second, "again", "c")) == second
    prompts.remove(first)
    assert prompts.all() == (Prompt(second, "again", "c"),)
    assert prompts.put(Prompt(first, "Sum up", "a")) == first
    assert len(prompts.all()) == 2


def test_files_are_read_back_and_those_of_others_too(tmp_path: Path) -> None:
    path = tmp_path / "prompts.json"
    write_prompts(path, [Prompt(3, "Übersetze", "In English:"), Prompt(4, "x", "y")])
    assert "Übersetze" in path.read_text(encoding="utf-8")
    assert read_prompts(path) == (Prompt(0, "Übersetze", "In English:"), Prompt(0, "x", "y"))
    others = [
        {"command": "/sum", "content": "Sum up"}, {"title": "No text"}, "words", {"name": "n", "text": " "}
    ]  # fmt: skip
    path.write_text(json.dumps(others))
    assert read_prompts(path) == (Prompt(0, "sum", "Sum up"),)
    for empty in ("[]", "7", '{"prompts": 7}', '{"prompts": {"name": "n", "text": "t"}}', "null"):
        path.write_text(empty)
        with pytest.raises(StoreError, match="contains no prompts"):
            read_prompts(path)
    path.write_text('{"prompts": [{"title": "n", "prompt": "t"}]}')
    assert read_prompts(path) == (Prompt(0, "n", "t"),)
    path.write_text("{")
    with pytest.raises(StoreError, match="is not a prompts file"):
        read_prompts(path)


def test_files_that_cannot_be_read_or_written_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "prompts.json"
    with pytest.raises(StoreError, match=r"^prompts\.json cannot be read: No such file"):
        read_prompts(path)
    with pytest.raises(StoreError, match=r"^The prompts cannot be written to prompts\.json: "):
        write_prompts(tmp_path / "missing" / "prompts.json", [])
    write_prompts(path, [Prompt(0, "n", "t")])
    size = path.stat().st_size
    monkeypatch.setattr(saved_prompts, "_MOST_FILE_BYTES", size)
    assert read_prompts(path) == (Prompt(0, "n", "t"),)
    monkeypatch.setattr(saved_prompts, "_MOST_FILE_BYTES", size - 1)
    with pytest.raises(StoreError, match=r"^prompts\.json is too large"):
        read_prompts(path)


def test_long_names_and_texts_of_a_file_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_prompts, "LONGEST_PROMPT", 5)
    path = tmp_path / "prompts.json"
    path.write_text(json.dumps([{"name": 7, "title": "n" * 300, "content": "123456"}]), "utf-8-sig")
    assert read_prompts(path) == (Prompt(0, "n" * 200, "12345"),)
