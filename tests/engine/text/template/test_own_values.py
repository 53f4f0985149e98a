"""Templates change lists and dictionaries that they made themselves, and no others."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from jinja2.exceptions import SecurityError

from engine.errors import BadTemplate
from engine.text.template import sandbox
from engine.text.template.own_values import added_by
from engine.text.template.template import ChatTemplate

MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "Hi", "parts": [{"type": "text", "text": "x"}]},
    {"role": "assistant", "content": "Ho"},
]
TOOLS: list[dict[str, Any]] = [{"type": "function", "function": {"name": "f", "parameters": {"a": {}}}}]


def rendered(source: str) -> str:
    """The template's text; what it was given has not changed."""
    messages, tools, extra = deepcopy((MESSAGES, TOOLS, {"more": {"list": [1, [2]]}}))
    try:
        return ChatTemplate(source, "<s>", "</s>").render(messages, tools=tools, variables=extra)
    finally:
        assert (messages, tools, extra) == (MESSAGES, TOOLS, {"more": {"list": [1, [2]]}})


OWN = {
    "append": ("{% set x = [1] %}{% set _ = x.append(2) %}{{ x }}", "[1, 2]"),
    "in a namespace": ("{% set n = namespace(x=[]) %}{% set _ = n.x.append('a') %}{{ n.x }}", "['a']"),
    "in a loop": ("{% set x = [] %}{% for i in range(3) %}{{ x.append(i) or '' }}{% endfor %}{{ x }}",
                  "[0, 1, 2]"),
    "prints None": ("{% set x = [] %}{{ x.append(1) }}", "None"),
    "extend": ("{% set x = [1] %}{% set _ = x.extend(range(2)) %}{% set _ = x.extend(x) %}{{ x }}",
               "[1, 0, 1, 1, 0, 1]"),
    "extend by itself, lazily": ("{% set x = ['a'] %}{% set _ = x.extend(x | map('upper')) %}{{ x }}",
                                 "['a', 'A']"),
    "insert": ("{% set x = [1] %}{% set _ = x.insert(0, 2) %}{{ x }}", "[2, 1]"),
    "pop": ("{% set x = [1, 2, 3] %}{{ x.pop(0) }}{{ x.pop() }}{{ x }}", "13[2]"),
    "remove, reverse": ("{% set x = [1, 2, 3] %}{{ x.remove(1) or x.reverse() or x }}", "[3, 2]"),
    "clear": ("{% set x = [1] %}{{ x.clear() or x }}", "[]"),
    "update": ("{% set d = {'a': 1} %}{% set _ = d.update({'b': 2}, c=3) %}{{ d }}",
               "{'a': 1, 'b': 2, 'c': 3}"),
    "update by pairs": ("{% set d = {} %}{{ d.update([('a', 1)]) or d }}", "{'a': 1}"),
    "setdefault": ("{% set d = dict(a=1) %}{{ d.setdefault('a', 2) }}{{ d.setdefault('b', 3) }}", "13"),
    "pop of a dictionary": ("{% set d = {'a': 1} %}{{ d.pop('a') }}{{ d.pop('a', 7) }}{{ d }}", "17{}"),
    "popitem": ("{% set d = {'a': 1} %}{{ d.popitem() }}{{ d }}", "('a', 1){}"),
    "a slice of the messages": (
        "{% set x = messages[:1] %}{{ x.append(messages[1]) or x | length }}{{ x.pop(0).content }}", "2Hi"),
    "a copy of a message": (
        "{% set m = dict(messages[0]) %}{{ m.update(content='Bye') or m.content }}{{ messages[0].content }}",
        "ByeHi"),
    "what a filter made": ("{% set x = messages | map(attribute='role') | list %}{{ x.pop() }}", "assistant"),
    "what JSON said": ("{% set x = '[1]' | fromjson %}{{ x.append(2) or x }}", "[1, 2]"),
    "by the filter attr": ("{% set x = [] %}{{ (x | attr('append'))(1) or x }}", "[1]"),
}  # fmt: skip


@pytest.mark.parametrize("name", OWN)
def test_a_template_changes_what_it_made(name: str) -> None:
    source, expected = OWN[name]
    assert rendered(source) == expected


GIVEN = {
    "append to the messages": "{{ messages.append(1) }}",
    "pop of the messages": "{{ messages.pop() }}",
    "a message": "{{ messages[0].update(role='system') }}",
    "a message of a slice": "{% set x = messages[:1] %}{{ x[0].pop('role') }}",
    "a message of an own list": "{% set x = [] %}{{ x.append(messages[0]) }}{{ x[0].clear() }}",
    "a part": "{{ messages[0].parts.append(1) }}",
    "by get": "{{ messages[0].get('parts').append(1) }}",
    "in a copy": "{% set m = dict(messages[0]) %}{{ m.parts.append(1) }}",
    "in a loop": "{% for m in messages %}{{ m.setdefault('x', 1) }}{% endfor %}",
    "a tool": "{{ tools[0].function.parameters.popitem() }}",
    "tools": "{{ tools.clear() }}",
    "a variable": "{{ more.list[1].extend([3]) }}",
    "by the filter attr": "{{ (messages | attr('append'))(1) }}",
    "by map": "{{ ([messages] | map(attribute='append') | first)(1) }}",
    "by the class": "{{ dict.pop(messages[0], 'role') }}",
    "by the class, update": "{{ dict.update(messages[0], {'role': 'system'}) }}",
    "by the class, own": "{{ dict.clear({}) }}",
    "sort": "{% set x = [2, 1] %}{{ x.sort() }}",
}


@pytest.mark.parametrize("name", GIVEN)
def test_what_a_template_was_given_stays(name: str) -> None:
    with pytest.raises(BadTemplate, match=r"The chat template failed in line 1: .*unsafe"):
        rendered(GIVEN[name])


N = "{% set n = namespace(x=[1], y=[], d={}) %}"
ENDLESS = {
    "itself": N + "{{ n.x.append(n.x) }}",
    "itself in a list": N + "{{ n.x.append([[n.x]]) }}",
    "itself in a dictionary": N + "{{ n.d.update(a={'b': n.d}) }}",
    "each other": N + "{{ n.y.append(n.x) }}{{ n.x.insert(0, n.y) }}",
    "by extend": N + "{{ n.x.extend([n.x]) }}",
    "by setdefault": N + "{{ n.d.setdefault('a', [n.d]) }}",
    "doubling": N + "{% for i in range(99) %}{{ n.x.extend(n.x) or '' }}{% endfor %}",
    "long": N + "{% for i in range(99) %}{{ n.x.extend(range(99999)) or '' }}{% endfor %}",
    "while it is read": N + "{% for i in n.x %}{{ n.x.append(i) or '' }}{% endfor %}",
    "more and more": N + "{% for i in range(99999) %}{{ n.y.append(n.y + n.y) or '' }}{% endfor %}",
    "nested": N + "{% for i in range(99) %}{{ n.y.append([n.y[:], n.y[:]]) or '' }}{% endfor %}{{ n.y }}",
    "huge texts": N + "{% for i in range(99) %}{{ n.y.append('x' * 900000) or '' }}{% endfor %}{{ n.y }}",
}


@pytest.mark.parametrize(
    ("owner", "method", "args", "named", "added"),
    [
        ([1, 2], "append", (3,), {}, 1), ([1, 2], "extend", ([3, 4],), {}, 2),
        ({1: 2}, "setdefault", (3, 4), {}, 1), ({1: 2}, "update", ({3: 4},), {"a": 5}, 2),
    ],
)  # fmt: skip
def test_what_a_call_would_add_is_known_before(
    owner: Any, method: str, args: tuple[Any, ...], named: dict[str, Any], added: int
) -> None:
    assert added_by(owner, method, args, named, len(owner) + added)[1] == added
    with pytest.raises(SecurityError, match="grows too long"):
        added_by(owner, method, args, named, len(owner) + added - 1)


def test_lists_that_share_their_parts_are_looked_through_once() -> None:
    doubled: list[Any] = []
    for _level in range(64):
        doubled = [doubled, doubled]
    assert added_by([], "append", (doubled,), {}, 9)[1] == 1


@pytest.mark.slow_after(4)
@pytest.mark.parametrize("name", ENDLESS)
def test_lists_stay_bounded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.engine.text.template.test_sandbox import compile_and_render

    monkeypatch.setattr(sandbox, "TIME_LIMIT", 0.15)
    with pytest.raises(BadTemplate, match=r"^The chat template failed"):
        compile_and_render(ENDLESS[name], 4)
