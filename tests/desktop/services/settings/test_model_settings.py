"""What is kept for a model and what its makers recommend, between saved defaults and the chat."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from desktop.services.settings.layered_settings import LayeredSettings, ModelLayer
from desktop.settings import Behaviour
from engine.core import ModelInfo
from engine.settings import CacheSettings, LoadSettings, SamplerSettings, Settings, StopSettings
from tests.desktop.services.conftest import Harness

ONE, TWO = "/models/one.gguf", "/models/two.gguf"


def source(harness: Harness, cls: type[Settings], name: str) -> tuple[object, str]:
    return getattr(harness.session.settings(cls), name), harness.session.source_of(cls, name)


def test_a_model_is_loaded_with_what_is_kept_for_it(harness: Harness) -> None:
    harness.session.keep_for_model(ONE, CacheSettings, {"context_length": 2048, "dtype": "q8"})
    harness.session.keep_for_model(ONE, LoadSettings, {"chat_template": "{{ messages }}"})
    harness.session.set_settings(CacheSettings(context_length=1024))
    harness.load(ONE)
    harness.load(TWO)
    assert harness.echo.settings == [
        (LoadSettings(chat_template="{{ messages }}"), CacheSettings(context_length=2048, dtype="q8")),
        (LoadSettings(), CacheSettings(context_length=1024)),
    ]
    assert harness.session.loaded_with == harness.echo.settings[-1]
    assert source(harness, CacheSettings, "context_length") == (1024, "saved default")
    assert harness.session.settings_for(ONE, CacheSettings) == CacheSettings(context_length=2048, dtype="q8")


def test_sampling_of_a_model(harness: Harness) -> None:
    harness.session.keep_for_model(ONE, SamplerSettings, {"temperature": 0.6, "top_k": 20})
    harness.load(ONE)
    assert source(harness, SamplerSettings, "temperature") == (0.6, "model")
    assert (SamplerSettings,) in harness.said["settings_changed"]
    harness.session.set_settings(
        dataclasses.replace(harness.session.settings(SamplerSettings), temperature=1.2)
    )
    assert source(harness, SamplerSettings, "temperature") == (1.2, "conversation")
    assert source(harness, SamplerSettings, "top_k") == (20, "model")
    assert harness.session.layers.after_reset(SamplerSettings).temperature == 0.6
    harness.ask("hello")
    assert (harness.chat.requests[-1].sampler.temperature, harness.chat.requests[-1].sampler.top_k) == (
        1.2,
        20,
    )
    harness.session.reset_setting(SamplerSettings, "temperature")
    assert source(harness, SamplerSettings, "temperature") == (0.6, "model")
    harness.session.reset_setting(SamplerSettings, "temperature")
    assert source(harness, SamplerSettings, "temperature") == (0.7, "default")
    assert harness.preferences().kept(ONE, SamplerSettings) == {"top_k": 20}
    harness.load(TWO)
    assert source(harness, SamplerSettings, "top_k") == (40, "default")


def test_an_edited_value_that_is_kept_for_the_model_stays_there(harness: Harness) -> None:
    """As a saved default it would be hidden by what is kept for the model."""
    harness.session.keep_for_model(ONE, CacheSettings, {"dtype": "q8"})
    harness.load(ONE)
    harness.session.set_settings(
        dataclasses.replace(harness.session.settings(CacheSettings), dtype="q4", context_length=512)
    )
    assert source(harness, CacheSettings, "dtype") == ("q4", "model")
    assert source(harness, CacheSettings, "context_length") == (512, "saved default")
    preferences = harness.preferences()
    assert preferences.kept(ONE, CacheSettings) == {"dtype": "q4"}
    assert preferences.settings(CacheSettings) == CacheSettings(context_length=512)
    harness.session.reset_setting(CacheSettings, "dtype")
    assert source(harness, CacheSettings, "dtype") == ("auto", "default")


def test_saving_defaults_leaves_what_is_kept_for_the_model(harness: Harness) -> None:
    harness.session.keep_for_model(ONE, SamplerSettings, {"temperature": 0.6, "top_k": 20})
    harness.load(ONE)
    harness.session.set_settings(
        dataclasses.replace(harness.session.settings(SamplerSettings), temperature=1.5, top_p=0.5)
    )
    before = harness.session.settings(SamplerSettings)
    assert harness.session.save_as_defaults()
    assert harness.session.settings(SamplerSettings) == before
    preferences = harness.preferences()
    assert preferences.settings(SamplerSettings) == SamplerSettings(temperature=1.5, top_p=0.5)
    assert preferences.kept(ONE, SamplerSettings) == {"temperature": 1.5, "top_k": 20}


def test_a_failed_load_restores_the_settings_of_the_loaded_model(harness: Harness) -> None:
    harness.session.keep_for_model(ONE, CacheSettings, {"dtype": "q8"})
    harness.session.keep_for_model("/models/missing.gguf", CacheSettings, {"dtype": "q4"})
    harness.load(ONE)
    harness.session.open_model("/models/missing.gguf")
    assert harness.session.settings(CacheSettings).dtype == "q4"
    harness.until_idle()
    assert source(harness, CacheSettings, "dtype") == ("q8", "model")
    harness.session.unload_model()
    harness.until_idle()
    assert source(harness, CacheSettings, "dtype") == ("auto", "default")


def test_loading_can_be_cancelled(harness: Harness) -> None:
    harness.echo.load_delay_s, harness.echo.load_steps = 0.05, 1000
    harness.session.open_model(ONE)
    harness.qtbot.waitUntil(lambda: len(harness.said["progress"]) > 2)
    harness.session.stop_loading()
    harness.until_idle()
    assert harness.session.state == "no_model"
    assert harness.session.model is None
    assert harness.notices() == []


def test_a_task_in_the_background_does_not_change_the_state(talking: Harness) -> None:
    results: list[object] = []

    def task(stop):
        yield
        return 5.0

    def broken(stop):
        yield
        raise OSError("no")

    before = talking.states()
    talking.session.measure(task, results.append)
    talking.session.measure(broken, results.append)
    talking.ask("and meanwhile")
    talking.qtbot.waitUntil(lambda: len(results) == 2)
    assert results == [5.0, None]
    assert talking.states()[: len(before)] == before
    assert "loading" not in talking.states()[len(before) :]


# -- what a model's makers advise

ADVISED = (("temperature", 0.6), ("top_k", 20), ("top_p", 0.8))


@pytest.fixture
def advised(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Harness:
    """Only the makers of model one recommend something."""
    plain = harness.echo.describe

    def describe(path: Path) -> ModelInfo:
        info = plain(path)
        return dataclasses.replace(info, defaults=ADVISED) if str(path) == ONE else info

    monkeypatch.setattr(harness.echo, "describe", describe)
    # the session uses its own `describe` for headers; the load uses that of the engine
    harness.session.open_model(TWO)
    harness.until_idle()
    return harness


def test_entering_a_model_says_which_settings_changed(harness: Harness) -> None:
    layer = ModelLayer(harness.session.preferences)
    assert layer.enter(ONE, {"temperature": 0.6}) == (SamplerSettings,)
    assert layer.enter(ONE, {"temperature": 0.6}) == layer.enter(ONE) == ()
    assert layer.recommended == {"temperature": 0.6}
    harness.session.preferences.keep(TWO, CacheSettings, {"dtype": "q8"})
    assert set(layer.enter(TWO)) == {SamplerSettings, CacheSettings}
    assert layer.recommended == {}


def sampler(harness: Harness, **values: object) -> None:
    harness.session.set_settings(dataclasses.replace(harness.session.settings(SamplerSettings), **values))


def test_order_of_the_layers(advised: Harness) -> None:
    """Default, saved default, recommendation, what is kept for the model, the chat."""
    harness = advised
    sampler(harness, temperature=1.1, min_p=0.2)
    harness.session.save_as_defaults()
    assert source(harness, SamplerSettings, "temperature") == (1.1, "saved default")
    harness.session.keep_for_model(ONE, SamplerSettings, {"top_k": 7})
    harness.said["settings_changed"].clear()
    harness.load(ONE)
    assert (SamplerSettings,) in harness.said["settings_changed"]
    assert source(harness, SamplerSettings, "repetition_penalty") == (1.0, "default")
    assert source(harness, SamplerSettings, "min_p") == (0.2, "saved default")
    assert source(harness, SamplerSettings, "temperature") == (0.6, "makers")
    assert source(harness, SamplerSettings, "top_k") == (7, "model")
    sampler(harness, top_p=0.5)
    assert source(harness, SamplerSettings, "top_p") == (0.5, "conversation")
    assert harness.session.layers.after_reset(SamplerSettings).top_p == 0.8
    harness.ask("hello")
    used = harness.chat.requests[-1].sampler
    assert (used.temperature, used.top_k, used.top_p, used.min_p) == (0.6, 7, 0.5, 0.2)


def test_a_reset_stops_at_the_recommendation(advised: Harness) -> None:
    harness = advised
    sampler(harness, temperature=1.1)
    harness.session.save_as_defaults()
    harness.session.keep_for_model(ONE, SamplerSettings, {"temperature": 0.9})
    harness.load(ONE)
    sampler(harness, temperature=1.4)
    seen, after = [], [1.4]
    for _ in range(4):
        seen.append(source(harness, SamplerSettings, "temperature"))
        assert seen[-1][0] == after[-1]
        after.append(harness.session.layers.after_reset(SamplerSettings).temperature)
        harness.session.reset_setting(SamplerSettings, "temperature")
    assert seen == [(1.4, "conversation"), (0.9, "model"), (0.6, "makers"), (0.6, "makers")]
    assert harness.preferences().settings(SamplerSettings).temperature == 1.1


def test_recommendations_can_be_switched_off(advised: Harness) -> None:
    harness = advised
    harness.load(ONE)
    harness.said["settings_changed"].clear()
    harness.session.set_settings(StopSettings(max_tokens=5))
    assert harness.said["settings_changed"] == [(StopSettings,)]
    harness.session.set_settings(Behaviour(makers_advice=False))
    assert (SamplerSettings,) in harness.said["settings_changed"]
    assert source(harness, SamplerSettings, "temperature") == (0.7, "default")
    harness.ask("hello")
    assert harness.chat.requests[-1].sampler == SamplerSettings()
    harness.session.set_settings(Behaviour(makers_advice=True))
    assert source(harness, SamplerSettings, "temperature") == (0.6, "makers")


def test_recommendations_belong_to_the_model(advised: Harness) -> None:
    harness = advised
    harness.load(ONE)
    sampler(harness, top_k=33)
    harness.load(TWO)
    assert source(harness, SamplerSettings, "temperature") == (0.7, "default")
    assert source(harness, SamplerSettings, "top_k") == (33, "conversation")
    harness.load(ONE)
    assert source(harness, SamplerSettings, "temperature") == (0.6, "makers")
    harness.session.keep_for_model(ONE, SamplerSettings, {"temperature": 0.5})
    harness.session.keep_for_model(ONE, SamplerSettings, {})
    assert source(harness, SamplerSettings, "temperature") == (0.6, "makers")
    harness.session.unload_model()
    harness.until_idle()
    assert source(harness, SamplerSettings, "temperature") == (0.7, "default")


def test_saving_defaults_overrides_the_recommendation_for_this_model(advised: Harness) -> None:
    harness = advised
    harness.load(ONE)
    sampler(harness, temperature=1.5)
    assert harness.session.save_as_defaults()
    assert source(harness, SamplerSettings, "temperature") == (1.5, "model")
    assert source(harness, SamplerSettings, "top_k") == (20, "makers")
    assert harness.preferences().settings(SamplerSettings) == SamplerSettings(temperature=1.5)


def test_an_unusable_recommendation_is_ignored(harness: Harness) -> None:
    model = ModelLayer(harness.preferences())
    layers = LayeredSettings(harness.preferences(), model)
    assert model.enter(ONE, {"temperature": 0.6, "top_k": -5, "colour": 1}) == (SamplerSettings,)
    assert layers.settings(SamplerSettings) == SamplerSettings(temperature=0.6)
    assert model.enter(ONE) == ()
    assert layers.settings(SamplerSettings).temperature == 0.6
    assert model.enter(TWO) == (SamplerSettings,)
    assert layers.settings(SamplerSettings) == SamplerSettings()
