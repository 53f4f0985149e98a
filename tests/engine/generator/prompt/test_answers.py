"""What is written where a reply in channels must come to its answer."""

from __future__ import annotations

import pytest

from engine.generator.prompt.answers import _header_end
from engine.text.template.channels import HARMONY, KIMI, MUSE, SOLAR, ChannelFormat

FINAL = "<|channel|>final<|message|>"
NEXT = "<|end|><|start|>assistant" + FINAL
KIMIS = "<|close|>think<|sep|><|open|>response<|sep|>"


@pytest.mark.parametrize(
    ("format", "message", "rest"),
    [
        (HARMONY, "", FINAL),
        (HARMONY, "<|channel|>", "final<|message|>"),
        (HARMONY, "<|channel|>fin", "al<|message|>"),
        (HARMONY, "<|channel|>analysis", "<|message|>" + NEXT),
        (HARMONY, "<|channel|>analysis<|message|>hm", NEXT),
        (HARMONY, "<|channel|>analysis<|message|>hm<|end|>", "<|start|>assistant" + FINAL),
        (HARMONY, "<|channel|>analysis<|message|>hm<|end|><|start|>assi", "stant" + FINAL),
        (HARMONY, "a long thought without a header " * 9, NEXT),
        (MUSE, "", MUSE.answer),
        (MUSE, " to=self<|message|>hm", "<|eom|><|start|>assistant" + MUSE.answer),
        (MUSE, " to=self<|message|>hm<|eom|><|start|>assist", "ant" + MUSE.answer),
        (SOLAR, " \n", SOLAR.answer),
        (SOLAR, "<|think|>hm<|end|>", "<|begin|>assistant" + SOLAR.answer),
        (KIMI, "", KIMIS),  # its prompts end inside a thought
        (KIMI, "hm", KIMIS),
        (KIMI, "hm<|close|>think<|se", KIMIS.removeprefix("<|close|>think<|se")),
    ],
)
def test_a_message_that_is_no_answer_is_ended(format: ChannelFormat, message: str, rest: str) -> None:
    assert _header_end(format).closing(message.encode()).decode() == rest
