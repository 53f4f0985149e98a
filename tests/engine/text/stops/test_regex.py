"""Regular expressions over a growing text: certain answers stay, and they are those of a search of the
whole text.
"""

from __future__ import annotations

import itertools
import random
import time

import pytest
import regex
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engine.errors import BadSetting
from engine.text.stops import regex as expressions
from engine.text.stops.matcher import StopMatcher
from engine.text.stops.regex import Expression

_ATOMS = [
    "a", "b", "c", ".", "[ab]", "[^a]", "[]a]", "ab", "abc", r"\n", r"\w", " ", "[)*]", r"\X", r"\R", r"\.",
    "$", "^", r"\b", r"\B", r"\Z", r"\A", r"\m", r"\M",
]  # fmt: skip
_QUANTIFIERS = ["*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{2,}", "{1,2}?", "++", "*+"]


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(st.sampled_from(["(?:%s|%s)", "(%s|%s)", "%s|%s"]), inner, inner).map(
            lambda t: t[0] % t[1:]
        ),
        st.tuples(inner, st.sampled_from(["", r"\1", r"\1*", r"\1+"])).map(lambda t: f"({t[0]}){t[1]}"),
        st.tuples(inner, st.sampled_from(_QUANTIFIERS)).map(lambda t: f"(?:{t[0]}){t[1]}"),
        st.tuples(st.sampled_from(["(?=%s)", "(?!%s)", "(?<=%s)", "(?<!%s)", "(?>%s)"]), inner).map(
            lambda t: t[0] % t[1]
        ),
    )


def _compiles(pattern: str) -> bool:
    try:
        regex.compile(pattern)
    except regex.error:
        return False
    return True


PATTERNS = st.tuples(
    st.sampled_from(["", "", "(?m)", "(?i)", "(?s)", "(?x)"]),
    st.recursive(st.sampled_from(_ATOMS), _grown, max_leaves=6),
).map("".join)
TEXTS = st.text("abc\n ", max_size=7)


def search(pattern: str, text: str, longest: int = 1024) -> tuple[int, int] | None:
    """The definition: the first start with a match that is not empty, where each start sees at most
    `longest` characters.
    """
    compiled = regex.compile(pattern)
    for start in range(len(text)):
        found = compiled.match(text[: start + longest], start)
        if found and found.end() > start:
            return start, int(found.end())
    return None


@settings(max_examples=300)
@given(pattern=PATTERNS, text=TEXTS, later=st.lists(st.text("abc\n ", max_size=4), max_size=6))
def test_what_is_certain_stays(pattern: str, text: str, later: list[str]) -> None:
    assume(_compiles(pattern))
    expression = Expression(pattern)
    open_from, match = expression.advance(text, 0)
    assert expression.last(text, 0) == search(pattern, text)
    for more in ["", *"abc\n ", *later]:
        whole = search(pattern, text + more)
        assert whole == match if match is not None else whole is None or whole[0] >= open_from


def streamed(pattern: str, chunks: list[str], keep: bool = False) -> tuple[str, str | None]:
    matcher, out = StopMatcher([], [pattern], keep=keep), ""
    for chunk in chunks:
        out += matcher.feed(chunk).text
    out += matcher.finish()
    return out, matcher.matched.text if matcher.matched else None


def cut(text: str, draw: random.Random) -> list[str]:
    places = sorted(draw.choices(range(len(text) + 1), k=draw.randrange(8)))
    return [text[a:b] for a, b in itertools.pairwise([0, *places, len(text)])]


@pytest.mark.slow
@settings(max_examples=300)
@given(
    pattern=PATTERNS, text=st.text("abc\n ", max_size=24), seed=st.integers(0, 1 << 16), keep=st.booleans()
)
def test_any_chunks_give_what_a_search_of_the_whole_gives(
    pattern: str, text: str, seed: int, keep: bool
) -> None:
    assume(_compiles(pattern))
    span = search(pattern, text)
    expected = (text, None) if span is None else (text[: span[keep]], text[slice(*span)])
    draw = random.Random(seed)
    for chunks in ([text], list(text), cut(text, draw), cut(text, draw)):
        assert streamed(pattern, chunks, keep) == expected


@pytest.mark.slow
@settings(max_examples=300)
@given(
    pattern=PATTERNS,
    text=st.text("abc\n ", max_size=24),
    seed=st.integers(0, 1 << 16),
    longest=st.integers(1, 6),
)
def test_long_attempts_are_cut_alike_whatever_the_chunks(
    pattern: str, text: str, seed: int, longest: int
) -> None:
    assume(_compiles(pattern))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expressions, "LONGEST_MATCH", longest)
        span = search(pattern, text, longest)
        expected = (text, None) if span is None else (text[: span[0]], text[slice(*span)])
        for chunks in ([text], list(text), cut(text, random.Random(seed))):
            assert streamed(pattern, chunks) == expected


@pytest.mark.parametrize(
    ("pattern", "chunks", "expected"),
    [
        (r"\d+\.", ["in 19", "84.", "5"], ("in ", "1984.")),
        (r"foo$", ["foo", "bar foo\n", "x"], ("foobar foo\nx", None)),
        (r"foo$", ["foo bar ", "foo\n"], ("foo bar ", "foo")),
        (r"(?m)foo$", ["foo", "bar foo\n", "x"], ("foobar ", "foo")),
        (r"(?m:foo$)", ["foo", "bar foo\n", "x"], ("foobar ", "foo")),
        (r"^User:", ["x\nUs", "er:"], ("x\nUser:", None)),
        (r"^User:", ["Us", "er:"], ("", "User:")),
        (r"(?m)^User:", ["x\nUs", "er: "], ("x\n", "User:")),
        (r"\bend\b", ["bend en", "d", "less end", "."], ("bend endless ", "end")),
        (r"\bend\b", ["the end"], ("the ", "end")),
        (r"(?<=\n)#+ ", ["# a\n", "## b"], ("# a\n", "## ")),
        (r"foo(?!bar)", ["foob", "ar foob", "az"], ("foobar ", "foo")),
        (r"foo(?=bar)", ["foob", "ar"], ("", "foo")),
        (r"(?i)straße", ["STRA", "SSE Straß", "e"], ("STRASSE ", "Straße")),
        (r"x*", ["ab", "cxx", "x!"], ("abc", "xxx")),
        (r"x*", ["abc"], ("abc", None)),
        (r"(?:ab)+", ["ab", "ab", "a!"], ("", "abab")),
        (r"<t>.*?</t>", ["a<t>1</", "t>2</t>"], ("a", "<t>1</t>")),
        (r"<t>.*</t>", ["a<t>1</", "t>2</t>3\n4"], ("a", "<t>1</t>2</t>")),
        (r"(?x) a b  # why", ["ca", "b"], ("c", "ab")),
        (r"(a)(b)\2\1", ["ab", "b", "a"], ("", "abba")),
        (r"\p{Lu}{3}", ["éÉÀ", "Ü"], ("é", "ÉÀÜ")),
        (r"(?(?=a)ab|c)+", ["xab", "cab", "x"], ("x", "abcab")),
        (r"[[:digit:]\]]+!", ["a]", "1!"], ("a", "]1!")),
        (r"(?#a ) comment)b", ["ab"], None),
        (r"(?#a comment)b", ["ab"], ("a", "b")),
    ],
)
def test_known_cases(pattern: str, chunks: list[str], expected: tuple[str, str | None] | None) -> None:
    if expected is None:
        with pytest.raises(BadSetting):
            Expression(pattern)
        return
    assert streamed(pattern, chunks) == expected
    assert streamed(pattern, list("".join(chunks))) == expected


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            "(?:ab)*",
            "(?:ab?)?b",
            "a(?:b|bb){2}",
            "(a|ab)+",
            "a(?=b)",
            "a(?!b)",
            "(?:a(?=b))+",
            r"(?x) (?: ab ) * ",
            "(a)|(b)*",
        ),
        *(
            "a$",
            "(?m)a$",
            r"a\Z",
            r"a\z",
            r"\ba\b",
            r"a\B",
            r"(?V1)(?:b|\n)\m",
            r"(?V1)b\M",
            r"a\R",
            r"a\X",
            r"a\X{2}",
            "^b",
        ),
        *(
            "a(?#a comment)b",
            "(?:ab(?#to be)a)*",
            "(?:ab(?#))*",
            "(?x)(?:ab#)\n)*",
            "(?x)(?:ab)*#",
            "(?x)(?:ab)*\n#a",
        ),
        *("a#?(?:ab)*", "#*(?:ab)*"),
        *(
            "(?:[]b)]a)*",
            "(?:[^]b)]b)*",
            r"(?:[\])]?b)*",
            "(?:[[:alpha:])]b)*",
            "(?:[[:b)]+a)*",
            "(?:[^)]a)*",
            "(?:[)]?ab)*",
        ),
        *(
            "(a)?(?(1)b|ba)+",
            "(?>ab?)*",
            "(?:ab){0,2}",
            "(?P<n>ab)*",
            "(?<=b)a(?:ab)*",
            r"\n(?<!a\n)",
            "(?i:AB)*",
            r"(?:\)?ab)*",
        ),
        *("b(?:ab(?#to be))*", "(a)?(b(?(1)b|ba))*", "(?:b(?(?=a)ab|b))*"),
    ],
)
def test_every_short_text_letter_by_letter(pattern: str) -> None:
    check_short_texts(pattern, "ab\n", 5)


@pytest.mark.parametrize("pattern", [r"a\R", r"\R{2}a?", r"\X", r"a\X", r"(?:a\X)+"])
def test_line_breaks_and_characters_of_several_parts(pattern: str) -> None:
    check_short_texts(pattern, "a\r\n\u0301", 4)


def check_short_texts(pattern: str, letters: str, longest: int) -> None:
    for text in (
        "".join(chosen)
        for count in range(1, longest + 1)
        for chosen in itertools.product(letters, repeat=count)
    ):
        span = search(pattern, text)
        assert streamed(pattern, list(text)) == (
            (text, None) if span is None else (text[: span[0]], text[slice(*span)])
        ), text


@pytest.mark.parametrize(
    "pattern", ["foo", r"foo\n", "foo|bar foo", r"fo{2}", "[f][o]{2}", "(?:f|g)oo", r"(?i)FOO", "f(o)\\1"]
)
def test_what_nothing_could_lengthen_fires_at_once(pattern: str) -> None:
    matcher = StopMatcher([], [pattern])
    assert matcher.feed("a f").text == "a "
    step = matcher.feed("oo\n" if "n" in pattern else "oo")
    assert step.matched is not None
    assert step.text == ""


def test_the_end_of_a_line_needs_no_more_than_its_break() -> None:
    assert StopMatcher([], ["(?m)a$"]).feed("a\n").matched is not None
    assert StopMatcher([], ["a$"]).feed("a\n").matched is None


def test_an_expression_that_fits_everything_is_held_no_longer_than_the_limit() -> None:
    matcher, text = StopMatcher([], ["(?s)z.*foo"]), "z" * 5000
    released = "".join(matcher.feed(character).text for character in text)
    assert len(matcher.held) < expressions.LONGEST_MATCH
    assert released + matcher.held == text
    step = matcher.feed("foo")
    assert step.text == "zz"
    assert step.matched is not None
    assert step.matched.text == "z" * 1021 + "foo"


def test_a_match_without_end_is_taken_at_the_limit() -> None:
    matcher = StopMatcher([], ["(?s)#.*"])
    assert matcher.feed("a#" + "b" * 1022).matched is None
    matched = matcher.feed("c" * 9).matched
    assert matched is not None
    assert matched.text == "#" + "b" * 1022 + "c"


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("a(b", "missing .* at character 4"),
        ("a[b", "unterminated character set at character 4"),
        ("*a", "nothing to repeat at character 1"),
        ("a)", "at character 2"),
        (r"a\K", r"contains .*K.*remove it"),
        ("a(?R)?b", "remove it"),
        ("(?r)ab", "searches backwards"),
    ],
)
def test_bad_expressions(pattern: str, words: str) -> None:
    with pytest.raises(BadSetting, match=words) as caught:
        Expression(pattern)
    assert "\n" not in str(caught.value)


def test_a_runaway_expression_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expressions, "_SECONDS", 0.2)
    matcher = StopMatcher([], [r"(?:a|a)+!"])
    # by itself it would take longer than the universe is old
    with pytest.raises(BadSetting, match="takes too long"):
        matcher.feed("a" * 60 + "b")


@pytest.mark.parametrize("pattern", [".*foo", r"\bend\b", r"(?:a|b|\w)+!", r"\d{4}-\d\d", r"(?m)^\s*User:"])
def test_cost_of_a_chunk_does_not_grow_with_the_text(pattern: str) -> None:
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefgh", k=draw.randrange(1, 9))) for _ in range(3000)]
    matcher, out = StopMatcher([], [pattern]), []
    begin = time.process_time()
    for word in words:
        out.append(matcher.feed(word + " ").text)
    assert time.process_time() - begin < 3.0  # under a millisecond for each
    assert "".join(out) + matcher.finish() == " ".join(words) + " "
