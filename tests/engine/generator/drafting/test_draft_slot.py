"""The draft model of a chat: which are refused, and that nothing is left of one that did not come."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path
from unittest import mock

import pytest

from engine.core import Loading
from engine.errors import BadSetting, Cancelled, ModelNotFound
from engine.generator.drafting.draft_slot import DraftSlot
from engine.models.base import Model
from engine.models.open_text import open_tokenizer
from engine.models.paged import PagedCache
from engine.settings import LoadSettings, SpeculationSettings
from engine.weights.checkpoint import open_checkpoint
from tests.engine.generator.fakes import make, tokenizer
from tests.tiny import write_gguf


def wanting(path: Path | str) -> SpeculationSettings:
    return SpeculationSettings(method="model", draft_model=str(path))


def test_a_model_of_another_vocabulary_and_none_at_all_are_refused(tmp_path: Path) -> None:
    generator, _ = make()
    slot = DraftSlot(generator.drafters, tokenizer(), LoadSettings(backend="reference"))
    refused = {
        str(write_gguf(tmp_path / "tiny.gguf")): r"^tiny\.gguf cannot draft for this model: \w",
        "": "no draft model is chosen",
    }
    for expected, words in refused.items():
        with pytest.raises(BadSetting, match=words):
            list(slot.fit(wanting(expected), threading.Event()))
        assert not generator.drafters.has_model
    with pytest.raises(ModelNotFound):
        list(slot.fit(wanting(tmp_path / "nothing.gguf"), threading.Event()))


def test_loading_can_be_stopped_and_begun_again(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf")
    with closing(open_checkpoint(path)) as checkpoint:
        own = open_tokenizer(checkpoint)
    generator, _ = make()
    slot, stop = DraftSlot(generator.drafters, own, LoadSettings(backend="reference")), threading.Event()
    loading = slot.fit(wanting(path), stop)
    first = next(loading)
    assert first.stage.startswith("Draft model: ")
    assert first.of_draft
    stop.set()
    with pytest.raises(Cancelled):
        list(loading)
    assert not generator.drafters.has_model
    stop.clear()
    reported = list(slot.fit(wanting(path), stop))
    assert reported
    assert all(isinstance(event, Loading) for event in reported)
    assert generator.drafters.has_model
    assert list(slot.fit(wanting(path), stop)) == [], "it is there"
    assert slot.holds(wanting(path))
    assert slot.holds(SpeculationSettings(method="ngram"))
    assert not slot.holds(wanting(tmp_path / "other.gguf"))
    with (
        mock.patch.object(Model, "close", autospec=True, side_effect=Model.close) as model_closed,
        mock.patch.object(PagedCache, "close", autospec=True, side_effect=PagedCache.close) as cache_closed,
    ):
        assert list(slot.fit(SpeculationSettings(method="ngram", draft_model=str(path)), stop)) == []
    assert not generator.drafters.has_model
    assert (model_closed.call_count, cache_closed.call_count) == (1, 1)
