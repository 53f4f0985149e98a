"""What is kept for a model comes before the saved defaults and after the conversation's own, and only while it is the model."""

from __future__ import annotations

import dataclasses

from engine.settings import CacheSettings, LoadSettings, SamplerSettings, Settings
from tests.desktop.services.conftest import Desk

ONE, TWO = "/models/one.gguf", "/models/two.gguf"


def source(desk: Desk, cls: type[Settings], name: str) -> tuple[object, str]:
    return getattr(desk.session.settings(cls), name), desk.session.source_of(cls, name)


def test_a_model_is_loaded_with_what_is_kept_for_it(desk: Desk) -> None:
    desk.session.keep_for_model(ONE, CacheSettings, {"context_length": 2048, "dtype": "q8"})
    desk.session.keep_for_model(ONE, LoadSettings, {"chat_template": "{{ messages }}"})
    desk.session.set_settings(CacheSettings(context_length=1024))
    desk.load(ONE)
    desk.load(TWO)
    assert desk.door.settings == [
        (LoadSettings(chat_template="{{ messages }}"), CacheSettings(context_length=2048, dtype="q8")),
        (LoadSettings(), CacheSettings(context_length=1024)),
    ]
    assert desk.session.loaded_with == desk.door.settings[-1]
    assert source(desk, CacheSettings, "context_length") == (1024, "saved default")
    assert desk.session.settings_for(ONE, CacheSettings) == CacheSettings(context_length=2048, dtype="q8")


def test_sampling_of_a_model(desk: Desk) -> None:
    desk.session.keep_for_model(ONE, SamplerSettings, {"temperature": 0.6, "top_k": 20})
    desk.load(ONE)
    assert source(desk, SamplerSettings, "temperature") == (0.6, "model")
    assert (SamplerSettings,) in desk.said["settings_changed"]
    desk.session.set_settings(dataclasses.replace(desk.session.settings(SamplerSettings), temperature=1.2))
    assert source(desk, SamplerSettings, "temperature") == (1.2, "conversation")
    assert source(desk, SamplerSettings, "top_k") == (20, "model")
    assert desk.session.below(SamplerSettings).temperature == 0.6
    desk.ask("hello")
    assert (desk.chat.requests[-1].sampler.temperature, desk.chat.requests[-1].sampler.top_k) == (1.2, 20)
    desk.session.reset_setting(SamplerSettings, "temperature")
    assert source(desk, SamplerSettings, "temperature") == (0.6, "model")
    desk.session.reset_setting(SamplerSettings, "temperature")
    assert source(desk, SamplerSettings, "temperature") == (0.7, "default")
    assert desk.preferences().kept(ONE, SamplerSettings) == {"top_k": 20}
    desk.load(TWO)
    assert source(desk, SamplerSettings, "top_k") == (40, "default")


def test_editing_in_the_pane_stays_with_the_model(desk: Desk) -> None:
    """A saved default would be hidden by what is kept, and the edit would do nothing."""
    desk.session.keep_for_model(ONE, CacheSettings, {"dtype": "q8"})
    desk.load(ONE)
    desk.session.set_settings(dataclasses.replace(desk.session.settings(CacheSettings), dtype="q4", context_length=512))
    assert source(desk, CacheSettings, "dtype") == ("q4", "model")
    assert source(desk, CacheSettings, "context_length") == (512, "saved default")
    preferences = desk.preferences()
    assert preferences.kept(ONE, CacheSettings) == {"dtype": "q4"}
    assert preferences.settings(CacheSettings) == CacheSettings(context_length=512)
    desk.session.reset_setting(CacheSettings, "dtype")
    assert source(desk, CacheSettings, "dtype") == ("auto", "default")


def test_saving_defaults_leaves_the_model_its_own(desk: Desk) -> None:
    desk.session.keep_for_model(ONE, SamplerSettings, {"temperature": 0.6, "top_k": 20})
    desk.load(ONE)
    desk.session.set_settings(dataclasses.replace(desk.session.settings(SamplerSettings), temperature=1.5, top_p=0.5))
    before = desk.session.settings(SamplerSettings)
    assert desk.session.save_as_defaults()
    assert desk.session.settings(SamplerSettings) == before
    preferences = desk.preferences()
    assert preferences.settings(SamplerSettings) == SamplerSettings(temperature=1.5, top_p=0.5)
    assert preferences.kept(ONE, SamplerSettings) == {"temperature": 1.5, "top_k": 20}


def test_a_load_that_fails_brings_the_other_models_settings_back(desk: Desk) -> None:
    desk.session.keep_for_model(ONE, CacheSettings, {"dtype": "q8"})
    desk.session.keep_for_model("/models/missing.gguf", CacheSettings, {"dtype": "q4"})
    desk.load(ONE)
    desk.session.open_model("/models/missing.gguf")
    assert desk.session.settings(CacheSettings).dtype == "q4"
    desk.until_idle()
    assert source(desk, CacheSettings, "dtype") == ("q8", "model")
    desk.session.unload_model()
    desk.until_idle()
    assert source(desk, CacheSettings, "dtype") == ("auto", "default")


def test_loading_can_be_cancelled(desk: Desk) -> None:
    desk.door.load_delay_s, desk.door.load_steps = 0.05, 1000
    desk.session.open_model(ONE)
    desk.qtbot.waitUntil(lambda: len(desk.said["progress"]) > 2)
    desk.session.stop_loading()
    desk.until_idle()
    assert desk.session.state == "no_model"
    assert desk.session.model is None
    assert desk.notices() == []


def test_a_task_aside_is_no_state(talking: Desk) -> None:
    results: list[object] = []
    talking.session.measured.connect(results.append)

    def task(stop):
        yield
        return 5.0

    def broken(stop):
        yield
        raise OSError("no")

    before = talking.states()
    talking.session.measure(task)
    talking.session.measure(broken)
    talking.ask("and meanwhile")
    talking.qtbot.waitUntil(lambda: len(results) == 2)
    assert results == [5.0, None]
    assert talking.states()[: len(before)] == before
    assert "loading" not in talking.states()[len(before) :]
