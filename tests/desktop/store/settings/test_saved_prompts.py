"""Saved prompts in the database and in files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from desktop.store.conversations.conversations import ConversationStore
from desktop.store.database.database import Database, StoreError
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
