"""Settings saved for single models, hidden models, and the offline switch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from desktop.store.settings.preferences import Preferences
from engine.settings import CacheSettings, LoadSettings, SamplerSettings


def test_kept_values_come_back(tmp_path: Path) -> None:
    path = tmp_path / "preferences.json"
    preferences = Preferences(path)
    preferences.keep("/m/a.gguf", CacheSettings, {"context_length": 4096, "dtype": "q8"})
    preferences.keep("/m/a.gguf", SamplerSettings, {"temperature": 0.6})
    preferences.keep("/m/b.gguf", LoadSettings, {"chat_template": "{{ x }}"})
    again = Preferences(path)
    assert again.kept("/m/a.gguf", CacheSettings) == {"context_length": 4096, "dtype": "q8"}
    assert again.kept("/m/a.gguf", SamplerSettings) == {"temperature": 0.6}
    assert again.kept("/m/a.gguf", LoadSettings) == {}
    assert again.kept("/m/b.gguf", LoadSettings) == {"chat_template": "{{ x }}"}
    assert again.kept("/m/none.gguf", CacheSettings) == {}
    again.keep("/m/a.gguf", CacheSettings, {})
    again.keep("/m/a.gguf", SamplerSettings, {})
    assert json.loads(path.read_text("utf-8"))["models"] == {
        "/m/b.gguf": {"LoadSettings": {"chat_template": "{{ x }}"}}
    }


@pytest.mark.parametrize(
    "models",
    [3, [], {"/m": 3}, {"/m": {"CacheSettings": []}}, {"/m": {"CacheSettings": {"dtype": "q99", "no": 1}}}],
)
def test_broken_values_are_left_out(tmp_path: Path, models: object) -> None:
    path = tmp_path / "preferences.json"
    path.write_text(json.dumps({"models": models}), "utf-8")
    preferences = Preferences(path)
    assert preferences.kept("/m", CacheSettings) == {}
    preferences.keep("/m", CacheSettings, {"dtype": "q4"})
    assert Preferences(path).kept("/m", CacheSettings) == {"dtype": "q4"}


def test_hidden_models(tmp_path: Path) -> None:
    path = tmp_path / "preferences.json"
    preferences = Preferences(path)
    preferences.remember_model("/m/a.gguf")
    preferences.hide_model("/m/a.gguf")
    preferences.hide_model("/m/b.gguf")
    preferences.hide_model("/m/a.gguf")
    again = Preferences(path)
    assert again.hidden_models == ("/m/b.gguf", "/m/a.gguf")
    assert (again.recent_models, again.last_model) == ((), "")
    again.remember_model("/m/a.gguf")
    assert again.hidden_models == ("/m/b.gguf",)
    again.show_hidden_models()
    assert Preferences(path).hidden_models == ()


def test_offline(tmp_path: Path) -> None:
    preferences = Preferences(tmp_path / "preferences.json")
    assert not preferences.offline
    preferences.set_offline(True)
    assert Preferences(tmp_path / "preferences.json").offline
