"""When text and figures are handed on, by a clock that the test sets; and prompts that are refused before."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from engine.core import FIRST_PICTURE_ID, Done, Prefill, Running, Stats, Text, TokenInfo
from engine.errors import BadSetting, ContextTooLong, EngineError
from engine.generator.decode import EventWriter, check_prompt, events
from engine.generator.sequence import StepOutput
from engine.generator.token_buffer import WrittenToken


def token(number: int, text: str) -> WrittenToken:
    return WrittenToken(TokenInfo(number, text, 0.5, 0.5))


def emissions(texts: str, reason: str = "stop_string") -> list[StepOutput]:
    """An output for each letter; a dot is one that makes nothing certain. The last one carries the reason."""
    found = [
        StepOutput("", ()) if text == "." else StepOutput(text, (token(number, text),))
        for number, text in enumerate(texts)
    ]
    return [*found[:-1], found[-1]._replace(reason=reason, trigger="STOP")]


class Played:
    """Steps that take `seconds` each, and what comes of them: events with the time that they came at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, steps: Sequence[Any], seconds: float = 0.0) -> None:
        self.now, self.closed, self.asked = 100.0, False, 0
        monkeypatch.setattr("engine.generator.decode.time", SimpleNamespace(perf_counter=lambda: self.now))
        self._steps, self._seconds = steps, seconds

    params = SimpleNamespace(seed=7)

    @property
    def last_token(self) -> float:
        """When the newest token came, as `TokenSequence` notes it."""
        return self.now

    def steps(self) -> Generator[Any, None, None]:
        try:
            for step in self._steps:
                self.now += self._seconds
                yield step
        finally:
            self.closed = True

    def summary(self, sequence: Any, seed: int) -> Stats:
        self.asked += 1
        return Stats(seed=seed, new_tokens=self.asked)

    def events(self, *how: float) -> Generator[Any, None, None]:
        itself: Any = self  # both the sequence and its figures
        return events(self.steps(), EventWriter(itself, itself, *how))  # type: ignore[arg-type]

    def reported(self, *how: float) -> list[tuple[float, Any]]:
        return [(self.now - 100.0, event) for event in self.events(*how)]


def texts(reported: Sequence[tuple[float, Any]]) -> list[str]:
    found = [event for _, event in reported if isinstance(event, Text)]
    for event in found:
        assert "".join(info.text for info in event.tokens) == event.text
    return [event.text for event in found]


@pytest.mark.parametrize(
    ("letters", "interval", "handed"),
    [
        ("abcdefg", 1, ["a", "b", "c", "d", "e", "f", "g"]),
        ("abcdefg", 3, ["abc", "def", "g"]),
        ("abcdef", 3, ["abc", "def"]),
        ("ab", 9, ["ab"]),
        ("..a..bcd.", 2, ["a", "b", "cd"]),  # steps without text count, and the next text goes with them
        ("...", 1, []),
    ],
)
def test_text_is_handed_on_every_few_tokens_and_at_the_end(
    monkeypatch: pytest.MonkeyPatch, letters: str, interval: int, handed: list[str]
) -> None:
    reported = Played(monkeypatch, emissions(letters)).reported(interval)
    assert texts(reported) == handed
    assert reported[-1][1] == Done("stop_string", "STOP", Stats(seed=7, new_tokens=1))


def test_figures_come_every_half_second_and_last_with_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    for seconds, times in (
        (0.125, [0.5, 1.0]),
        (0.25, [0.5, 1.0, 1.5, 2.0]),
        (0.375, [0.75, 1.5, 2.25, 3.0]),
        (0.05, []),
    ):
        reported = Played(monkeypatch, emissions("abcdefghi"), seconds).reported(3)
        assert [when for when, event in reported if isinstance(event, Running)] == times
        figures = [event.stats for _, event in reported if isinstance(event, Running | Done)]
        assert figures == [Stats(seed=7, new_tokens=number) for number in range(1, len(times) + 2)]


def test_progress_is_handed_on_at_once_and_what_was_taken_back_with_the_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    progress = [Prefill(0, 5, 0), Prefill(5, 5, 0)]
    back = [StepOutput("", (), suppressed="bad"), StepOutput("", (), suppressed=" worse"), *emissions("ab")]
    reported = [event for _, event in Played(monkeypatch, [*progress, *back]).reported(3)]
    assert reported[:2] == progress
    assert [(event.text, event.suppressed) for event in reported[2:-1]] == [("a", "bad worse"), ("b", "")]
    ended = [StepOutput("", (), suppressed="bad"), StepOutput("", (), "stop_token", "</s>")]
    reported = [event for _, event in Played(monkeypatch, ended).reported(3)]
    assert reported == [Text("", (), "bad"), Done("stop_token", "</s>", Stats(seed=7, new_tokens=1))]


def test_closing_closes_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch, emissions("abc"))
    stream = played.events()
    next(stream)
    assert not played.closed
    stream.close()
    assert played.closed


@pytest.mark.parametrize(
    ("ids", "pictures", "error", "words"),
    [
        ([], False, BadSetting, "The prompt is empty"),
        ([3, 10], False, BadSetting, "Token id 10 .* from 0 to 9"),
        ([-1, 3], True, BadSetting, "Token id -1 "),
        ([FIRST_PICTURE_ID, 3], False, BadSetting, f"Token id {FIRST_PICTURE_ID} "),
        ([3, FIRST_PICTURE_ID], True, BadSetting, "ends with a picture"),
        ([3] * 6, False, ContextTooLong, "has 6 tokens, but the context holds 4; shorten it by 2 tokens"),
    ],
)
def test_a_prompt_that_cannot_be_continued_is_one_plain_sentence(
    ids: list[int], pictures: bool, error: type[EngineError], words: str
) -> None:
    with pytest.raises(error, match=words) as caught:
        check_prompt(ids, 10, 4, pictures=pictures)
    assert str(caught.value).endswith(".")
    check_prompt([FIRST_PICTURE_ID, 0, FIRST_PICTURE_ID, 9], 10, 4, pictures=True)
