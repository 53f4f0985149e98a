"""Presets: the built-in ones, writing and reading files, files of other programs, and invalid files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import resources
from desktop.store.database.database import StoreError
from desktop.store.settings.preferences import Preferences
from desktop.store.settings.presets import (
    FORMAT,
    Preset,
    all_presets,
    built_in_presets,
    find_preset,
    free_name,
    preset_of,
    read_preset,
    write_preset,
)
from engine.settings import SAMPLER_STEP_NAMES, SamplerSettings


def file(tmp_path: Path, data: Any, name: str = "given.json") -> Path:
    path = tmp_path / name
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return path


def read(tmp_path: Path, data: Any) -> tuple[SamplerSettings, tuple[str, ...]]:
    preset, unknown = read_preset(file(tmp_path, data))
    assert not preset.built_in
    return preset.over(SamplerSettings(seed=7)), unknown


def test_every_built_in_file_is_a_complete_preset() -> None:
    presets = built_in_presets()
    assert len(presets) == len(list(resources.path("presets").glob("*.json")))
    assert len({preset.name for preset in presets}) == len(presets)
    for preset in presets:
        assert preset.built_in
        assert {"temperature", "top_k", "top_p", "min_p"} <= preset.settings.keys(), preset.name
        assert preset.over(SamplerSettings(seed=5)).seed == 5
    by_name = {preset.name: preset.over(SamplerSettings()) for preset in presets}
    assert by_name["Balanced"] == SamplerSettings()
    assert by_name["Deterministic"].temperature == 0


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    order = tuple(reversed([name for name, _ in SAMPLER_STEP_NAMES]))
    values = SamplerSettings(
        temperature=1.3, dry_breakers=("\\n", "ü", '"'), order=order, mirostat=True, seed=9
    )
    path = tmp_path / "mine.json"
    write_preset(path, preset_of("Mine ü", values))
    data = json.loads(path.read_text("utf-8"))
    assert (data["format"], data["version"], data["name"]) == (FORMAT, 1, "Mine ü")
    assert "seed" not in data["settings"]
    preset, unknown = read_preset(path)
    assert (preset.name, unknown) == ("Mine ü", ())
    assert preset.over(SamplerSettings(seed=9)) == values


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be saved"):
        write_preset(tmp_path / "missing" / "x.json", Preset("X"))


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("{", "not a preset"), ("[1]", "not a preset"), ("", "not a preset"), ("3", "not a preset"),
        ("[" * 100_000, "not a preset"),
        ('{"a": 1}', "no sampler settings"), ('{"name": "x", "do_sample": true}', "no sampler settings"),
        (json.dumps({"format": FORMAT, "version": 2, "settings": {}}), "newer version"),
        (json.dumps({"format": FORMAT, "version": 1, "settings": [1]}), "damaged"),
        ("{" + " " * (1 << 20) + "}", "not a preset"),
    ],
)  # fmt: skip
def test_an_invalid_file_is_refused_with_a_sentence(tmp_path: Path, content: str, match: str) -> None:
    with pytest.raises(StoreError, match=match):
        read_preset(file(tmp_path, content))


def test_binary_data_and_a_missing_file(tmp_path: Path) -> None:
    (tmp_path / "raw.json").write_bytes(b"\xff\xfe\x00{")
    with pytest.raises(StoreError, match="not a preset"):
        read_preset(tmp_path / "raw.json")
    with pytest.raises(StoreError, match="cannot be read"):
        read_preset(tmp_path / "gone.json")


def test_own_files_keep_good_values_and_name_the_others(tmp_path: Path) -> None:
    data = {
        "format": FORMAT,
        "version": 1,
        "name": " ",
        "settings": {"temperature": 0.9, "top_p": 7, "warmth": 3},
    }
    preset, unknown = read_preset(file(tmp_path, data))
    assert (preset.name, preset.settings, unknown) == ("given", {"temperature": 0.9}, ("top_p", "warmth"))


# -- files of other programs


def test_text_generation_webui(tmp_path: Path) -> None:
    found, unknown = read(tmp_path, {
        "temperature": 1.2, "dynamic_temperature": True, "dynatemp_low": 0.6, "dynatemp_high": 1.8,
        "dynatemp_exponent": 1.1, "smoothing_factor": 0.2, "smoothing_curve": 1.5, "top_p": 0.9, "min_p": 0.1,
        "top_k": 0, "typical_p": 0.95, "tfs": 0.97, "top_a": 0.1, "repetition_penalty": 1.15,
        "repetition_penalty_range": 0, "presence_penalty": 0.1, "frequency_penalty": 0.2, "do_sample": True,
        "xtc_threshold": 0.2, "xtc_probability": 0.4, "epsilon_cutoff": 0, "eta_cutoff": 3,
        "mirostat_mode": 2, "mirostat_tau": 4, "mirostat_eta": 0.2, "dry_multiplier": 0.8, "dry_base": 1.5,
        "dry_allowed_length": 3, "dry_sequence_breakers": '"\\n", ":", "\\"", "*"', "top_n_sigma": 1.5,
        "temperature_last": True, "seed": -1,
    })  # fmt: skip
    assert found == SamplerSettings(
        temperature=1.2, min_temperature=0.6, max_temperature=1.8, temperature_exponent=1.1,
        smoothing_factor=0.2, top_p=0.9, min_p=0.1, top_k=0, typical=0.95, tail_free=0.97, top_a=0.1,
        repetition_penalty=1.15, repetition_range=-1, presence_penalty=0.1, frequency_penalty=0.2,
        xtc_threshold=0.2, xtc_probability=0.4, mirostat=True, mirostat_tau=4.0, mirostat_eta=0.2,
        dry_multiplier=0.8, dry_base=1.5, dry_allowed_length=3, dry_breakers=("\n", ":", '"', "*"),
        top_n_sigma=1.5, seed=None,
        order=(*(name for name, _ in SAMPLER_STEP_NAMES if name != "temperature"), "temperature"),
    )  # fmt: skip
    assert unknown == ("smoothing_curve", "eta_cutoff")


def test_silly_tavern(tmp_path: Path) -> None:
    found, unknown = read(tmp_path, {
        "temp": 0.8, "top_p": 1, "top_k": -1, "tfs": 1, "typical_p": 1, "rep_pen": 1.1, "rep_pen_range": 1024,
        "rep_pen_decay": 256, "freq_pen": 0.3, "presence_pen": 0.2, "dynatemp": False, "min_temp": 0,
        "max_temp": 2, "nsigma": 1, "skew": 0.5, "dry_penalty_last_n": 512,
        "dry_sequence_breakers": "[\"\\n\", \"*\"]", "mirostat_mode": 0, "banned_tokens": "", "genamt": 350,
        "logit_bias": [], "skip_special_tokens": True,
        "sampler_priority": ["temperature", "dry", "top_k", "xtc"],
    })  # fmt: skip
    assert found == SamplerSettings(
        temperature=0.8, top_p=1.0, top_k=0, min_p=0.0, repetition_penalty=1.1, repetition_range=1024,
        repetition_decay=256, frequency_penalty=0.3, presence_penalty=0.2, top_n_sigma=1.0, skew=0.5,
        dry_range=512, dry_breakers=("\n", "*"), seed=7, order=("temperature", "dry", "top_k", "xtc"),
    )  # fmt: skip
    assert unknown == ("genamt", "skip_special_tokens")


def test_llama_cpp(tmp_path: Path) -> None:
    found, unknown = read(tmp_path, {
        "temperature": 0.8, "dynatemp_range": 0.5, "typ_p": 0.9, "repeat_penalty": 1.2, "repeat_last_n": 64,
        "dry_penalty_last_n": -1, "dry_multiplier": 0.5,
        "samplers": "penalties;dry;top_k;typ_p;top_p;min_p;temperature", "mirostat": 1, "n_predict": 128,
    })  # fmt: skip
    assert (found.min_temperature, found.max_temperature) == (pytest.approx(0.3), pytest.approx(1.3))
    assert (found.typical, found.repetition_penalty, found.repetition_range, found.dry_range) == (
        0.9,
        1.2,
        64,
        0,
    )
    assert found.order == ("repetition", "dry", "top_k", "typical", "top_p", "min_p", "temperature")
    assert found.mirostat
    assert unknown == ("n_predict",)
    found, _ = read(tmp_path, {"dry_multiplier": 0.5, "dry_penalty_last_n": 0})
    assert found.dry_multiplier == 0.0


def test_the_usual_order_of_text_generation_webui(tmp_path: Path) -> None:
    found, unknown = read(tmp_path, {
        "temperature": 0.7, "adaptive_p_target": 0.5, "adaptive_p_decay": 0.8, "sampler_priority": [
            "repetition_penalty", "presence_penalty", "frequency_penalty", "dry", "top_n_sigma",
            "temperature", "dynamic_temperature", "quadratic_sampling", "top_k", "top_p", "typical_p",
            "epsilon_cutoff", "eta_cutoff", "tfs", "top_a", "min_p", "adaptive_p", "mirostat", "xtc",
            "encoder_repetition_penalty", "no_repeat_ngram",
        ],
    })  # fmt: skip
    assert (found.adaptive_target, found.adaptive_decay, unknown) == (0.5, 0.8, ())
    assert found.order == (
        "repetition", "occurrence", "dry", "top_n_sigma", "temperature", "dynamic_temperature", "smoothing",
        "top_k", "top_p", "typical", "tail_free", "top_a", "min_p", "adaptive_p", "mirostat", "xtc",
    )  # fmt: skip


def test_kobold_numbers_are_an_order(tmp_path: Path) -> None:
    found, unknown = read(tmp_path, {"temperature": 0.7, "sampler_order": [6, 0, 1, 3, 4, 2, 5]})
    assert found.order == ("repetition", "top_k", "top_a", "tail_free", "typical", "top_p", "temperature")
    assert unknown == ()


def test_names_that_are_no_text_are_left_out_of_an_order(tmp_path: Path) -> None:
    found, _ = read(tmp_path, {"temperature": 0.7, "samplers": ["top_k", 3, None, " min_p ", "top_k"]})
    assert found.order == ("top_k", "min_p")


def test_whole_numbers_written_with_a_point_are_read(tmp_path: Path) -> None:
    found, unknown = read(
        tmp_path,
        {"top_k": 40.0, "seed": 5.0, "rep_pen_range": 512.0, "dry_penalty_last_n": 64.0, "rep_pen_decay": 8.0,
         "dry_allowed_length": 3.0},
    )  # fmt: skip
    assert (found.top_k, found.seed, found.repetition_range, found.dry_range) == (40, 5, 512, 64)
    assert (found.repetition_decay, found.dry_allowed_length, unknown) == (8, 3, ())


def test_a_range_of_temperatures_needs_two_numbers(tmp_path: Path) -> None:
    for data in (
        {"temperature": "warm", "dynatemp_range": 0.5, "top_k": 3},
        {"temperature": 0.8, "dynatemp_range": "wide", "top_k": 3},
        {"temperature": 0.8, "dynatemp_range": True, "top_k": 3},
        {"temperature": 0.8, "dynatemp_range": 0.0, "top_k": 3},
    ):
        found, _ = read(tmp_path, data)
        assert (found.min_temperature, found.max_temperature, found.top_k) == (0.0, 0.0, 3)
    found, _ = read(tmp_path, {"temp": 0.25, "dynatemp_range": 0.5})
    assert (found.min_temperature, found.max_temperature) == (0.0, 0.75)  # no temperature is below 0


def test_greedy_files_and_impossible_values(tmp_path: Path) -> None:
    found, unknown = read(
        tmp_path, {"temperature": 5, "do_sample": False, "top_p": "high", "top_k": 1e30, "min_p": 3}
    )
    assert found.temperature == 0.0
    assert (found.top_p, found.top_k, found.min_p) == (1.0, 0, 0.0)
    assert unknown == ("top_p", "top_k", "min_p")
    for value in (float("inf"), float("-inf"), float("nan"), True, "7", None):
        found, unknown = read(tmp_path, {"temperature": 0.5, "top_k": value, "dynatemp_range": value})
        assert (found.temperature, found.top_k, found.max_temperature) == (0.5, 0, 0.0)
        assert unknown == ("top_k",)


@pytest.mark.parametrize("order", [3, None, {"top_k": 1}, [], [99, -1, "x"], ["no_such_step"]])
def test_an_order_that_names_no_step_is_none(tmp_path: Path, order: Any) -> None:
    for name in ("samplers", "sampler_order", "samplers_priorities"):
        found, unknown = read(tmp_path, {"temperature": 0.5, name: order})
        assert (found.order, unknown) == (SamplerSettings().order, ())


def test_breakers_that_are_no_list_are_named(tmp_path: Path) -> None:
    for value in ('"\\n", "', '{"a": 1}', 7):
        found, unknown = read(tmp_path, {"temperature": 0.5, "dry_sequence_breakers": value})
        assert (found.dry_breakers, unknown) == (SamplerSettings().dry_breakers, ("dry_sequence_breakers",))


def test_what_another_program_does_not_mention_is_off(tmp_path: Path) -> None:
    found, _ = read(tmp_path, {"temperature": 1.0})
    assert found == SamplerSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=7)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KNOWN = st.sampled_from([
    "temperature", "temp", "top_k", "typical_p", "dry_sequence_breakers", "sampler_order", "samplers",
    "sampler_priority", "mirostat", "mirostat_mode", "dynatemp_range", "dynatemp", "do_sample",
    "temperature_last", "name", "order", "seed", "rep_pen_range", "dry_penalty_last_n", "format", "version",
    "settings",
])  # fmt: skip


@pytest.mark.slow
@settings(max_examples=300)
@given(st.dictionaries(KNOWN, JSON, max_size=6))
def test_any_json_is_a_preset_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: dict[str, Any]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    try:
        preset, _ = read_preset(path)
    except StoreError:
        return
    assert preset.name
    preset.over(SamplerSettings())
    json.dumps(preset.settings)


# -- names, and the user's own


def test_free_names() -> None:
    taken = frozenset({"Creative", "creative 2"})
    assert free_name("New", taken) == "New"
    assert free_name("CREATIVE", taken) == "CREATIVE 3"
    assert free_name("  a \n b ", taken) == "a b"
    assert free_name("   ", taken) == "Preset"
    assert len(free_name("x" * 500, frozenset({"x" * 60}))) < 70


def test_the_users_presets_are_kept_sorted_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "preferences.json"
    preferences = Preferences(path)
    preferences.save_preset("Wild", {"temperature": 1.9})
    preferences.save_preset("calm", {"temperature": 0.1, "warmth": 4})
    again = Preferences(path)
    own = [preset for preset in all_presets(again) if not preset.built_in]
    assert own == [Preset("calm", {"temperature": 0.1}), Preset("Wild", {"temperature": 1.9})]
    again.save_preset("wild", {"temperature": 2.0}, instead_of="Wild")
    again.remove_preset("calm")
    assert Preferences(path).presets == {"wild": {"temperature": 2.0}}
    assert find_preset(again, "Precise") == built_in_presets()[0]
    assert find_preset(again, "calm") is None


@pytest.mark.parametrize("value", [5, ["x"], {"a": 5, "b": {"temperature": 0.5}}])
def test_presets_damaged_by_hand_are_skipped(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "preferences.json"
    path.write_text(json.dumps({"presets": value}))
    assert [preset.name for preset in all_presets(Preferences(path)) if not preset.built_in] == (
        ["b"] if isinstance(value, dict) else []
    )
