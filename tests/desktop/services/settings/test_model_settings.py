"""What is kept for a model comes before the saved defaults and after the conversation's own, and only while it is the model."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from desktop.services.settings.layered_settings import SettingsLayers
from desktop.settings import Behaviour
from engine.core import ModelInfo
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


# -- what a model's makers advise

ADVISED = (("temperature", 0.6), ("top_k", 20), ("top_p", 0.8))


@pytest.fixture
def advised(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """The makers of model one advise something; those of all others do not."""
    plain = desk.door.describe

    def describe(path: Path) -> ModelInfo:
        info = plain(path)
        return dataclasses.replace(info, defaults=ADVISED) if str(path) == ONE else info

    monkeypatch.setattr(desk.door, "describe", describe)
    desk.session.open_model(TWO)  # the session holds the first `describe` for headers; the load itself asks the door
    desk.until_idle()
    return desk


def sampler(desk: Desk, **values: object) -> None:
    desk.session.set_settings(dataclasses.replace(desk.session.settings(SamplerSettings), **values))


def test_order_of_the_layers(advised: Desk) -> None:
    """Built-in, saved defaults, the makers' advice, what is kept for the model, the conversation."""
    desk = advised
    sampler(desk, temperature=1.1, min_p=0.2)
    desk.session.save_as_defaults()
    assert source(desk, SamplerSettings, "temperature") == (1.1, "saved default")
    desk.session.keep_for_model(ONE, SamplerSettings, {"top_k": 7})
    desk.said["settings_changed"].clear()
    desk.load(ONE)
    assert (SamplerSettings,) in desk.said["settings_changed"]
    assert source(desk, SamplerSettings, "repetition_penalty") == (1.0, "default")
    assert source(desk, SamplerSettings, "min_p") == (0.2, "saved default")
    assert source(desk, SamplerSettings, "temperature") == (0.6, "makers")
    assert source(desk, SamplerSettings, "top_k") == (7, "model")
    sampler(desk, top_p=0.5)
    assert source(desk, SamplerSettings, "top_p") == (0.5, "conversation")
    assert desk.session.below(SamplerSettings).top_p == 0.8
    desk.ask("hello")
    used = desk.chat.requests[-1].sampler
    assert (used.temperature, used.top_k, used.top_p, used.min_p) == (0.6, 7, 0.5, 0.2)


def test_reset_comes_down_to_the_advice_and_no_further(advised: Desk) -> None:
    desk = advised
    sampler(desk, temperature=1.1)
    desk.session.save_as_defaults()
    desk.session.keep_for_model(ONE, SamplerSettings, {"temperature": 0.9})
    desk.load(ONE)
    sampler(desk, temperature=1.4)
    seen = []
    for _ in range(4):
        seen.append(source(desk, SamplerSettings, "temperature"))
        desk.session.reset_setting(SamplerSettings, "temperature")
    assert seen == [(1.4, "conversation"), (0.9, "model"), (0.6, "makers"), (0.6, "makers")]
    assert desk.preferences().settings(SamplerSettings).temperature == 1.1


def test_the_switch_for_the_advice(advised: Desk) -> None:
    desk = advised
    desk.load(ONE)
    desk.said["settings_changed"].clear()
    desk.session.set_settings(Behaviour(makers_advice=False))
    assert (SamplerSettings,) in desk.said["settings_changed"]
    assert source(desk, SamplerSettings, "temperature") == (0.7, "default")
    desk.ask("hello")
    assert desk.chat.requests[-1].sampler == SamplerSettings()
    desk.session.set_settings(Behaviour(makers_advice=True))
    assert source(desk, SamplerSettings, "temperature") == (0.6, "makers")


def test_the_advice_goes_with_the_model(advised: Desk) -> None:
    desk = advised
    desk.load(ONE)
    sampler(desk, top_k=33)
    desk.load(TWO)
    assert source(desk, SamplerSettings, "temperature") == (0.7, "default")
    assert source(desk, SamplerSettings, "top_k") == (33, "conversation")
    desk.load(ONE)
    assert source(desk, SamplerSettings, "temperature") == (0.6, "makers")
    desk.session.keep_for_model(ONE, SamplerSettings, {"temperature": 0.5})
    desk.session.keep_for_model(ONE, SamplerSettings, {})
    assert source(desk, SamplerSettings, "temperature") == (0.6, "makers")
    desk.session.unload_model()
    desk.until_idle()
    assert source(desk, SamplerSettings, "temperature") == (0.7, "default")


def test_saving_defaults_over_the_advice_holds_for_the_model(advised: Desk) -> None:
    desk = advised
    desk.load(ONE)
    sampler(desk, temperature=1.5)
    assert desk.session.save_as_defaults()
    assert source(desk, SamplerSettings, "temperature") == (1.5, "model")
    assert source(desk, SamplerSettings, "top_k") == (20, "makers")
    assert desk.preferences().settings(SamplerSettings) == SamplerSettings(temperature=1.5)


def test_advice_that_is_not_usable_is_left_out(desk: Desk) -> None:
    layers = SettingsLayers(desk.preferences())
    assert layers.enter_model(ONE, {"temperature": 0.6, "top_k": -5, "colour": 1}) == (SamplerSettings,)
    assert layers.settings(SamplerSettings) == SamplerSettings(temperature=0.6)
    assert layers.enter_model(ONE) == ()
    assert layers.settings(SamplerSettings).temperature == 0.6
    assert layers.enter_model(TWO) == (SamplerSettings,)
    assert layers.settings(SamplerSettings) == SamplerSettings()
