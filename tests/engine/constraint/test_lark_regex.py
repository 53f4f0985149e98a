"""The expressions that Lark grammars without recursion become."""

from __future__ import annotations

import json
import re

import pytest

from engine.constraint.grammar_source import schema_source
from engine.constraint.lark_regex import regex_of_lark

PATCH = """
// as coding agents describe their patches
start: begin hunk+ end
begin: "*** Begin" LF
end: "*** End" LF?

hunk: add | update
add: "*** Add: " name LF line+
update: "*** Update: " name LF (context
    | change)+ -> changed
name: /(.+)/
line: "+" /(.*)/ LF -> line
context: ("@@" | "@@ " /(.+)/) LF
change: ("+" | "-" | " ") /(.*)/ LF
%import common.LF
"""
SUM = """
start: expr
expr: term (SIGN term)* -> sum | "-" term
?term.2: NUMBER | "pi"i | [SIGN] "e"
SIGN: "+" | "*"
NUMBER: "1".."9" DIGIT~0..2
%import common (WS_INLINE, DIGIT)
%import common.INT -> WHOLE
%ignore WS_INLINE
"""


@pytest.mark.parametrize(
    ("grammar", "good", "bad"),
    [
        (
            PATCH,
            [
                "*** Begin\n*** Add: a.py\n+x\n+\n*** End",
                "*** Begin\n*** Update: b\n@@ f\n-a\n+*\n@@\n c\n*** End\n",
            ],
            [
                "", "*** Begin\n*** End", "*** Begin\n*** Add: a\n-x\n*** End",
                "*** Begin\n*** Add: \n+x\n*** End",
            ],
        ),
        (SUM, ["12", " 1 + 234 *Pi", "- PI ", "+e*\te"], ["", "0", "1234", "1 2", "1+", "--1", "p i"]),
        (r'start: "a\"\\\n\x41[" /b\/\d{2}/i /./s', ['a"\\\nA[B/12\n'], ["a", 'a"\\\nA[B/1x\n']),
        ('start: "a"{2} "b"{1,} ("c")?', ["aab", "aabbc"], ["ab", "aa", "aabcc"]),
        (r"start: /[a-z]+[0-9]?/ /\w+\d?/ /([a-z]?)x/ /[*]+[+]/", ["a1b2cx*+", "ab3x**+"], ["1x*+", "abx*"]),
        ("start: ESCAPED_STRING\n%import common.ESCAPED_STRING", [r'"a\"b"'], ['"a', '"a"b"']),
    ],
)  # fmt: skip
def test_the_texts_of_a_grammar(grammar: str, good: list[str], bad: list[str]) -> None:
    expression = regex_of_lark(grammar)
    assert expression is not None
    assert [text for text in good if not re.fullmatch(expression, text)] == []
    assert [text for text in bad if re.fullmatch(expression, text)] == []
    schema_source({"type": "string", "pattern": f"^(?:{expression})$"})  # it can be followed


@pytest.mark.parametrize(
    "grammar",
    [
        'start: "(" start ")" | "x"', 'start: a\na: b\nb: a | "x"', "start: missing", 'begin: "x"', "",
        'start: "a', 'start: ("a"', 'start: "a")', 'start: "a"]', "start: /a/x", r"start: /\bx/",
        "start: /(?=a)a/",
        "start: /a$|b/", "start: /a*?b/", "start: /(a/", r"start: /(a)\1/", "start: pair{A}\npair{x}: x x",
        'start: "a"\nstart: "b"', "%declare A\nstart: A", "%import common.NOTHING\nstart: NOTHING",
        "%import python.NAME\nstart: NAME", 'start: "b".."a"', 'start: "a" ? ?', "start: @inner",
        "start: <[5]>", "start: /a*+b/", "start: /a++a/", "start: /a{2}+a/", "start: /[[a]/",
        "start: /[a&&b]/", 'start: "a"\n%import common.INT -> start', "start: INT\n%import common (INT",
    ],
)  # fmt: skip
def test_other_grammars_have_no_expression(grammar: str) -> None:
    assert regex_of_lark(grammar) is None


def test_large_grammars_have_no_expression() -> None:
    doubled = "\n".join(f"r{i}: r{i + 1} r{i + 1}" for i in range(60))
    assert regex_of_lark(f'start: r0\n{doubled}\nr60: "x"') is None
    deep = "\n".join(f"r{i}: r{i + 1}" for i in range(5000))
    assert regex_of_lark(f'start: r0\n{deep}\nr5000: "x"') is None
    assert regex_of_lark(f"start: {'(' * 5000}{json.dumps('x')}{')' * 5000}") is None


def test_anchors_in_a_class_are_characters() -> None:
    assert regex_of_lark("start: /[^$]+[$^\\]]/") is not None
