"""Banned strings: nothing of one gets through, nothing else is lost, wherever the chunks are cut."""

from __future__ import annotations

import itertools
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.text.stops.bans import BanHit, BannedStrings, Cleared
from engine.text.stops.matcher import StopMatcher


def fold(text: str, ignore_case: bool) -> str:
    return "".join(c.lower() if len(c.lower()) == 1 else c for c in text) if ignore_case else text


def first_hit(text: str, strings: list[str], ignore_case: bool) -> tuple[int, int] | None:
    """Start and end of the banned string that is complete first; of those complete with one character, the
    longest.
    """
    folded, banned = fold(text, ignore_case), [fold(string, ignore_case) for string in strings if string]
    for end in range(1, len(text) + 1):
        starts = [end - len(string) for string in banned if folded[:end].endswith(string)]
        if starts:
            return min(starts), end
    return None


def pieces(text: str, cuts: list[int]) -> list[str]:
    return [text[a:b] for a, b in itertools.pairwise([0, *sorted(cuts), len(text) + 99])]


def stream(gate: BannedStrings, chunks: list[str]) -> tuple[str, BanHit | None]:
    out = ""
    for chunk in chunks:
        step = gate.feed(chunk)
        out += step.text
        if step.hit is not None:
            return out, step.hit
    return out + gate.finish(), None


ALPHABET = "aAbBßẞ"
STRINGS = st.lists(st.text(ALPHABET, max_size=4), max_size=3)
CUTS = st.lists(st.integers(0, 12), max_size=5)


@pytest.mark.slow
@settings(max_examples=400)
@given(text=st.text(ALPHABET, max_size=12), strings=STRINGS, cuts=CUTS, ignore_case=st.booleans())
def test_agrees_with_the_definition_whatever_the_chunks(
    text: str, strings: list[str], cuts: list[int], ignore_case: bool
) -> None:
    span = first_hit(text, strings, ignore_case)
    for places in (cuts, [], list(range(len(text)))):
        out, hit = stream(BannedStrings(strings, ignore_case), pieces(text, places))
        if span is None:
            assert (out, hit) == (text, None)
        else:
            assert hit is not None
            assert (out, hit.start, hit.text) == (text[: span[0]], span[0], text[slice(*span)])
            assert fold(hit.string, ignore_case) == fold(hit.text, ignore_case)
            assert hit.string in strings


@pytest.mark.slow
@settings(max_examples=400)
@given(
    strings=st.lists(st.text("ab", min_size=2, max_size=5), min_size=1, max_size=3),
    seed=st.integers(0, 1 << 16)
)  # fmt: skip
def test_going_back_after_each_hit_leaves_no_banned_string(strings: list[str], seed: int) -> None:
    """What a generator does: a token that leads to a hit is taken back, with every later one, and another
    one is tried.
    """
    draw, gate, out = random.Random(seed), BannedStrings(strings), ""
    # before each token that is not shown: the gate's state, characters fed
    marks: list[tuple[object, int]] = []
    written = ""
    for _ in range(60):
        token = "".join(draw.choices("ab", k=draw.randrange(4)))
        marks.append((gate.snapshot(), len(written)))
        step = gate.feed(token)
        written += token
        if step.hit is None:
            out += step.text
            assert out + gate.held == written
        else:
            assert written[step.hit.start :].startswith(step.hit.text)
            # the first token that ends behind the hit's start
            later = [start for _, start in marks[1:]] + [len(written)]
            place = next(i for i, end in enumerate(later) if end > step.hit.start)
            state, start = marks[place]
            gate.restore(state)
            written = written[:start]
            del marks[place:]
        ends = [start for _, start in marks[1:]] + [len(written)]
        marks = [mark for mark, end in zip(marks, ends, strict=True) if end > len(out)] if marks else []
        assert written.startswith(out)
        assert first_hit(written, strings, True) is None
    assert out + gate.finish() == written


@given(
    text=st.text("abc", max_size=20),
    strings=st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=3),
)
def test_holds_back_only_what_could_become_a_banned_string(text: str, strings: list[str]) -> None:
    gate, fed = BannedStrings(strings), ""
    for character in text:
        fed += character
        if gate.feed(character).hit is not None:
            return
        open_tails = [
            fed[i:] for i in range(len(fed)) if any(s.startswith(fed[i:]) and s != fed[i:] for s in strings)
        ]
        assert gate.held == max(open_tails, key=len, default="")


def test_a_banned_string_inside_an_open_one_counts_at_once() -> None:
    gate = BannedStrings(["abcd", "bc"])
    assert gate.feed("yx") == Cleared("yx", None)
    assert gate.feed("xab") == Cleared("", None)  # a token goes as a whole, or not yet
    assert gate.held == "xab"
    hit = BanHit(4, "bc", "bc")
    assert gate.feed("c") == Cleared("xa", hit)
    assert gate.feed("d") == Cleared("", hit)  # closed until it is set back
    assert gate.finish() == ""


def test_of_several_in_one_chunk_the_first_to_be_complete_counts_and_the_longest() -> None:
    assert BannedStrings(["cd", "b"]).feed("abxcd") == Cleared("a", BanHit(1, "b", "b"))
    assert BannedStrings(["bc", "abc"]).feed("abc") == Cleared("", BanHit(0, "abc", "abc"))


def test_position_counts_everything_ever_fed() -> None:
    gate = BannedStrings(["no way"])
    for text in ("yes, ", "well", " n", "o"):
        gate.feed(text)
    snapshot = gate.snapshot()
    assert gate.held == " no"
    assert gate.feed(" WAY") == Cleared(" ", BanHit(10, "no WAY", "no way"))
    gate.restore(snapshot)
    assert gate.feed("w no Way!").hit == BanHit(14, "no Way", "no way")
    gate.restore(snapshot)
    gate.feed("w")
    with pytest.raises(ValueError, match="13 characters have been cleared"):
        gate.restore(snapshot)


def test_case_keeps_lengths() -> None:
    assert BannedStrings(["STRASSE"]).feed("Straße").hit is None
    assert BannedStrings(["straße"]).feed("STRAẞE").hit == BanHit(0, "STRAẞE", "straße")
    assert BannedStrings(["σ"]).feed("aς").hit == BanHit(1, "ς", "σ")
    assert BannedStrings(["x"]).feed("İİX").hit == BanHit(2, "X", "x")
    assert BannedStrings(["x"], ignore_case=False).feed("X").hit is None


@pytest.mark.parametrize("strings", [[], [""]])
def test_nothing_banned(strings: list[str]) -> None:
    gate = BannedStrings(strings)
    assert gate.feed("text") == Cleared("text", None)
    assert (gate.held, gate.finish()) == ("", "")


@settings(max_examples=200)
@given(text=st.text("abc", max_size=12), cuts=CUTS)
def test_banned_and_stop_strings_that_overlap(text: str, cuts: list[int]) -> None:
    """The stop matcher stands behind the gate and sees only cleared text."""
    gate, matcher, out = BannedStrings(["ab"]), StopMatcher(["bc", "ca"]), ""
    for chunk in pieces(text, cuts):
        step = gate.feed(chunk)
        out += matcher.feed(step.text).text
        if step.hit is not None or matcher.matched is not None:
            break
    else:
        out += matcher.feed(gate.finish()).text
    out += matcher.finish()
    before = text[: span[0]] if (span := first_hit(text, ["ab"], True)) else text
    ends = [at for stop in ("bc", "ca") if (at := before.find(stop)) >= 0]
    assert out == before[: min(ends, default=len(before))]


def test_many_banned_strings_cost_little() -> None:
    draw = random.Random(0)
    gate = BannedStrings(["".join(draw.choices("abcdefgh", k=30)) for _ in range(300)])
    begin = time.process_time()
    for _ in range(500):
        assert gate.feed("".join(draw.choices("ABCDefgh", k=4))).hit is None
    assert time.process_time() - begin < 1.0  # two milliseconds for each; measured: about 0.05
