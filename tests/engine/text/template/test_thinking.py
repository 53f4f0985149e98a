"""The switch for thinking, found in chat templates: short ones in the styles of model families, and the real
ones of the collection.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.core import Message, nearest_level
from engine.errors import BadTemplate
from engine.settings import ThinkingSettings, setting_info
from engine.settings.thinking import EFFORTS
from engine.text.template.template import ChatTemplate
from engine.text.template.thinking import Way

TEMPLATES = Path(__file__).parents[3] / "golden" / "templates"

TALK = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
PRINTED = "{% if effort is not defined %}{% set effort = 'medium' %}{% endif %}Reasoning: {{ effort }}"
RAISES = "{% if E not in ['none', 'high'] %}{{ raise_exception('no') }}{% endif %}"

# what stands after (or before) the conversation: the levels, the default, and the variables of some levels
FAMILIES: dict[str, tuple[str, tuple[str, ...], str, dict[str, dict[str, Any]]]] = {
    "qwen3": (
        TALK + "{% if enable_thinking is defined and enable_thinking is false %}<think></think>{% endif %}",
        ("off", "on"), "on", {"off": {"enable_thinking": False}},
    ),
    "qwen3.5 small": (
        TALK + "{% if enable_thinking is defined and enable_thinking is true %}<think>{% else %}"
        "<think></think>{% endif %}",
        ("off", "on"), "off", {"on": {"enable_thinking": True}},
    ),
    "smollm3": (
        "{% if enable_thinking is not defined %}{% set enable_thinking = true %}{% endif %}"
        "{% set mode = '/think' if enable_thinking else '/no_think' %}Mode: {{ mode }}" + TALK,
        ("off", "on"), "on", {},
    ),
    "deepseek 3.1": (
        "{% if not thinking is defined %}{% set thinking = false %}{% endif %}" + TALK
        + "{% if thinking %}<think>{% else %}</think>{% endif %}",
        ("off", "on"), "off", {"on": {"thinking": True}, "off": {"thinking": False}},
    ),
    "granite": ("{% if thinking %}Think first.{% endif %}" + TALK, ("off", "on"), "off", {}),
    "gemma 4": (
        "{% if enable_thinking is defined and enable_thinking %}<|think|>{% endif %}" + TALK,
        ("off", "on"), "off", {},
    ),
    "hunyuan": (
        TALK + "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>{% endif %}",
        ("off", "on"), "on", {},
    ),
    "two names": (
        TALK + "{% if thinking or enable_thinking %}<think>{% endif %}",
        ("off", "on"), "off", {"on": {"thinking": True, "enable_thinking": True}},
    ),
    "skipped": (
        TALK + "{% if not skip_thinking %}<think>{% endif %}",
        ("off", "on"), "on", {"off": {"skip_thinking": True}, "on": {"skip_thinking": False}},
    ),
    "asked of both": (
        TALK + "{% if enable_thinking is defined %}"
        "{% if enable_thinking %}<think>{% else %}</think>{% endif %}{% endif %}",
        ("off", "on"), "", {},
    ),
    "gpt-oss": (
        "{% macro head() %}" + PRINTED.replace("effort", "reasoning_effort") + "{% endmacro %}{{ head() }}"
        + TALK + "{% if 'thinking' in messages[0] %}x{% endif %}",
        ("low", "medium", "high"), "medium", {"high": {"reasoning_effort": "high"}},
    ),
    "muse": (
        "{% set rs = reasoning_strength if reasoning_strength is defined else 'high' %}"
        "Reasoning strength: {{ rs }}." + TALK,
        ("low", "medium", "high"), "high", {"low": {"reasoning_strength": "low"}},
    ),
    "step": (
        "{% if reasoning_effort is defined %}Reasoning: {{ reasoning_effort }}{% endif %}" + TALK,
        ("low", "medium", "high"), "", {"low": {"reasoning_effort": "low"}},
    ),
    "mistral": (
        "{% set E = reasoning_effort if reasoning_effort is defined and reasoning_effort else 'none' %}"
        + RAISES + "[MODE]{{ E }}" + TALK,
        ("off", "high"), "off", {"off": {"reasoning_effort": "none"}, "high": {"reasoning_effort": "high"}},
    ),
    "hunyuan 3": (
        "{% if not reasoning_effort is defined or reasoning_effort not in ['high', 'low', 'no_think'] %}"
        "{% set reasoning_effort = 'no_think' %}{% endif %}effort:{{ reasoning_effort }}" + TALK,
        ("off", "low", "high"), "off", {"off": {"reasoning_effort": "no_think"}},
    ),
    "qwen3.8": (
        "{% if enable_thinking is undefined or enable_thinking is true %}"
        "{% set effort = reasoning_effort|default('xhigh') %}"
        "{% if effort not in ('xhigh', 'medium', 'low') %}{{ raise_exception('Unexpected') }}{% endif %}"
        "{% if effort == 'xhigh' %}Think hard.{% elif effort == 'low' %}Be quick.{% endif %}{% endif %}"
        + TALK + "{% if enable_thinking is defined and enable_thinking is false %}<think></think>{% endif %}",
        ("off", "low", "medium", "xhigh"), "xhigh",
        {"off": {"enable_thinking": False}, "low": {"enable_thinking": True, "reasoning_effort": "low"}},
    ),
    "kimi 3": (
        "{% if thinking is undefined %}{% set thinking = true %}{% endif %}"
        "{% if thinking_effort is undefined %}{% set thinking_effort = 'max' %}{% endif %}"
        "{% if thinking and thinking_effort not in ['low', 'medium', 'high', 'max'] %}"
        "{{ raise_exception('Unsupported') }}{% endif %}"
        "{% if thinking %}Effort {{ thinking_effort }}{% endif %}" + TALK
        + "{% if thinking %}<think>{% endif %}",
        ("off", "low", "medium", "high", "max"), "max", {"off": {"thinking": False}},
    ),
    "nemotron 3": (
        "{% set low_effort = low_effort if low_effort is defined else false %}"
        "{% set on = enable_thinking if enable_thinking is defined else true %}" + TALK
        + "{% if on %}<think>{% if low_effort %}Short.{% endif %}{% else %}<think></think>{% endif %}",
        ("off", "low", "on"), "on", {"low": {"enable_thinking": True, "low_effort": True}},
    ),
    "baichuan": (
        TALK + "{% if thinking_mode == 'off' %}</think>{% elif thinking_mode == 'on' %}<think>{% endif %}",
        ("off", "on"), "", {"off": {"thinking_mode": "off"}, "on": {"thinking_mode": "on"}},
    ),
    "ling": (
        "{% if thinking_option is defined and thinking_option == 'on' %}detailed thinking on{% else %}"
        "detailed thinking off{% endif %}" + TALK,
        ("off", "on"), "off", {"on": {"thinking_option": "on"}},
    ),
    "seed": (
        "{% if not thinking_budget is defined %}{% set thinking_budget = -1 %}{% endif %}"
        "{% if thinking_budget == 0 %}Do not think.{% elif thinking_budget > 0 %}"
        "Think {{ thinking_budget }} tokens.{% endif %}" + TALK,
        ("off", "low", "medium", "high"), "", {"off": {"thinking_budget": 0}},
    ),
}  # fmt: skip

NO_SWITCH = {
    "plain": TALK,
    "history only": "{% for m in messages %}{% if preserve_thinking and m.reasoning_content %}"
    "{{ m.reasoning_content }}{% endif %}{{ m.content }}{% endfor %}",
    "another meaning": "{% if thinking_in_english %}Think in English.{% endif %}" + TALK,
    "set by itself": "{% set enable_thinking = true %}" + TALK + "{% if enable_thinking %}<think>{% endif %}",
    "a text": "{{ reasoning_prompt }}" + TALK,
    "refuses everything": "{{ raise_exception('never') }}{{ enable_thinking }}",
}


def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, "<s>", "</s>")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_switch_of_each_family(family: str) -> None:
    source, levels, default, variables = FAMILIES[family]
    switch = template(source).switch
    assert (switch.levels, switch.default) == (levels, default)
    for level, expected in variables.items():
        assert dict(switch.way(level).variables) == expected
    prompts = {template(source).render([Message("user", "Hi")], variables=switch.ways[level].variables)
               for level in levels}  # fmt: skip
    assert len(prompts) == len(levels)


@pytest.mark.parametrize("kind", NO_SWITCH)
def test_other_templates_have_none(kind: str) -> None:
    switch = template(NO_SWITCH[kind]).switch
    assert (switch.levels, switch.default) == ((), "")
    assert all(switch.way(level) == Way() for level in ("auto", "off", "on", "low"))


def test_a_default_keeps_its_own_level() -> None:
    """What the template does by itself renders as the level that is called its default."""
    for source, _, default, _ in FAMILIES.values():
        if default:
            made = template(source)
            way = made.switch.ways[default]
            hello = [Message("user", "Hi")]
            assert made.render(way.messages(hello), variables=way.variables) == made.render(hello)


NEMOTRON = """{% set ns = namespace(on=true) %}{% for m in messages %}{% if '/think' in m.content %}
{% set ns.on = true %}{% elif '/no_think' in m.content %}{% set ns.on = false %}{% endif %}{% endfor %}
<s>{% if messages[0].role == 'system' %}{% set text = messages[0].content %}
{{ text.replace('/no_think', '').replace('/think', '') }}{% endif %}
{% for m in messages if m.role != 'system' %}<u>{{ m.content }}{% endfor %}
<a>{% if ns.on %}<think>{% else %}<think></think>{% endif %}"""


def test_words_in_the_system_message_switch_some_models() -> None:
    made = template(NEMOTRON)
    assert (made.switch.levels, made.switch.way("off").phrase) == (("off", "on"), "/no_think")
    hello, brief = Message("user", "Hi"), Message("system", "Be brief.")
    off = made.switch.way("low"), made.switch.way("off")
    assert [way.phrase for way in off] == ["/think", "/no_think"]
    assert [m.content for m in off[1].messages([hello])] == ["/no_think", "Hi"]
    assert [m.content for m in off[1].messages([brief, hello])] == ["Be brief.\n/no_think", "Hi"]
    assert made.render(off[1].messages([hello])).endswith("<think></think>")
    assert off[1].messages([]) == []


def test_a_phrase_that_the_template_copies_switches_nothing() -> None:
    assert template(TALK + "{% if '/no_think' in 'x' %}y{% endif %}").switch.levels == ()


def test_a_template_over_its_limits_has_no_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    source = TALK + "{% if enable_thinking %}{{ 'x' * 10**9 }}{% endif %}"
    assert template(source).switch.levels == ()
    monkeypatch.setattr("engine.text.template.thinking._TIME_LIMIT", -1.0)
    assert template(FAMILIES["qwen3"][0]).switch.levels == ()


REAL = {
    "Apertus-8B-Instruct": "off on", "ByteDance-Seed-OSS": "off low medium high", "GLM-4.6": "off on",
    "GLM-4.7-Flash": "off on", "HuggingFaceTB-SmolLM3-3B": "off on", "Qwen-Qwen3-0.6B": "off on",
    "Qwen3.5-4B": "off on", "deepseek-ai-DeepSeek-V3.1": "off on", "google-gemma-4-31B-it": "off on",
    "ibm-granite-granite-3.3-2B-Instruct": "off on", "inclusionai-ling-3.0-flash": "off on",
    "openai-gpt-oss-120b": "low medium high", "openbmb-MiniCPM5-1B": "off on",
    # none
    "Kimi-K2-Instruct": "", "MiniMax-M2": "", "Qwen-Qwen2.5-7B-Instruct": "", "Kimi-K2-Thinking": "",
    "mistralai-Ministral-3-14B-Reasoning-2512": "", "ibm-granite-granite-4.0": "",
    "microsoft-Phi-3.5-mini-instruct": "", "meetkai-functionary-medium-v3.2": "",
}  # fmt: skip


@pytest.mark.parametrize("name", REAL)
def test_real_templates(name: str) -> None:
    source = (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")
    assert template(source).switch.levels == tuple(REAL[name].split())


def test_what_opens_a_thought_follows_the_level() -> None:
    made, tags = template(FAMILIES["deepseek 3.1"][0]), (("<think>", "</think>"),)
    assert [made.opens(tags, level) for level in ("auto", "off", "on", "high")] == ["", "", *["</think>"] * 2]


@pytest.mark.parametrize(
    ("levels", "default", "expected"),
    [
        ("", "", "auto: off: on: low: high: max:"),
        ("off on", "on", "auto: off:off on:on minimal:off low:on high:on max:on"),
        ("low medium high", "medium", "auto: off:low on: minimal:low medium:medium xhigh:high max:high"),
        ("off high", "off", "off:off on:high minimal:high low:high medium:high"),
        ("off low medium high max", "max", "off:off on: minimal:low xhigh:max"),
        ("off low on", "on", "off:off on:on minimal:low medium:on high:on"),
        ("low xhigh", "", "off:low on: medium:low high:xhigh"),
    ],
)
def test_the_nearest_level(levels: str, default: str, expected: str) -> None:
    for pair in expected.split():
        wanted, _, found = pair.partition(":")
        assert nearest_level(wanted, levels.split(), default) == found, wanted


def test_tags_that_a_template_puts_together_are_found() -> None:
    source = (
        "{% set begin, finish = '<think{}>'.format(':x'), '</think{}>'.format(':x') %}" + TALK
        + "{% if not thinking %}{{ begin + finish }}{% else %}{{ begin }}{% endif %}"
    )  # fmt: skip
    made = template(source)
    assert made.tags[0] == ("<think:x>", "</think:x>")
    assert [made.opens(made.tags, level) for level in ("off", "on")] == ["", "</think:x>"]


def test_every_level_is_a_choice_of_the_setting() -> None:
    choices = [value for value, _ in setting_info(ThinkingSettings.__dataclass_fields__["thinking"]).choices]
    assert choices == ["auto", "off", "on", *EFFORTS]


def test_what_refuses_is_still_refused() -> None:
    with pytest.raises(BadTemplate, match="never"):
        template(NO_SWITCH["refuses everything"]).render([Message("user", "Hi")])
