"""Hostile chat templates end in one sentence, within the time limit and without filling the memory."""

from __future__ import annotations

import contextlib
import itertools
import time
import tracemalloc
from types import SimpleNamespace
from typing import Any

import pytest

from engine.core import Message
from engine.errors import BadTemplate
from engine.text.template import sandbox, sandbox_limits
from engine.text.template.sandbox_limits import METHOD_SIZES
from engine.text.template.template import ChatTemplate
from engine.text.tools.detect import tool_style

DOUBLING = "{% set ns = namespace(v='xxxxxxxx') %}{% for i in range(99) %}STEP{% endfor %}{{ ns.v | length }}"
NESTED = "{% for a in range(99999) %}{% for b in range(99999) %}BODY{% endfor %}{% endfor %}"
BIG = "{% set big = 'x' * 900000 %}"

HOSTILE = {
    "nested loops": NESTED.replace("BODY", ""),
    "nested loops that print": NESTED.replace("BODY", "some text"),
    "nested loops that compute": NESTED.replace("BODY", "{% set x = a + b %}"),
    "long range": "{% for a in range(10**12) %}{% endfor %}",
    "endless recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "branching recursion": "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ "
    "f(60) }}",
    "recursive loop": "{% for x in [1] recursive %}{{ loop([1]) }}{{ loop([1]) }}{% endfor %}",
    "power": "{{ 10 ** (10 ** 9) }}",
    "power chain": "{% set ns = namespace(v=3) %}{% for i in range(99) %}{% set ns.v = ns.v ** 9 %}{% "
    "endfor %}",
    "times": "{{ 'x' * 10000000000 }}",
    "list times": "{{ [1] * 10000000000 }}",
    "squares": "{% set ns = namespace(v=3) %}{% for i in range(99) %}{% set ns.v = ns.v * ns.v %}{% endfor "
    "%}{{ "
    "ns.v }}",
    "doubling by +": DOUBLING.replace("STEP", "{% set ns.v = ns.v + ns.v %}"),
    "doubling by ~": DOUBLING.replace("STEP", "{% set ns.v = ns.v ~ ns.v %}"),
    "doubling by block": DOUBLING.replace("STEP", "{% set ns.v %}{{ ns.v }}{{ ns.v }}{% endset %}"),
    "doubling by join": DOUBLING.replace("STEP", "{% set ns.v = [ns.v, ns.v] | join %}"),
    "doubling by replace": DOUBLING.replace("STEP", "{% set ns.v = ns.v.replace('x', 'xx') %}"),
    "doubling by format": DOUBLING.replace("STEP", "{% set ns.v = '%s%s' % (ns.v, ns.v) %}"),
    "doubling by method": DOUBLING.replace("STEP", "{% set ns.v = '{0}{0}'.format(ns.v) %}"),
    "doubling by list": DOUBLING.replace("STEP", "{% set ns.v = [ns.v, ns.v] %}"),
    "doubling by dict": DOUBLING.replace("STEP", "{% set ns.v = dict(a=ns.v, b=ns.v) %}"),
    "doubling by macro": "{% macro f(v) %}{{ v }}{{ v }}{% endmacro %}"
    + DOUBLING.replace("STEP", "{% set ns.v = f(ns.v) %}"),
    "wide center": "{{ 'x' | center(10000000000) }}",
    "wide ljust": "{{ 'x'.ljust(10000000000) }}",
    "wide format": "{{ '%10000000000d' % 1 }}",
    "wide format filter": "{{ '%10000000000d' | format(1) }}",
    "wide format method": "{{ '{:10000000000}'.format(1) }}",
    "wide format by argument": "{{ '{:{w}}'.format(1, w=10000000000) }}",
    "star format": "{{ '%*d' % (10000000, 1) }}",
    "replace all": BIG + "{{ big.replace('x', big) }}",
    "replace nothing": BIG + "{{ big.replace('', big) }}",
    "replace filter": BIG + "{{ big | replace('x', big) }}",
    "join": BIG + "{{ ([big] * 1000) | join(big) }}",
    "join method": BIG + "{{ big.join([big] * 1000) }}",
    "join characters": BIG + "{{ big.join(big) }}",
    "indent": "{% set lines = '\\n' * 1000000 %}{{ lines | indent(99999, true, true) }}",
    "indent by text": BIG + "{{ ('\\n' * 900000) | indent(big, true, true) }}",
    "tojson": BIG + "{{ ([big] * 1000) | tojson }}",
    "tojson indent": "{{ ([[1]] * 100000) | tojson(indent=99999) }}",
    "fromjson": "{{ ('[' ~ '[],' * 300000 ~ '[]]') | fromjson | length }}",
    "from_json": "{{ ('[' ~ '[],' * 300000 ~ '[]]') | from_json | length }}",
    "tojson separators": BIG + "{{ ([1] * 100000) | tojson(separators=(big, big)) }}",
    "expandtabs": "{{ ('\\t' * 900000).expandtabs(99999) }}",
    "translate": BIG + "{{ big.translate({120: big}) }}",
    "strip": "{{ ('x' * 900000).strip('y' * 999999 ~ 'x') }}",
    "trim": "{{ ('x' * 900000) | trim('y' * 999999 ~ 'x') }}",
    "search backwards": "{{ ('a' * 900000).rfind('b' ~ 'a' * 500000) }}",
    "tags": "{{ ('<>' * 400000) | striptags }}",
    "tags method": "{{ (('<>' * 400000) | safe).striptags() }}",
    "bytes of a number": "{{ (1).to_bytes(10000000000, 'big') }}",
    "slices": BIG + "{{ [" + "big[1:]," * 6000 + "] | length }}",
    "pprint": "{{ ([[1] * 10] * 50000) | pprint }}",
    "many statements": "{% if a %}{{ a.b }}{% endif %}" * 3000 + NESTED,
    "number of a long text": BIG
    + "{{ (big | replace('x', '9')) | int }}{{ big | replace('x', '9') | float }}"
    + NESTED,
    "string": BIG + "{{ ([big] * 1000) | string }}",
    "upper": BIG + "{{ ([big] * 1000) | upper }}",
    "sum": "{{ ([[1] * 1000] * 100000) | sum(start=[]) }}",
    "map": BIG + "{{ range(99999) | map('replace', '1', big) | join }}",
    "lipsum": "{{ lipsum(1000000000) }}",
    "batch": "{{ [1] | batch(10000000000, 0) | list }}",
    "slice": "{{ [1] | slice(10000000000) | list }}",
    "urlize": "{{ 'http://x' | urlize }}",
    "call block": "{% macro f() %}{{ caller() }}{{ caller() }}{% endmacro %}"
    + "{% call f() %}" * 40
    + "x"
    + "{% endcall %}" * 40,
    "filter block": "{% filter replace('x', 'xxxxxxxxxx') %}" * 20 + "x" + "{% endfilter %}" * 20,
    "long output in blocks": BIG + "{% set a %}" + "{{ big }}" * 1000 + "{% endset %}",
    "long source": "x" * 1_000_000,
    "deep brackets": "{{ " + "[" * 5000 + "]" * 5000 + " }}",
    "deep blocks": "{% if 1 %}" * 500 + "{% endif %}" * 500,
    "deep operators": "{{ " + "-" * 5000 + "1 }}",
    "long concatenation": "{{ 'a'" + " ~ 'a'" * 5000 + " }}",
    "globals": "{{ namespace.__init__.__globals__ }}",
    "cycler": "{{ cycler.__init__.__globals__.os }}",
    "self": "{{ self.__init__.__globals__ }}",
    "private name": "{% set ns = namespace(__class__=1) %}{{ ns }}",
    "format leak": "{{ '{0.__class__.__mro__}'.format('') }}",
    "map leak": "{{ [''] | map(attribute='__class__') | map(attribute='__mro__') | first | first }}",
}


NESTING = "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(COUNT) %}STEP{% endfor %}"
BOUNDED = {
    "infinity that is folded into the code": "{{ '1e999' | fromjson }}",
    "dates": "{{ strftime_now('%Y' * 100000) | length }}",
    "date of half a character": "{{ strftime_now('\\ud800') }}",
    "digits of a fraction": "{{ '{:.99999f}'.format(1.5) }}" * 50,
    "rounding": "{{ 1.5 | round(99999) }}{{ (10 ** 300) | round(99999, 'ceil') }}",
    "number in base 36": BIG + "{{ big | int(base=36) }}",
    "words": BIG + "{{ big | wordcount }}" * 300,
    "pieces": "{{ ('a ' * 100000).split() | length }}" * 50,
    "sorting characters": "{{ ('ab' * 50000) | sort | length }}" * 20,
    "search of a long end": BIG + "{{ big.find('y' ~ 'x' * 300000) }}{{ big.count('x' * 300000 ~ 'y') }}",
    "comparing long texts": BIG
    + "{% for i in range(99999) %}{% if big == 'x' * 900000 %}{% endif %}{% endfor %}",
    "nested lists": NESTING.replace("COUNT", "30000").replace("STEP", "{% set ns.a = [ns.a] %}")
    + "{{ ns.a }}",
    "nested lists as JSON": NESTING.replace("COUNT", "30000").replace("STEP", "{% set ns.a = [ns.a] %}")
    + "{{ ns.a | tojson }}",
    "comparing nested lists": (
        NESTING.replace("COUNT", "30000").replace("STEP", "{% set ns.a = [ns.a] %}{% set ns.b = [ns.b] %}")
        + "{{ ns.a == ns.b }}"
    ),
    "comparing doubled lists": (
        NESTING.replace("COUNT", "60").replace(
            "STEP", "{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}"
        )
        + "{{ ns.a == ns.b }}"
    ),
    "division of a large number": "{% set a = 7 ** 30000 %}{% for i in range(99999) %}{% set b = a // 3 "
    "%}{% endfor %}",
    "long arguments": "{% macro f() %}{{ varargs }}{% endmacro %}{{ f(*range(99999)) }}" * 300,
    "itself": "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
    "block in itself": "{% block a %}{{ self.a() }}{% endblock %}",
    "deep conditions": "{{ " + "1 if 1 else " * 3000 + "1 }}",
    "deep attributes": "{{ a" + ".b" * 9000 + " }}",
    "deep filters": "{{ 'a'" + " | upper" * 5000 + " }}",
    "deep calls": "{{ a" + "()" * 9000 + " }}",
    "deep loops": "{% for a in [1, 2] %}" * 100 + "{% endfor %}" * 100,
    "folded constants": "{{ 9 ** 9 ** 9 ** 9 }}{{ 'a' * 10 ** 10 }}",
    "open brackets": "{{" * 40_000,
    "spaces": ("\n" + " " * 300) * 300 + "{%- x",
    "quotes": "{{ '" + "\\\\" * 40_000,
    "skipped items": "{% for i in range(99999) if i > 99998 %}{% endfor %}" * 1000,
    "escaping": "{{ ('<' * 190000) | forceescape | forceescape | forceescape | forceescape | forceescape }}",
    "filled batches": "{{ [1] | batch(99999, 'x' * 900000) | list | tojson | length }}",
    "growing list": "{% set n = namespace(x=[]) %}{% for i in range(99999) %}{% set n.x = n.x + [i] %}{% "
    "endfor %}",
    "infinity": "{{ (1e308 * 10) | int }}",
    "own parts": "{{ raise_exception.__globals__ }}{{ (messages | map('upper')).gi_frame }}",
}


USUAL_SECONDS = 0.06
"""What `slowness` measures on an idle machine."""


def slowness() -> float:
    """How much more of the processor than on an idle machine a fixed piece of Python takes, at most."""

    def unit_seconds() -> float:
        start = time.process_time()
        sum(number * number for number in range(1_000_000))
        return time.process_time() - start

    return max(1.0, *(unit_seconds() / USUAL_SECONDS for _ in range(5)))


def compile_and_render(source: str, seconds: float) -> None:
    """Within so many seconds of an idle machine's processor; then once more within memory, for tracing it
    takes several times as long.
    """
    start = time.process_time()
    template: ChatTemplate | None = None
    try:
        template = ChatTemplate(source, "<s>", "</s>")
        template.render([Message("user", "Hi")])
    finally:
        took = time.process_time() - start
        assert took < seconds or took < seconds * slowness()
        if template is not None:
            check_memory(template)


def of_all(templates: dict[str, str], *slow: str) -> list[Any]:
    """The names of templates, of which these take long."""
    return [pytest.param(name, marks=[pytest.mark.slow] if name in slow else []) for name in templates]


def check_memory(template: ChatTemplate) -> None:
    tracemalloc.start()
    try:
        with contextlib.suppress(BadTemplate):
            template.render([Message("user", "Hi")])
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 150_000_000


@pytest.mark.parametrize("name", of_all(HOSTILE, "slices", "many statements", "doubling by dict"))
def test_hostile_templates_are_stopped(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "TIME_LIMIT", 0.15)
    with pytest.raises(BadTemplate) as caught:
        compile_and_render(HOSTILE[name], 4)
    sentence = str(caught.value)
    assert sentence.startswith("The chat template ")
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert len(sentence) < 400


@pytest.mark.parametrize("name", of_all(BOUNDED, "long arguments", "skipped items", "pieces"))
def test_strange_templates_end_in_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may give a text or be refused, as long as either comes soon, in one sentence, and without
    filling the memory.
    """
    monkeypatch.setattr(sandbox, "TIME_LIMIT", 0.15)
    sentence = "."
    try:
        compile_and_render(BOUNDED[name], 3)
    except BadTemplate as error:
        sentence = str(error)
    assert sentence.endswith(".")
    assert "\n" not in sentence


def test_time_limit_names_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "TIME_LIMIT", 0.2)
    with pytest.raises(BadTemplate, match=r"failed in line 2: the template runs longer than 0.2 seconds\."):
        ChatTemplate("first\n" + NESTED.replace("BODY", ""), None, None).render([Message("user", "Hi")])


def test_waiting_is_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A computer that gives the thread no time for hours does not make its template a slow one."""
    clock = itertools.count(0.0, 3600.0)
    waiting = SimpleNamespace(perf_counter=clock.__next__, thread_time=float)
    monkeypatch.setattr(sandbox_limits, "time", waiting)
    template = ChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}", None, None)
    assert template.render([Message("user", "Hi")]) == "Hi"
    assert next(clock) > 2 * 3600


@pytest.mark.slow
def test_long_conversations_are_within_the_bounds() -> None:
    from tests.engine.text.template.chat_templates import TEMPLATES

    roles = ("user", "assistant")
    many = [Message(roles[i % 2], f"message {i} " + "word " * 50) for i in range(1001)]
    long = [Message("user", "漢字 text\n" * 1_000_000)]
    for source in TEMPLATES.values():
        for messages in (many, long):
            assert (
                len(ChatTemplate(source, "<s>", "</s>").render(messages))
                >= sum(len(message.content) for message in messages) * 0.9
            )


def test_a_template_can_be_used_again_after_a_failure() -> None:
    template = ChatTemplate("{{ 'x' * (messages[0].content | length) * 500000 }}", None, None)
    with pytest.raises(BadTemplate, match="too much text"):
        template.render([Message("user", "y" * 1000)])
    assert len(template.render([Message("user", "y")])) == 500_000


def test_a_namespace_is_shown_without_its_contents() -> None:
    messages = [Message("user", "Hi")]
    assert ChatTemplate("{{ namespace(a=1) }}{{ messages[0].content }}", "", "").render(messages) == (
        "<Namespace>Hi"
    )


@pytest.mark.parametrize(
    ("pattern", "method", "args"),
    [("{}" * 5, "format", ("x" * 20_000,) * 5), ("{0}%" * 5, "format", ("x" * 20_000,)),
     ("abab", "replace", ("a", "x" * 99))],
)  # fmt: skip
def test_sizes_are_estimated_from_above(pattern: str, method: str, args: tuple[str, ...]) -> None:
    assert METHOD_SIZES[method](pattern, *args) >= len(getattr(pattern, method)(*args))


ENDLESS = (
    "<think></think>{%- if enable_thinking %}{{ messages[-1].reasoning_content }}{% endif %}"
    "{{ messages[0].content.text }}{{ tools }}" + NESTED.replace("BODY", "")
)


def test_an_endless_template_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each trial, for tags, levels of thinking and calls of tools, would take as long again."""
    monkeypatch.setattr(sandbox, "TIME_LIMIT", 0.05)
    tried = []
    render = sandbox.BoundedEnvironment.render_bounded

    def counted(*args: Any) -> str:
        tried.append(args)
        return render(*args)

    monkeypatch.setattr(sandbox.BoundedEnvironment, "render_bounded", counted)
    template = ChatTemplate(ENDLESS, None, None)
    assert (template.switch.levels, template.repeats_thoughts) == ((), False)
    assert template.tags[0] == ("<think>", "</think>")
    assert (template.opens(template.tags), template.twin.switch.levels) == ("", ())
    assert not tool_style(template).offers
    assert len(tried) == 1
    # a chat is tried all the same: a busy machine may have been too slow
    with pytest.raises(BadTemplate, match="runs longer than"):
        template.render([Message("system", "Be brief."), Message("user", "Hello")])
    assert len(tried) == 2
