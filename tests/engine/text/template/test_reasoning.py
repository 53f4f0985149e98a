"""Thoughts in control tokens: they are text, they are kept apart from answers, and do not go back into the
prompt.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from engine.core import ChatRequest, Message
from engine.generator.prompt.prompt import Prompts
from engine.hub.local.header_process import info_from_json, info_to_json
from engine.text.template.reasoning import THINKING_TAGS, control_tags, opened_by, tags_in, without_thoughts
from engine.text.template.template import ChatTemplate
from engine.text.tokenizer.detokenizer import Detokenizer
from engine.text.tokenizer.tokenizer import Tokenizer
from tests.desktop.fakes import ECHO_INFO
from tests.engine.text.tokenizer.vocabularies import byte_level_metadata

GPT_OSS = Path(__file__).parents[3] / "golden" / "templates" / "openai-gpt-oss-120b.jinja"
HARMONY = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>", "<|constrain|>")
CASES = {
    "<|channel|>analysis<|message|>Hm é.<|end|><|start|>assistant<|channel|>final<|message|>Hi "
    "☺.": "<think>\nHm é.\n</think>\n\nHi ☺.",
    "<|channel|>final<|message|>Hi.": "Hi.",
    "<|channel|>analysis<|message|>A<|end|><|start|>assistant<|channel|>analysis<|message|>B<|end|><"
    "|start|>assistant<|channel|>final"
    "<|message|>C": "<think>\nA\n\nB\n</think>\n\nC",
    "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>final<|message"
    "|>Done.": "I look.\n\nDone.",
    "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}": "<think>\n{}",
    "<|message|>Hi.": "Hi.",
    "<|channel|>analysis<|message|>A<|end|><|start|>assistant<|channel|>commentary to=assistant<|channel|>"
    "final<|message|>B": "<think>\nA\n</think>\n\nB",
    "<|channel|>commentary to=assistant<|channel|>analysis<|message|>A<|end|><|start|>assistant<|channel|>"
    "final<|message|>B": "<think>\nA\n</think>\n\nB",
}


def tokenizer_with(*special: str) -> Tokenizer:
    metadata = byte_level_metadata()
    have = metadata["tokenizer.ggml.tokens"]
    new = [text for text in special if text not in have]
    types = [*metadata["tokenizer.ggml.token_type"], *(3 for _ in new)]
    return Tokenizer.from_gguf(
        {**metadata, "tokenizer.ggml.tokens": [*have, *new], "tokenizer.ggml.token_type": types}
    )


@pytest.mark.parametrize("written", CASES)
def test_channels_become_a_thought_and_an_answer_wherever_the_reply_is_taken_up(written: str) -> None:
    tokenizer = tokenizer_with(*HARMONY)
    prompt = tokenizer.encode("<|start|>user<|message|>Hello<|end|><|start|>assistant", special=True)
    ids = tokenizer.encode(written, special=True)
    detokenizer = Detokenizer(tokenizer, prompt_ids=prompt)
    chunks = [detokenizer.add(id) for id in ids]
    assert "".join(chunks) + detokenizer.finish() == CASES[written]
    for at in range(len(ids)):
        later = Detokenizer(tokenizer, prompt_ids=prompt + ids[:at])
        shown = "".join(chunks[:at]) + "".join(later.add(id) for id in ids[at:]) + later.finish()
        assert shown == CASES[written], at


def test_what_is_taken_back_takes_its_channel_back() -> None:
    tokenizer = tokenizer_with(*HARMONY)
    ids = tokenizer.encode(
        "<|channel|>analysis<|message|>A<|end|><|start|>assistant<|channel|>final<|message|>B", special=True
    )
    detokenizer = Detokenizer(tokenizer)
    draw = random.Random(3)
    text, place, marks = "", 0, [(detokenizer.snapshot(), "", 0)]
    for _ in range(200):
        if place == len(ids) or draw.random() < 0.3:
            snapshot, text, place = draw.choice(marks)
            detokenizer.restore(snapshot)
        else:
            text, place = text + detokenizer.add(ids[place]), place + 1
            marks.append((detokenizer.snapshot(), text, place))
        assert "<think>\nA\n</think>\n\nB".startswith(text)
    assert any(text.endswith("B") for _, text, _ in marks)


def test_special_tokens_are_shown_as_they_are_when_asked_for() -> None:
    tokenizer = tokenizer_with(*HARMONY)
    written = next(iter(CASES))
    detokenizer = Detokenizer(tokenizer, skip_special=False)
    assert "".join(detokenizer.add(id) for id in tokenizer.encode(written, special=True)) == written


@pytest.mark.parametrize(
    "tag",
    [
        ("[THINK]", "[/THINK]"),
        ("◁think▷", "◁/think▷"),
        ("<|channel>thought", "<channel|>"),
        ("<think>", "</think>"),
    ],
)
def test_control_tokens_of_thoughts_are_heard_and_others_are_not(tag: tuple[str, str]) -> None:
    special = (tag[0].removesuffix("thought") if "channel" in tag[0] else tag[0], tag[1], "<|end|>")
    tokenizer = tokenizer_with(*special)
    template = ChatTemplate.from_source(f"{{{{ messages[0].content }}}}{tag[0]}{tag[1]}", tokenizer)
    written = f"{tag[0]}\nhm{tag[1]}Yes"
    ids = tokenizer.encode(written + "<|end|>", special=True)
    assert tag[1] not in tokenizer.decode(ids)
    tokenizer.hear(template.thinking(tokenizer)[1])
    assert tokenizer.decode(ids) == written


def test_a_tag_that_is_only_half_made_of_control_tokens_is_none() -> None:
    pattern = tokenizer_with("<|end|>", "<|assistant|>").special_pattern
    assert control_tags(THINKING_TAGS, pattern) == ()


def test_tags_with_a_bar_inside_are_found() -> None:
    assert tags_in("<|im_start|>a<|im_end|><ifm|think_fast>{# </ifm|think_fast> #}")[0] == (
        "<ifm|think_fast>", "</ifm|think_fast>",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("<|deep_thought|>", "<|/deep_thought|>"), ("<|deep_thought|>", "</|deep_thought|>"),
        ("[my_thought]", "[/my_thought]"), ("◁mythought▷", "◁/mythought▷"), ("<mythought>", "</mythought>"),
        ("<|begin_of_thought2|>", "<|end_of_thought2|>"),
    ],
)  # fmt: skip
def test_pairs_that_nobody_listed_are_found(begin: str, end: str) -> None:
    assert tags_in(f"a {begin} b {end} c")[0] == (begin, end)
    assert (begin, end) not in tags_in(f"a {begin} b {end[1:]} c")


def test_sentences_are_tags_where_the_template_has_them() -> None:
    steps = ("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]")
    assert steps not in tags_in("")
    marked = ("<|my_reasoning_start|>", "<|my_reasoning_end|>")
    assert tags_in(" ".join(marked))[0] == marked
    assert marked not in tags_in(marked[0])
    assert tags_in(f"... {steps[1]} ...")[0] == steps  # in Apriel 1.5's, the model itself begins with them
    assert steps not in tags_in(steps[0])
    tags = tags_in(f"{{{{ messages[0].content }}}}{steps[0]}\n {{# {steps[1]} #}}")
    assert tags[0] == steps
    assert opened_by(f"<|assistant|>\n{steps[0]}\n", tags) == steps[1]


def test_thoughts_do_not_go_back_into_the_prompt() -> None:
    tokenizer = tokenizer_with(*HARMONY)
    template = ChatTemplate.from_source(GPT_OSS.read_text(encoding="utf-8"), tokenizer)
    prompts = Prompts(tokenizer, template, 100_000)
    reply = "<think>\nsecret\n</think>\n\nHi."
    said = (Message("user", "Hello"), Message("assistant", reply), Message("user", "And?"))
    text = tokenizer.decode(prompts.build(ChatRequest(said)).ids, skip_special=False)
    assert "<|start|>assistant<|channel|>final<|message|>Hi.<|end|>" in text
    assert "secret" not in text
    assert template.thinking(tokenizer)[0][0] == ("<think>", "</think>")


def test_only_closed_thoughts_before_an_answer_are_left_out() -> None:
    tags = (("[THINK]", "[/THINK]"),)
    assert without_thoughts("[THINK]a[/THINK]\n\n[THINK]b[/THINK]c", tags) == "c"
    assert without_thoughts("[THINK]a", tags) == "[THINK]a"
    assert without_thoughts("[THINK]a[/THINK]\n[THINK]b", tags) == "[THINK]b"
    assert without_thoughts("[THINK]a[/THINK]\n", tags) == "[THINK]a[/THINK]\n"
    assert without_thoughts("say [THINK]a[/THINK]", tags) == "say [THINK]a[/THINK]"
    assert without_thoughts("a[/THINK]b", tags, "[/THINK]") == "b"
    assert without_thoughts("\nplain", tags) == "\nplain"


def test_a_prompt_that_opens_a_thought_is_known_from_the_template() -> None:
    tokenizer = tokenizer_with("<|end|>")
    source = (
        "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}<think>\n{% endif %}"
    )
    template = ChatTemplate.from_source(source, tokenizer)
    assert template.opens(THINKING_TAGS) == "</think>"
    assert ChatTemplate.from_source("{{ messages[0].content }}", tokenizer).opens(THINKING_TAGS) == ""
    assert ChatTemplate.from_source("{{ raise_exception('no') }}", tokenizer).opens(THINKING_TAGS) == ""


def test_facts_of_a_model_keep_their_tags_through_json() -> None:
    info = replace(ECHO_INFO, thinking=(("<a>", "</a>"),), opens_thought="</a>")
    assert info_from_json(json.loads(json.dumps(info_to_json(info)))) == info
