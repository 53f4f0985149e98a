"""Code for a level of instructions is used only on a processor that has all of them."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest
from llvmlite import binding as llvm
from numba import config

import resources
from engine.platform import levels
from engine.platform.levels import LEVELS, chosen, folder_of, prebuilt, usable

BY_NAME = {level.name: level for level in LEVELS}
X86 = platform.machine().lower() in ("x86_64", "amd64")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`resources/kernels` with a folder for every level, and nothing chosen yet."""
    for level in LEVELS:
        (tmp_path / levels.FOLDER / level.name / "kernels-1").mkdir(parents=True)
    monkeypatch.setattr(resources, "__path__", [str(tmp_path / "none"), str(tmp_path)])
    monkeypatch.setattr(config, "CPU_NAME", None)
    monkeypatch.setattr(config, "CPU_FEATURES", None)
    monkeypatch.setattr(levels, "chosen", chosen.__wrapped__)
    monkeypatch.setattr(levels, "tiles_allowed", lambda: True)
    return tmp_path / levels.FOLDER


def host_with(monkeypatch: pytest.MonkeyPatch, *features: str) -> None:
    """A processor that has these features; LLVM also names those that it has not."""
    every = {feature for level in LEVELS for feature in level.features}
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: {name: name in features for name in every})


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
def test_one_missing_feature_rules_a_level_out(
    level: levels.Level, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert usable(set(level.features)) is level
    for missing in level.features:
        host_with(monkeypatch, *(set(level.features) - {missing}))
        found = levels.chosen()
        assert found is not level
        assert found is None or missing not in found.features
        monkeypatch.setattr(config, "CPU_NAME", None)
        monkeypatch.setattr(config, "CPU_FEATURES", None)


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ((*BY_NAME["x86-64-v4-vnni"].features, "avxvnni", "sse4a"), "x86-64-v4-vnni-amd"),
        ((*BY_NAME["x86-64-v4-amx"].features, "avxvnni"), "x86-64-v4-amx"),
        ((*BY_NAME["x86-64-v4-vnni"].features, "avxvnni"), "x86-64-v4-vnni"),
        ((*BY_NAME["x86-64-v4"].features, "avxvnni"), "x86-64-v4"),
        (BY_NAME["x86-64-v3-vnni"].features, "x86-64-v3-vnni"),
        ((*BY_NAME["x86-64-v3"].features, "avx512f", "avx512vnni"), "x86-64-v3"),
        ((*BY_NAME["x86-64-v2"].features, "avx", "avx2"), "x86-64-v2"),
        (("sse", "sse2"), None),
    ],
)
def test_the_best_level_becomes_numba_s_target(
    features: tuple[str, ...], expected: str | None, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host_with(monkeypatch, *features)
    found = levels.chosen()
    assert (found.name if found else None) == expected
    assert (found.cpu if found else None) == config.CPU_NAME
    assert (found.flags if found else None) == config.CPU_FEATURES
    monkeypatch.setattr(levels, "chosen", lambda: found)
    assert prebuilt("kernels-1") == (place / expected / "kernels-1" if expected else None)
    assert prebuilt("kernels-2") is None


@pytest.mark.parametrize("feature", ["avx512vnni", "avxvnni"])
def test_code_for_this_very_processor_multiplies_pairs_in_one_instruction(
    feature: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for level in LEVELS:
        (place / level.name).rename(place.parent / level.name)
    host_with(monkeypatch, "sse", feature)
    assert levels.chosen() is None
    assert config.CPU_NAME is None
    flags = (config.CPU_FEATURES or "").split(",")
    assert {flag for flag in flags if flag.startswith("+")} == {"+sse", f"+{feature}", "+fast-dpwssd"}
    assert "-avx2" in flags
    monkeypatch.setattr(config, "CPU_FEATURES", None)
    monkeypatch.setattr(config, "ENABLE_AVX", False)
    assert levels.chosen() is None
    assert config.CPU_FEATURES is None


def test_without_the_system_s_permission_amx_is_as_if_missing(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(levels, "tiles_allowed", lambda: False)
    host_with(monkeypatch, *BY_NAME["x86-64-v4-amx"].features)
    assert levels.chosen() is BY_NAME["x86-64-v4-vnni"]
    for level in LEVELS:
        (place / level.name).rename(place.parent / level.name)
    monkeypatch.setattr(config, "CPU_NAME", None)
    monkeypatch.setattr(config, "CPU_FEATURES", None)
    assert levels.chosen() is None
    flags = (config.CPU_FEATURES or "").split(",")
    assert {"-amx-tile", "-amx-int8", "-amx-bf16", "+avx512vnni"} <= set(flags)
    assert not any(flag.startswith("+amx") for flag in flags)


def test_settings_of_numba_come_first(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host_with(monkeypatch, *BY_NAME["x86-64-v3"].features)
    monkeypatch.setattr(config, "CPU_FEATURES", "+sse2")
    assert levels.chosen() is None
    assert prebuilt("kernels-1") is None
    assert (config.CPU_NAME, config.CPU_FEATURES) == (None, "+sse2")


def test_without_its_folder_a_level_is_not_chosen(place: Path) -> None:
    (place / "x86-64-v4-vnni-amd").rename(place / "elsewhere")
    best = usable({feature for level in LEVELS for feature in level.features})
    assert best is BY_NAME["x86-64-v4-amx"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_a_folder_that_others_can_write_to_is_not_used(place: Path) -> None:
    level = BY_NAME["x86-64-v3"]
    assert folder_of(level) == place / level.name
    (place / level.name).chmod(0o777)
    assert folder_of(level) is None
    (place / level.name).chmod(0o755)
    place.chmod(0o777)
    assert usable(set(level.features)) is None


@pytest.mark.skipif(not X86, reason="LLVM names the features of the processor's kind only")
def test_llvm_knows_all_features() -> None:
    known = set(llvm.get_host_cpu_features())
    assert known >= {feature for level in LEVELS for feature in level.features}


def test_a_worse_level_never_hides_a_better_one() -> None:
    for i, level in enumerate(LEVELS):
        assert not any(set(level.features) > set(better.features) for better in LEVELS[:i])
        assert all(set(level.features) != set(other.features) for other in LEVELS[:i])
        assert level.settings == {"NUMBA_CPU_NAME": level.cpu, "NUMBA_CPU_FEATURES": level.flags}
