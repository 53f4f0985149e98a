"""Preferences: what is kept, what is replaced, and that a broken file affects nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from desktop.settings import PANES, Appearance, Behaviour
from desktop.store.database.database import StoreError
from desktop.store.settings.preferences import Preferences
from engine.platform.language import PREFERENCES
from engine.settings import CacheSettings, SamplerSettings, StopSettings


def test_defaults_without_a_file(tmp_path: Path) -> None:
    preferences = Preferences(tmp_path / "preferences.json")
    for _, cls in PANES:
        assert preferences.settings(cls) == cls()
    assert (
        preferences.last_model,
        preferences.recent_models,
        preferences.model_folders,
        preferences.last_conversation,
    ) == ("", (), (), 0)
    assert preferences.notices == ()
    assert not preferences.path.exists()


def test_what_is_saved_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "preferences.json"
    preferences = Preferences(path)
    preferences.save_settings(SamplerSettings(temperature=0.3, seed=5))
    preferences.save_settings(StopSettings(stop_strings=("END", "ü\n")))
    preferences.save_settings(Appearance(theme="dark", text_scale=150))
    for name in ("a", "b", "a", *map(str, range(12))):
        preferences.remember_model(f"/m/{name}.gguf")
    preferences.forget_model("/m/7.gguf")
    preferences.add_model_folder("/models")
    preferences.add_model_folder("/more")
    preferences.add_model_folder("/models")
    preferences.remove_model_folder("/more")
    preferences.remember_conversation(12)
    again = Preferences(path)
    assert again.settings(SamplerSettings) == SamplerSettings(temperature=0.3, seed=5)
    assert again.settings(StopSettings) == StopSettings(stop_strings=("END", "ü\n"))
    assert again.settings(Appearance) == Appearance(theme="dark", text_scale=150)
    assert again.saved_names(SamplerSettings) == {"temperature", "seed"}
    assert again.last_model == "/m/11.gguf"
    assert again.recent_models == tuple(f"/m/{n}.gguf" for n in (11, 10, 9, 8, 6, 5, 4, 3, 2))
    assert again.model_folders == ("/models",)
    assert again.last_conversation == 12
    assert os.listdir(tmp_path) == ["preferences.json"]


def test_recent_choices_come_latest_first_and_the_oldest_go(tmp_path: Path) -> None:
    path = tmp_path / "preferences.json"
    preferences = Preferences(path)
    preferences.write_soon = lambda: None
    for number in (*range(30), 20):
        preferences.remember_emoji(f"emoji {number}")
        preferences.remember_choice(f"choice {number}")
    preferences.save()
    expected = [20, *(number for number in range(29, 5, -1) if number != 20)]
    again = Preferences(path)
    assert again.recent_emoji == tuple(f"emoji {number}" for number in expected)
    assert again.recent_choices == tuple(f"choice {number}" for number in expected[:20])


def test_small_choices_are_read_back_and_written_only_when_they_change(tmp_path: Path) -> None:
    preferences = Preferences(tmp_path / "preferences.json")
    written: list[int] = []
    preferences.write_soon = lambda: written.append(1)
    for _ in range(2):
        preferences.set_passage_model("words")
        preferences.set_offline(True)
        preferences.remember_conversation(7)
        preferences.save_servers([{"id": "lab"}])
        preferences.add_model_folder("/models")
    assert len(written) == 5
    preferences.forget_setting(SamplerSettings, "top_k")
    preferences.show_hidden_models()
    assert len(written) == 5
    preferences.save_shortcuts({"quit": ("Ctrl+Q",), "stop": ()})
    preferences.note_update_check(12.5)
    preferences.keep("/m/a.gguf", SamplerSettings, {"top_k": 3})
    preferences.save()
    again = Preferences(preferences.path)
    assert (again.passage_model, again.offline, again.last_conversation) == ("words", True, 7)
    assert (again.servers, again.model_folders) == ([{"id": "lab"}], ("/models",))
    assert (again.shortcuts, again.updates_checked_at) == ({"quit": ("Ctrl+Q",), "stop": ()}, 12.5)
    assert again.models_with_settings == {"/m/a.gguf"}
    assert again.notices == ()


@pytest.mark.parametrize(("saved", "kept", "words"), [
    ({"quit": "Ctrl+Q", "stop": ["Esc", 3], "open": ["Ctrl+O"]}, {"open": ("Ctrl+O",)}, ["quit", "stop"]),
    (["Ctrl+Q"], {}, ["all"]), (None, {}, []),
])  # fmt: skip
def test_keys_that_cannot_be_read_are_named(
    tmp_path: Path, saved: object, kept: dict[str, tuple[str, ...]], words: list[str]
) -> None:
    path = tmp_path / "preferences.json"
    path.write_text(json.dumps({"shortcuts": saved}))
    preferences = Preferences(path)
    assert preferences.shortcuts == kept
    assert [sentence.split("“")[1].split("”")[0] for sentence in preferences.notices] == words


def test_a_model_that_was_forgotten_is_no_more_the_last(tmp_path: Path) -> None:
    preferences = Preferences(tmp_path / "preferences.json")
    for path in ("/a.gguf", "/b.gguf"):
        preferences.remember_model(path)
    preferences.forget_model("/a.gguf")
    assert (preferences.last_model, preferences.recent_models) == ("/b.gguf", ("/b.gguf",))
    preferences.forget_model("/b.gguf")
    assert (preferences.last_model, preferences.recent_models) == ("", ())


def test_preferences_that_cannot_be_read_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "preferences.json").mkdir()
    with pytest.raises(StoreError, match=r"preferences\.json cannot be read \(Is a directory\)"):
        Preferences(tmp_path / "preferences.json")
    assert os.listdir(tmp_path) == ["preferences.json"]


def test_half_a_surrogate_pair_is_saved_as_an_escape(tmp_path: Path) -> None:
    """A preset of another program may hold one, and it has no UTF-8."""
    path = tmp_path / "p.json"
    Preferences(path).save_settings(StopSettings(stop_strings=("\ud800", "ü")))
    assert Preferences(path).settings(StopSettings).stop_strings == ("\ud800", "ü")


def test_only_changed_values_are_written(tmp_path: Path) -> None:
    preferences = Preferences(tmp_path / "preferences.json")
    preferences.save_settings(SamplerSettings(top_k=7))
    preferences.save_settings(CacheSettings())
    assert json.loads(preferences.path.read_text())["settings"] == {"SamplerSettings": {"top_k": 7}}
    preferences.forget_setting(SamplerSettings, "top_k")
    assert json.loads(preferences.path.read_text())["settings"] == {}


def test_unknown_keys_are_kept_and_bad_values_replaced(tmp_path: Path) -> None:
    path = tmp_path / "preferences.json"
    path.write_text(
        json.dumps(
            {
                "from_tomorrow": [1, 2],
                "last_model": 5,
                "recent_models": "no list",
                "last_conversation": True,
                "updates_checked_at": "yesterday",
                "settings": {
                    "SamplerSettings": {"temperature": "hot", "top_k": 3, "quantum": True},
                    "Behaviour": {"send_with": "telepathy"},
                    "Tomorrow": {"x": 1},
                    "Appearance": 7,
                },
            }
        )
    )
    preferences = Preferences(path)
    assert preferences.settings(SamplerSettings) == SamplerSettings(top_k=3)
    assert preferences.settings(Behaviour) == Behaviour()
    assert (preferences.last_model, preferences.recent_models, preferences.last_conversation) == ("", (), 0)
    assert preferences.updates_checked_at == 0.0
    assert len(preferences.notices) == 2
    assert "temperature" in preferences.notices[0]
    assert "telepathy" in preferences.notices[1]
    preferences.remember_model("/m.gguf")
    data = json.loads(path.read_text())
    assert data["from_tomorrow"] == [1, 2]
    assert data["settings"] == {"SamplerSettings": {"quantum": True, "top_k": 3}, "Tomorrow": {"x": 1}}


@pytest.mark.parametrize("content", [b"{", b"[1]", b"\xff\xfe", b"", b"null", b"[" * 100_000])
def test_a_damaged_file_is_set_aside(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "preferences.json"
    path.write_bytes(content)
    preferences = Preferences(path)
    assert preferences.settings(SamplerSettings) == SamplerSettings()
    assert len(preferences.notices) == 1
    assert "damaged" in preferences.notices[0]
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [content]
    preferences.remember_model("/m.gguf")
    assert Preferences(path).last_model == "/m.gguf"


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    preferences = Preferences(tmp_path / "preferences.json")
    preferences.remember_model("/old.gguf")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        preferences.remember_model("/new.gguf")
    assert Preferences(preferences.path).last_model == "/old.gguf"
    assert os.listdir(tmp_path) == ["preferences.json"]


def test_writing_can_wait(tmp_path: Path) -> None:
    path = tmp_path / PREFERENCES
    preferences = Preferences(path)
    expected: list[int] = []
    preferences.write_soon = lambda: expected.append(1)
    preferences.save()
    preferences.save_settings(SamplerSettings(top_k=7))
    preferences.remember_conversation(3)
    assert (len(expected), preferences.unsaved, path.exists()) == (2, True, False)
    preferences.save()
    assert not preferences.unsaved
    assert Preferences(path).settings(SamplerSettings).top_k == 7
    assert Preferences(path).last_conversation == 3


def test_what_could_not_be_written_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    preferences = Preferences(tmp_path / PREFERENCES)
    preferences.write_soon = lambda: None
    preferences.remember_conversation(3)
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", _no_space)
        with pytest.raises(StoreError, match="cannot be saved"):
            preferences.save()
    preferences.save()
    assert Preferences(tmp_path / PREFERENCES).last_conversation == 3


def _no_space(source: object, target: object) -> None:
    raise OSError(28, "No space left on device")
