"""Thinking tags: found in templates by their form and in prompts by their end; every known pair splits a
reply.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from desktop.blocks import THINKING_TAGS, BlockSplitter, Kind, Tag, opened_by, split, tags_in

TEMPLATES = Path(__file__).parents[2] / "golden" / "templates"


@pytest.mark.parametrize("tag", THINKING_TAGS, ids=lambda tag: tag[0])
def test_every_known_pair_splits_a_reply_however_it_arrives(tag: Tag) -> None:
    text = f"{tag[0]}\nLet me see.\n\n- a\n- b\n{tag[1]}\n\nAnswer."
    blocks = split(text)
    assert [
        block.body.strip() for block in blocks if not block.thought and block.kind is not Kind.MARKUP
    ] == ["Answer."]
    assert {block.kind for block in blocks if block.thought} >= {Kind.THINKING, Kind.PROSE, Kind.LIST}
    splitter = BlockSplitter()
    for letter in text:
        splitter.feed(letter)
        shown = "".join(block.body for block in splitter.blocks())
        assert tag[1] not in shown
        assert tag[0] not in shown
    assert splitter.blocks(ended=True) == blocks


@pytest.mark.parametrize(
    ("template", "tag"),
    [
        ("{{ '<think>' + m.reasoning_content + '</think>' }}", ("<think>", "</think>")),
        ("{%- set content = content.split('[/THINK]')[1] %}[THINK]", ("[THINK]", "[/THINK]")),
        ("<my:thinking>x</my:thinking>", ("<my:thinking>", "</my:thinking>")),
        ("<|deep_thought|>x<|/deep_thought|>", ("<|deep_thought|>", "<|/deep_thought|>")),
        ("<|REASONING_START|>x<|REASONING_END|>", ("<|REASONING_START|>", "<|REASONING_END|>")),
        ("<|begin_of_reasoning|>x<|end_of_reasoning|>", ("<|begin_of_reasoning|>", "<|end_of_reasoning|>")),
    ],
)
def test_the_tags_of_a_template_come_first(template: str, tag: Tag) -> None:
    found = tags_in(template)
    assert found[0] == tag
    assert {known[0] for known in THINKING_TAGS} <= {begin for begin, _ in found}
    assert [block.body for block in split(f"{tag[0]}a{tag[1]}b", found) if block.body] == ["a", "b"]


def test_other_tags_of_a_template_are_not_thinking_tags() -> None:
    assert (
        tags_in("<|im_start|>assistant<|im_end|> <tool_call></tool_call> [INST][/INST] <reasonable>")
        == THINKING_TAGS
    )
    assert tags_in("") == THINKING_TAGS


def test_real_templates_that_think_have_tags_that_split() -> None:
    thinking = [
        path
        for path in sorted(TEMPLATES.rglob("*"))
        if path.is_file() and "think" in path.read_text(encoding="utf-8").lower()
    ]
    assert thinking, "the collection has templates of models that think"
    for path in thinking:
        source = path.read_text(encoding="utf-8")
        named = [tag for tag in tags_in(source) if tag[0] in source and tag[1] in source]
        for begin, finish in named:
            kinds = [block.kind for block in split(f"{begin}\nhm\n{finish}\nYes", tags_in(source))]
            assert kinds[0] is Kind.THINKING, (path.name, begin)


def test_a_prompt_that_ends_with_a_tag_has_opened_a_thought() -> None:
    assert opened_by("<|User|>Hi<|Assistant|><think>\n") == "</think>"
    assert opened_by("<|im_start|>assistant\n<think>\n\n</think>\n\n") == ""
    assert opened_by("Hi") == ""


def test_a_text_that_begins_inside_a_thought() -> None:
    splitter = BlockSplitter(opened="</think>")
    splitter.feed("hm\n</think>\nYes")
    blocks = splitter.blocks(ended=True)
    assert [(block.kind, block.thought) for block in blocks] == [
        (Kind.THINKING, True), (Kind.PROSE, True), (Kind.MARKUP, True), (Kind.PROSE, False),
    ]  # fmt: skip
    assert "".join(block.source for block in blocks) == "hm\n</think>\nYes"
    assert not splitter.orphan


def test_a_closing_tag_without_an_opening_one_is_reported() -> None:
    splitter = BlockSplitter()
    splitter.feed("hm\n</think>")
    assert not splitter.orphan, "the line is not whole yet"
    splitter.feed("\nYes")
    assert splitter.orphan == "</think>"
    splitter.feed("\nand more\n")
    assert splitter.orphan == "</think>"


def test_a_second_closing_tag_says_nothing_of_the_beginning() -> None:
    splitter = BlockSplitter()
    splitter.feed("<think>\nhm\n</think>\nYes\n</think>\nNo\n")
    assert not splitter.orphan


def test_a_closing_tag_at_the_very_beginning_is_no_text() -> None:
    for pieces in (["</think>Yes </think>"], list("</think>Yes </think>")):
        splitter = BlockSplitter()
        for piece in pieces:
            splitter.feed(piece)
            shown = "".join(block.source for block in splitter.blocks() if block.kind is Kind.PROSE)
            assert "Yes </think>".startswith(shown)
        blocks = splitter.blocks(ended=True)
        assert [(block.kind, block.source) for block in blocks] == [
            (Kind.MARKUP, "</think>"), (Kind.PROSE, "Yes </think>"),
        ]  # fmt: skip
        assert not splitter.orphan


@pytest.mark.parametrize("text", ["<think>\nhm\n</think>\n<answer>\nYes.\n\nNo.\n</answer>",
                                  "<think>hm</think><response>Yes.\n\nNo.</response>\n",
                                  "<think>hm</think><|begin_of_solution|>Yes.\n\nNo.<|end_of_solution|>",
                                  "Steps:\nhm\n[BEGIN FINAL RESPONSE]\n\nYes.\n\nNo.\n[END FINAL RESPONSE]",
                                  "Steps: hm [BEGIN FINAL RESPONSE] Yes.\n\nNo. [END FINAL RESPONSE]\n",
                                  ])  # fmt: skip
def test_tags_around_an_answer_are_no_text(text: str) -> None:
    for pieces in ([text], list(text)):
        splitter = BlockSplitter((*THINKING_TAGS, ("Steps:", "[BEGIN FINAL RESPONSE]")))
        for piece in pieces:
            splitter.feed(piece)
            shown = "".join(b.source for b in splitter.blocks() if b.kind is Kind.PROSE and not b.thought)
            assert "Yes.\n\nNo.".startswith("".join(shown.strip().split(" ")))
        blocks = splitter.blocks(ended=True)
        assert "".join(block.source for block in blocks) == text
        prose = [block.source.strip() for block in blocks if block.kind is Kind.PROSE and not block.thought]
        assert prose == ["Yes.", "No."]


@pytest.mark.parametrize(
    ("text", "opened", "thoughts", "answer"),
    [
        ("<think>\n<think>\na\n</think>\nb", "", ["a"], "b"),
        ("<think><think>a</think>b", "", ["a"], "b"),
        ("\n<think>\na\n</think>\nb", "</think>", ["a"], "b"),
        ("<think>a</think>b", "</think>", ["a"], "b"),
        ("<think>\na\n\n<think>\nc\n</think>\nb", "", ["a", "c"], "b"),
        ("<think>\na\n</think>\n\n<think>\nc\n</think>\nb", "", ["a", "c"], "b"),
        ("<think>\na\n</think>\nb\n\n<think>\nc", "", ["a", "c"], "b"),
        ("<think>\n<thought>\na\n</think>\nb", "", ["<thought>", "a"], "b"),
        ("<think>\n<thinker> a\n</think>\nb", "", ["<thinker> a"], "b"),
        ("<think>\n```\n<think>\n```\n</think>\nb", "", ["<think>"], "b"),
        ("<think>\n<thi", "", ["<thi"], ""),
    ],
)
def test_a_tag_that_stands_twice_is_no_text(text: str, opened: str, thoughts: list[str], answer: str) -> None:
    """However the reply arrives, and the tag is never seen while it does."""
    splitter = BlockSplitter(opened=opened)
    for letter in text:
        splitter.feed(letter)
        if "```" not in text:
            assert "<think>" not in "".join(block.body for block in splitter.blocks())
    blocks = splitter.blocks(ended=True)
    whole = BlockSplitter(opened=opened)
    whole.feed(text)
    assert whole.blocks(ended=True) == blocks
    assert "".join(block.source for block in blocks) == text
    shown = [block for block in blocks if block.kind not in (Kind.MARKUP, Kind.THINKING)]
    found = [line for block in shown if block.thought for line in block.body.split("\n") if line]
    assert found == thoughts
    assert "".join(block.body.strip() for block in shown if not block.thought) == answer


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<answ", "<answ"),  # no thought is before it
        ("<think>hm</think>\n<answ", ""),
        ("<think>hm</think>\n<answer>Yes </ans", "Yes"),
        ("<think>hm</think>\n<answer>Yes </ans ", "Yes </ans"),
        ("<think>hm</think>\n<answer>\n```\nx </ans", "x </ans"),
        ("<think>hm</think><answer>Yes </ans", "Yes"),
    ],
)
def test_no_more_is_held_back_than_may_be_a_tag_around_an_answer(text: str, shown: str) -> None:
    splitter = BlockSplitter()
    splitter.feed(text)
    assert "".join(block.body for block in splitter.blocks() if not block.thought).strip() == shown
