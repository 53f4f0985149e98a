"""Channels of replies: what is shown of headers, thoughts, answers, calls and what stands between them."""

from __future__ import annotations

import re

import pytest

from engine.text.template.channels import (
    CALL_BEGIN,
    CALL_END,
    HARMONY,
    KIMI,
    SOLAR,
    ChannelFormat,
    Channels,
    ChannelTokens,
)

NEXT = "<|end|><|start|>assistant<|channel|>"
THOUGHT = "<think>\nHm.\n</think>\n\n"
KIMI_CALL = (
    '<|open|>tools<|sep|><|open|>call tool="f"<|sep|><|open|>argument<|sep|>2<|close|>argument<|sep|>'
    "<|close|>call<|sep|><|close|>tools<|sep|>"
)


def tokens(format: ChannelFormat) -> ChannelTokens:
    return ChannelTokens(format, dict(enumerate(format.tokens)))


def shown(format: ChannelFormat, text: str, calls: bool = False) -> str:
    """What is shown of a reply in which control tokens are written as their texts."""
    channels = Channels(tokens(format), calls=calls)
    parts = re.split("(" + "|".join(map(re.escape, format.tokens)) + ")", text)
    return "".join(
        channels.control(format.tokens.index(part)) if part in format.tokens else channels.words(part)
        for part in parts
        if part
    )


@pytest.mark.parametrize(
    ("format", "reply", "expected"),
    [
        (HARMONY, f"<|channel|>analysis<|message|>Hm.{NEXT}final<|message|>Hi.", THOUGHT + "Hi."),
        (
            HARMONY,
            f"<|channel|>analysis<|message|>Hm.{NEXT}analysis<|message|>Yes.{NEXT}final<|message|>Hi.",
            "<think>\nHm.\n\nYes.\n</think>\n\nHi.",
        ),
        (HARMONY, f"<|channel|>commentary<|message|>One.{NEXT}final<|message|>Two.", "One.\n\nTwo."),
        (
            KIMI,
            "<|open|>think<|sep|>Hm.<|close|>think<|sep|><|open|>response<|sep|>Hi.<|close|>response<|sep|>"
            ' \n<|open|>message role="user"<|sep|>',
            THOUGHT + "Hi.\n\n",
        ),
    ],
)
def test_thoughts_and_answers(format: ChannelFormat, reply: str, expected: str) -> None:
    assert shown(format, reply) == expected


@pytest.mark.parametrize(
    ("format", "reply", "expected"),
    [
        (
            HARMONY,
            f"<|channel|>analysis<|message|>Hm.{NEXT.removesuffix('<|channel|>')} to=functions.f<|channel|>"
            f"commentary<|message|>{{}}{NEXT}commentary to=functions.g<|message|>{{}}<|end|>",
            f"{THOUGHT}{CALL_BEGIN}f\n{{}}{CALL_END}{CALL_BEGIN}g\n{{}}{CALL_END}",
        ),
        (KIMI, f"<|open|>think<|sep|>Hm.<|close|>think<|sep|>{KIMI_CALL} rest", THOUGHT + KIMI_CALL),
        (
            SOLAR,
            "<|think|>Hm.<|end|><|begin|>assistant<|tool_calls|>[x]<|end|><|begin|>assistant<|content|>Hi.",
            THOUGHT + "[x]\n\nHi.",
        ),
    ],
)
def test_calls(format: ChannelFormat, reply: str, expected: str) -> None:
    assert shown(format, reply, calls=True) == expected


@pytest.mark.parametrize("format", [HARMONY, KIMI])
def test_a_control_token_that_is_not_known_changes_nothing(format: ChannelFormat) -> None:
    channels = Channels(tokens(format))
    assert (channels.words("a"), channels.control(99), channels.words("b")) == ("a", "", "b")


@pytest.mark.parametrize(
    ("ids", "place"),
    [([], 0), ([9, 9], 2), ([0, 9], 0), ([9, 0, 9], 1), ([9, 0, 9, 0, 9, 0, 9], 3), ([1, 9, 1, 9], 4)],
)
def test_where_to_read_a_prompt_from(ids: list[int], place: int) -> None:
    assert tokens(HARMONY).beginning(ids) == place
