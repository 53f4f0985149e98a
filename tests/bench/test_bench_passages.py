"""The measure of passages: its questions have answers, and its shares count them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench import bench_passages
from tests.desktop.embedders import FakeEmbedder

OPEN = "open_embedder"


def test_shares_count_the_answers_among_the_first_pieces() -> None:
    pieces = [str(number) for number in range(10)]
    questions = [bench_passages.Asked("?", pieces, frozenset(answers)) for answers in ({0}, {2, 9}, {5})]
    orders = [list(range(10))] * 3
    assert bench_passages.shares(questions, orders) == {"1": 0.333, "3": 0.667, "8": 1.0}


def test_it_measures_words_meaning_and_both(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(bench_passages.asked()) >= 20
    text = "A dull line. " * 60 + "\n\n" + "A kitten sleeps. " * 40 + "\n\n" + "A boat sails. " * 50
    (tmp_path / "a.md").write_text(text)
    monkeypatch.setattr(bench_passages, "ROOT", tmp_path)
    questions = (("The feline?", "kitten"), ("What is dull?", "A dull line"), ("Lost?", "no such words"))
    monkeypatch.setattr(bench_passages, "QUESTIONS", {"a.md": questions})
    fake = FakeEmbedder()
    monkeypatch.setattr(bench_passages, OPEN, fake.open)
    assert bench_passages.main(["model.gguf"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["questions"], found["model"]) == (2, "model.gguf")
    assert found["words"]["1"] == 0.5  # the word "feline" stands nowhere
    assert found["meaning"]["1"] == found["both"]["1"] == 1.0
    # the vectors of "Thanks!" and of what has no subject are the same; two others are too long
    assert found["taken for questions"] == {"questions": 0.5, "small talk": 0.115}
    assert fake.closed == len(fake.opened) == 2
