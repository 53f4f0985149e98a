"""Settings: values of the declared kind and range only, others refused in one sentence; numbers in words."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engine.core.reasons import reason_words
from engine.errors import BadSetting
from engine.fields import Settings, check_value, setting, within
from engine.generator.adapter_slot import parse_adapters
from engine.units import number_text, percent_text, seconds_text, size_text


@dataclass(frozen=True)
class Sample(Settings):
    share: float = setting(0.5, "Share", "", **within(0.0, 1.0, step=0.1))
    count: int = setting(3, "Count", "", low=1)
    many: int = setting(1, "Many", "", low=0, high=1 << 20)
    most: int = setting(5, "Most", "", high=9)
    on: bool = setting(False, "On", "")
    kind: str = setting("a", "Kind", "", choices=(("a", "A"), ("b", "B")))
    code: str = setting("x1", "Code", "", pattern=r"[a-z][0-9]", form="a letter and a digit")
    seed: int | None = setting(None, "Seed", "")
    words: tuple[str, ...] = setting((), "Words", "")
    ids: tuple[int, ...] = setting((1, 2), "Ids", "", low=0)


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("share", 1, 1.0), ("share", 0, 0.0), ("count", 1, 1), ("most", 9, 9), ("on", True, True),
        ("kind", "b", "b"), ("code", "z9", "z9"), ("seed", None, None), ("seed", -4, -4),
        ("words", ["a", ""], ("a", "")), ("ids", (), ()), ("ids", [0, 7], (0, 7)),
    ],
)  # fmt: skip
def test_values_that_fit_are_kept_as_their_kind(name: str, value: Any, kept: Any) -> None:
    for found in (check_value(Sample, name, value), getattr(Sample(**{name: value}), name)):
        assert (found, type(found)) == (kept, type(kept))
    assert Sample.from_json({name: value}) == Sample(**{name: value})


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("share", 1.5, "Sample.share is 1.5, but it must be between 0 and 1."),
        ("share", -1, "it must be between 0 and 1."),
        ("share", math.nan, "it must be a finite number."),
        ("share", "1", "it must be a number."),
        ("share", True, "it must be a number."),
        ("share", None, "it must be a number."),
        ("count", 0, "it must be at least 1."),
        ("count", 2.0, "it must be a whole number."),
        ("count", True, "it must be a whole number."),
        ("most", 10, "it must be at most 9."),
        ("many", 1 << 21, "Sample.many is 2097152, but it must be between 0 and 1048576."),
        ("on", 1, "it must be true or false."),
        ("kind", "c", "it must be one of: a, b."),
        ("kind", 5, "it must be text."),
        ("code", "x12", "it must be a letter and a digit."),
        ("words", "ab", "it must be a list."),
        ("words", ["a", 1], "Sample.words is 1, but it must be text."),
        ("ids", [3, -1], "Sample.ids is -1, but it must be at least 0."),
        ("other", 1, "Sample has no setting named 'other'."),
    ],
)
def test_values_that_do_not_fit_are_refused_in_a_sentence(name: str, value: Any, words: str) -> None:
    for make in (lambda: check_value(Sample, name, value), lambda: Sample.from_json({name: value})):
        with pytest.raises(BadSetting) as caught:
            make()
        assert str(caught.value).endswith(words)
    if name != "other":
        with pytest.raises(BadSetting):
            dataclasses.replace(Sample(), **{name: value})


def test_json_goes_both_ways() -> None:
    sample = Sample(share=0.25, seed=7, words=("a", "b"), ids=())
    assert sample.to_json() == {
        "share": 0.25, "count": 3, "many": 1, "most": 5, "on": False, "kind": "a", "code": "x1", "seed": 7,
        "words": ["a", "b"], "ids": [],
    }  # fmt: skip
    assert Sample.from_json(sample.to_json()) == sample
    assert Sample.from_json({}) == Sample()


def test_adapters_are_folders_with_a_strength(tmp_path: Path) -> None:
    named = tmp_path / "a=1"
    named.mkdir()
    lines = ("", "  /x/lora  ", "/x/other = 0.5", "/x/none = 0", f"{named}", f"{named} = -2")
    assert parse_adapters(lines) == (
        ("/x/lora", 1.0),
        ("/x/other", 0.5),
        (str(named), 1.0),
        (str(named), -2.0),
    )
    for strength in ("much", "101", "-100.5", "nan", ""):
        with pytest.raises(BadSetting, match="is not a number from -100 to 100"):
            parse_adapters([f"/x/lora = {strength}"])


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"), (999, "999 bytes"), (999.5, "1 kB"), (98_400_000, "98.4 MB"),
        (4_700_000_000, "4.7 GB"), (999_400, "999 kB"), (999_600, "1 MB"), (2.5e12, "2.5 TB"),
    ],
)  # fmt: skip
def test_sizes(count: float, text: str) -> None:
    assert size_text(count) == text


def test_numbers_and_reasons_in_words() -> None:
    assert (number_text(1234), number_text(0.25, ".1f")) == ("1,234", "0.2")
    assert (percent_text(0.5), percent_text(0.125, ".1f"), seconds_text(4.4)) == ("50 %", "12.5 %", "4 s")
    assert [reason_words("stop_string", trigger) for trigger in ("END", "")] == [
        "stopped at “END”",
        "stopped at a stop string",
    ]
    assert (reason_words("max_tokens", "x"), reason_words("novel")) == ("stopped at the token limit", "")
