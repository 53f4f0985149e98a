"""Command `bench` over a model that takes a second for each pass: what it runs, and what it says."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.__main__ import main
from engine.backends.cpu.runtime import bandwidth
from engine.cli import bench
from tests.tiny import write_gguf

CLOCK = itertools.count()


class FakeCache:
    """A cache of 16 rows; `runs` are the first position and the tokens of each pass."""

    rows = 16

    def __init__(self, where: str = "") -> None:
        backend = SimpleNamespace(name="cpu", where=where)
        self.model = SimpleNamespace(
            backend=backend, config=SimpleNamespace(vocab_size=99), weight_bytes_per_token=3_000_000
        )
        self.table = SimpleNamespace(open=lambda _ids: SimpleNamespace(close=lambda: None))
        self.runs: list[tuple[int, int]] = []
        self._at = 0

    def rewind(self, _lease: object, start: int) -> None:
        self._at = start

    def run(self, _lease: object, ids: Sequence[int]) -> None:
        assert all(0 <= id < 99 for id in ids)
        self.runs.append((self._at, len(ids)))
        self._at += len(ids)


class FakePeer:
    """Another engine that takes a quarter of a second."""

    name, version = "llama.cpp", "9.9"

    def __init__(self, path: Path, threads: int, context_length: int) -> None:
        assert (path.name, threads, context_length) == ("m.gguf", 2, 40)

    def run(self, _ids: Sequence[int], _start: int, *, one_by_one: bool) -> float:
        return 0.25

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> FakeCache:
    found = FakeCache()
    chat = SimpleNamespace(generator=SimpleNamespace(cache=found), close=lambda: None)
    monkeypatch.setattr(bench, "load", lambda *_unused: chat)
    monkeypatch.setattr(bench, "LlamaCpp", FakePeer)
    monkeypatch.setattr(bandwidth, "read_bandwidth", lambda _threads: 30e6)
    monkeypatch.setattr(bench, "time", SimpleNamespace(perf_counter=lambda: float(next(CLOCK))))
    return found


@pytest.fixture
def sizes(tmp_path: Path) -> list[str]:
    """The arguments of a run: a prompt of 40 tokens, and 5 tokens after 20 others."""
    path = write_gguf(tmp_path / "m.gguf")
    numbers = "--prompt-tokens 40 --new-tokens 5 --depth 20 --repeat 3 --threads 2 --vs llama.cpp"
    return ["bench", str(path), *numbers.split()]


def test_what_is_run(cache: FakeCache, sizes: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*sizes, "--json"]) == 0
    warm, prompt, depth = [(0, 16), (16, 16)], [(0, 16), (16, 16), (32, 8)], [(0, 16), (16, 4)]
    assert cache.runs == warm + (prompt + depth + [(20 + at, 1) for at in range(5)]) * 3
    assert json.loads(capsys.readouterr().out) == {
        "device": "cpu", "where": "", "threads": 2, "prefill_tokens_per_second": 40.0,
        "decode_tokens_per_second": 5.0, "weight_bytes_per_token": 3_000_000,
        "read_bandwidth_bytes_per_second": 30e6, "bandwidth_fraction": 0.5,
        "peers": [
            {
                "name": "llama.cpp", "version": "9.9", "prefill_tokens_per_second": 160.0,
                "decode_tokens_per_second": 20.0, "prefill_ratio": 0.25, "decode_ratio": 0.25,
            }
        ],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("where", "head", "rate"),
    [
        ("", "cpu, 2 threads", "50 % of the read bandwidth of 0.0 GB/s (3.0 MB a token)"),
        ("Zen 5", "cpu, Zen 5", "50 % of the copy bandwidth of 0.0 GB/s (3.0 MB a token)"),
    ],
)
def test_what_it_says(
    cache: FakeCache, sizes: list[str], capsys: pytest.CaptureFixture[str], where: str, head: str, rate: str
) -> None:
    cache.model.backend.where = where
    assert main(sizes) == 0
    assert capsys.readouterr().out.splitlines() == [
        head,
        "prefill        40.0 tokens/s",
        f"decode          5.0 tokens/s, {rate}",
        "llama.cpp 9.9: prefill 160.0 tokens/s (here 0.25 times that), decode 20.0 tokens/s (here 0.25 times "
        "that)",
    ]
