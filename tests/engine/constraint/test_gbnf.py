"""GBNF grammars against a small matcher of their parts, and what is said of broken ones."""

from __future__ import annotations

import random
import time
from contextlib import suppress

import pytest

from engine.constraint.gbnf import is_gbnf, lark_of
from engine.constraint.grammar import GrammarFilter
from engine.constraint.grammar_source import lark_source
from engine.errors import BadSetting
from tests.engine.constraint.fakes import ids, tokenizer_of

BYTES = tokenizer_of([bytes([byte]) for byte in range(256)])
JSON = r"""
root   ::= object   # a comment
value  ::= object | array | string | number |
  ("true" | "false" | "null") ws
object ::= "{" ws (
    string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | [\\] (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9]+)? ws
ws     ::= | " " | "\n" [ \t]{0,20}
"""
SUMS = r"""
root ::= (sum "=" ws term "\n")+
sum ::= term ([-+*/] term)*
term ::= id | num | "(" ws sum ")" ws
id ::= [a-z] [a-z0-9_]* ws
num ::= [0-9]+ ws
ws ::= [ \t\n]*
"""
CASES = [
    (JSON, ['{"a": [1, "\\u00e9", {}]}', "{\n}", '{"é漢":null }'], ["[1]", '{"a"}', '{"\x01":1}', "{} x"]),
    (SUMS, ["a=b\n", "(1+b)*c = 2\n\n", "a=1\nb=2\n"], ["a=b", "a==b\n", "=1\n"]),
    ('root ::= "a"{2}', ["aa"], ["a", "aaa"]),
    ('root ::= ("a" | "b"){1,}', ["a", "bab"], ["", "c"]),
    ('root ::= "ab"{0,2} "c"', ["c", "ababc"], ["abababc", "ac"]),
    (r'root ::= "\x41\u00e9\U0001F600\"\\\t" .', ['Aé😀"\\\t\n', 'Aé😀"\\\t漢'], ['Aé😀"\\\t']),
    (r"root ::= [^a-c\]-]+", ["xyz", "\n", "`d", "\\^", ",."], ["a", "c", "-", "]", ""]),
    (r"root ::= [^\uD7FF] [^\uE000]", ["\ue000\ud7ff"], ["\ud7ff\ud7ff", "\ue000\ue000"]),
    ("root ::= a-b?\na-b ::= [x-] # end", ["", "x", "-"], ["xx", "y"]),
    ('root ::= root "+" "1" | "1"', ["1", "1+1+1"], ["", "+1", "1+"]),
    ('root ::= "(" root ")" |', ["", "(())"], ["(()", ")"]),
    ('root ::= "\\"" "a" root | "\\"" [a-z]* "\\"" | "."', ['""', '"a.', '"a"abc"'], ['"abc', '"b.']),
    ('root ::= "x" ("a"? "b" | "bc")* "c" "cd" root?', ["xbccd", "xabccdxccd"], ["xbcd", "xcccd"]),
    ("root ::= [a-z]* [a-z] [0-9]*", ["a", "abc1"], ["", "1"]),
    ("root ::= " + '("a" | "b" ' * 60 + '"c"' + ")" * 60, ["a", "bba", "b" * 60 + "c"], ["b", "ab", "c"]),
    ("root ::= " + '("a" ' * 60 + ")?" * 60 + ' ("." root)?', ["", "aa.", "a" * 60 + ".a"], ["a" * 61]),
]  # fmt: skip


def accepts(grammar: GrammarFilter, text: str) -> bool:
    """Whether the bytes of a text may follow one by one, and then its end."""
    for byte in text.encode():
        if grammar.ended or byte + 2 not in ids(grammar.mask()):
            return False
        grammar.accept(byte + 2)
    return grammar.ended or 0 in ids(grammar.mask())


@pytest.mark.parametrize(("grammar", "good", "bad"), CASES)
def test_texts(grammar: str, good: list[str], bad: list[str]) -> None:
    source = lark_source(grammar)
    for text in [*good, *bad]:
        assert accepts(GrammarFilter(BYTES, source), text) == (text in good), text


def test_bytes_that_were_followed_count_as_one_token() -> None:
    grammar = GrammarFilter(BYTES, lark_source('root ::= "abc" [de]'))
    first = ids(grammar.mask())
    assert not grammar.follow(b"ax")
    assert ids(grammar.mask()) == first == [ord("a") + 2]
    assert grammar.follow(b"ab")
    assert ids(grammar.mask()) == [ord("c") + 2]
    grammar.accept(ord("c") + 2)
    assert ids(grammar.mask()) == [ord("d") + 2, ord("e") + 2]
    grammar.rollback(2)
    assert ids(grammar.mask()) == first


def random_rule(draw: random.Random, depth: int, inner: tuple[str, ...]) -> tuple[str, object]:
    """A part of a rule, and the same for `ends`."""
    kind = draw.choice(["class", "text", "rule"] if not depth else ["all", "any", "repeat", "class", "rule"])
    if kind == "rule" and not inner:
        kind = "text"
    if kind == "class":
        return draw.choice([("[ab]", "ab"), ("[^a]", "bcd"), (".", "abcd"), ("[b-d]", "bcd")])
    if kind == "text":
        text = draw.choice(["a", "ab", "d"])
        return f'"{text}"', ("all", *text)
    if kind == "rule":
        name = draw.choice(inner)
        return name, ("rule", name)
    if kind == "repeat":
        text, node = random_rule(draw, depth - 1, inner)
        sign, least, most = draw.choice(
            [("*", 0, 9), ("+", 1, 9), ("?", 0, 1), ("{2}", 2, 2), ("{1,}", 1, 9)]
        )
        return f"({text}){sign}", ("repeat", node, least, most)
    parts = [random_rule(draw, depth - 1, inner) for _ in range(2)]
    joined = (" " if kind == "all" else " | ").join(text for text, _ in parts)
    return f"({joined})", (kind, *(node for _, node in parts))


def ends(node: object, text: str, at: int, rules: dict[str, object], depth: int = 0) -> set[int]:
    """Where a part can end that begins at a place of a text."""
    if isinstance(node, str):
        return {at + 1} if text[at : at + 1] and text[at] in node else set()
    assert isinstance(node, tuple)
    if node[0] == "rule":
        return ends(rules[node[1]], text, at, rules, depth + 1) if depth < 8 else set()
    if node[0] == "any":
        return {end for part in node[1:] for end in ends(part, text, at, rules, depth)}
    if node[0] == "all":
        found = {at}
        for part in node[1:]:
            found = {end for begin in found for end in ends(part, text, begin, rules, depth)}
        return found
    _, part, least, most = node
    found, reached = ({at} if least == 0 else set()), {at}
    for count in range(1, most + 1):
        reached = {end for begin in reached for end in ends(part, text, begin, rules, depth)}
        found |= reached if count >= least else set()
    return found


@pytest.mark.parametrize("seed", range(30))
def test_random_grammars(seed: int) -> None:
    draw = random.Random(seed)
    inner, inner_node = random_rule(draw, 2, ())
    root, node = random_rule(draw, 3, ("x",))
    grammar, rules = f"root ::= {root}\nx ::= {inner}", {"x": inner_node}
    if seed % 2:  # recursive: each level costs a character
        grammar, node = f'root ::= {root} | "c" root', ("any", node, ("all", "c", ("rule", "root")))
        grammar, rules = f"{grammar}\nx ::= {inner}", {"x": inner_node, "root": node}
    source = lark_source(grammar)
    for _ in range(25):
        text = "".join(draw.choice("abcd") for _ in range(draw.randrange(6)))
        expected = len(text) in ends(node, text, 0, rules)
        assert accepts(GrammarFilter(BYTES, source), text) == expected, (grammar, text)


def test_strings_are_one_terminal_in_recursive_grammars() -> None:
    words = [line for line in lark_of(JSON).splitlines() if r"/[\x{22}-\x{22}](?:" in line]
    assert len(words) == 1


@pytest.mark.parametrize(
    ("grammar", "said"),
    [
        ('x ::= "a"', "no rule named root"),
        ('root ::= "a"\n\nx ::= )', "line 3: found ')', expected a new line"),
        ("root ::= a\n", "line 1: the rule 'a' has no definition"),
        ('root ::= "a', "line 1: \" is missing"),
        ("root ::= [a-b\n", "line 1: ] is missing"),
        ("root ::= [b-a]", "line 1: a range"),
        ("root ::= []", "line 1: a class"),
        ('root ::= ("a"\n', "line 2: found the end, expected )"),
        ("root ::= *", "line 1: found '*', expected something to repeat"),
        ('root ::= "a"{2', "line 1: found '{2', expected {m}"),
        ('root ::= "a"{3,2}', "line 1: the repetitions end"),
        ('root ::= "a"{9999}', "line 1: more than 2,000 repetitions are not possible; write {m,}"),
        (r'root ::= "\q"', "line 1: found '\\\\q\"', expected \\n"),
        (r'root ::= "\uD800"', "line 1: \\uD800 is not a character"),
        ("root ::= <think>", "line 1: tokens in angle brackets"),
        ('root ::= "a"\n$ ::= "b"', "line 2: found '$ ::= \"b\"', expected the name of a rule"),
        ('root ::= "a"\nb "b"', "line 2: found '\"b\"', expected ::="),
        ("root ::= " + "(" * 100, "line 1: groups are nested too deeply"),
        ("root ::=\n [^\\x00-\\U0010FFFF]", "line 2: a class in brackets is empty"),
    ],
)  # fmt: skip
def test_broken_grammars(grammar: str, said: str) -> None:
    with pytest.raises(BadSetting) as caught:
        lark_source(grammar)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "grammar",
    [
        'root ::= (((("a"{2000}){2000}){2000}){2000})',
        "root ::= r0\n" + "".join(f"r{i} ::= r{i + 1} r{i + 1}\n" for i in range(200)) + 'r200 ::= "a"',
        'root ::= "(" r0* ")" root |\n'
        + "".join(f"r{i} ::= {f'r{i + 1} ' * 9}\n" for i in range(60)) + 'r60 ::= "a"',
        'root ::= "a" root | "b"\n' + "".join(f'x{i} ::= x{i + 1}\n' for i in range(9_000)),
        'root ::= "<" (' + " | ".join(f'"{chr(i)}"' for i in range(300, 9_000)) + ')* ">" root |',
        'root ::= "a"' + "*" * 9_000,
    ],
)  # fmt: skip
def test_large_grammars_do_not_hang(grammar: str) -> None:
    began = time.process_time()
    with suppress(BadSetting):
        GrammarFilter(BYTES, lark_source(grammar)).mask()
    assert time.process_time() - began < 5


def test_lark_stays_lark() -> None:
    assert not is_gbnf('start: "x ::= y"')
    assert is_gbnf('# c\n\nroot  ::= "a"')
