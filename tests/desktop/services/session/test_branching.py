"""When a reply can be continued from another of its tokens, and what is said if not; replies beside it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from desktop.services.engine.token_cache import model_key
from desktop.services.session.branching import branch_trouble
from desktop.services.session.several import ColumnSettings
from desktop.store.conversations.token_trace import TokenTrace
from engine.core import ModelInfo
from tests.desktop.fakes import ECHO_INFO
from tests.desktop.services.conftest import Harness

INFO = replace(ECHO_INFO, name="Echo", stop_token_ids=(2, 7))
OTHER = replace(INFO, name="Other")


def test_a_reply_beside_others_joins_them_where_they_are_and_what_is_shown_stays(talking: Harness) -> None:
    talking.ask("one")
    question = talking.ids()[0]
    assert talking.session.edit(question, "two")
    talking.until_idle()
    shown = talking.ids()
    number = talking.session.conversation
    talking.store.set_model_path(number, "/models/another.gguf")
    assert talking.session.several.write(number, question, [ColumnSettings()], beside=True)
    talking.until_idle()
    assert [message.content for message in talking.chat.requests[-1].messages] == ["one"]
    assert talking.ids() == shown
    assert talking.store.get(number).model_path == "/models/echo.gguf"


@pytest.mark.parametrize(
    ("model", "state", "writer", "words"),
    [
        (INFO, "idle", INFO, ""),
        (None, "no_model", INFO, "open a model first"),
        (None, "idle", INFO, "open a model first"),
        (INFO, "loading", INFO, "wait until the model is loaded"),
        (replace(INFO, lacks=(("continue", "It cannot go on."),)), "idle", INFO, "It cannot go on."),
        (INFO, "replying", INFO, "wait for the reply being written"),
        (INFO, "idle", None, "Several models wrote this reply"),
        (INFO, "idle", OTHER, "was written by “Other”. Load that model"),
        (INFO, "idle", replace(INFO, vocab_size=INFO.vocab_size + 1), "was written by another “Echo”."),
    ],
)
def test_from_where_a_reply_goes_on(
    model: ModelInfo | None, state: str, writer: ModelInfo | None, words: str
) -> None:
    trouble, stops = branch_trouble(model, state, TokenTrace(model_key(writer)))
    assert words in trouble
    assert bool(words) == bool(trouble)
    assert stops == (frozenset() if model is None or state == "loading" else {2, 7})
