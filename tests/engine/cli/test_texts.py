"""What commands write on a terminal: progress that is overwritten, replies with their figures, tables."""

from __future__ import annotations

import io
from contextlib import redirect_stderr
from typing import Any

import numpy as np
import pytest

from engine.cli.bench import BENCH
from engine.cli.command import Console
from engine.cli.info import INFO
from engine.cli.logits import log_softmax
from engine.cli.profile import show_profile
from engine.cli.run import RUN, collect
from engine.core import Done, Loading, Prefill, Stats, Text, Trimmed
from engine.errors import BadCheckpoint


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_one_line_that_notes_and_answers_clear() -> None:
    with redirect_stderr(Terminal()) as terminal:
        console = Console(json=False)
        console.loading(Loading("Loading", 1, 2))
        console.loading(Loading("Ready", 1, 1))
        assert terminal.getvalue().rstrip() == "\rLoading 50 %\rReady"
        console.note("One\nword.")
        assert terminal.getvalue().endswith("\r" + " " * 5 + "\rOne word.\n")
        written = terminal.getvalue()
        console.clear()
        assert terminal.getvalue() == written
    with redirect_stderr(io.StringIO()) as file:
        Console(json=False).loading(Loading("Loading", 1, 3))
        assert file.getvalue() == ""


def test_json_alone_is_written_with_json(capsys: pytest.CaptureFixture[str]) -> None:
    with redirect_stderr(Terminal()) as terminal:
        console = Console(json=True)
        console.loading(Loading("Loading", 1, 3))
        console.note("A note.")
        console.write("text")
    assert (terminal.getvalue(), capsys.readouterr().out) == ("", "")


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (Trimmed(1), "the oldest message was left out."),
        (Trimmed(3), "the 3 oldest messages were left out."),
        (Trimmed(0, 1), "the first token was left out."),
        (Trimmed(0, 5), "the first 5 tokens were left out."),
    ],
)
def test_what_was_left_out_of_the_prompt_is_noted(event: Trimmed, words: str) -> None:
    with redirect_stderr(Terminal()) as terminal:
        collect(iter([Prefill(2, 4, 0), event, Done("max_tokens", "", Stats())]), Console(json=False))
    assert "Reading the prompt: 2 of 4 tokens" in terminal.getvalue()
    assert terminal.getvalue().endswith(words + "\n")


def test_the_figures_of_a_reply(capsys: pytest.CaptureFixture[str]) -> None:
    stats = Stats(
        prompt_tokens=1, prefill_tokens=1, new_tokens=9, prefill_seconds=0.25, decode_seconds=2.0, passes=4,
        drafted_tokens=6, accepted_tokens=4,
    )  # fmt: skip
    text = (Text("A ", (), suppressed="bad"), Text("b"), Done("max_tokens", "", stats))
    answer = collect(iter(text), Console(json=False))
    assert (answer["text"], capsys.readouterr().out, answer["suppressed"]) == ("A b", "A b", ["bad"])
    shown = RUN.show(answer)
    for words in (
        "prompt of 1 token read in 0.25 s", "reply of 0 tokens at 4.0 tokens/s", "2.00 tokens per pass",
        "1 banned phrase avoided",
    ):  # fmt: skip
        assert words in shown
    assert (stats.acceptance_rate, stats.prefill_tokens_per_second) == (4 / 6, 4.0)
    plain = RUN.show({**answer, "suppressed": [], "stats": {**answer["stats"], "drafted_tokens": 0}})
    assert "per pass" not in plain
    assert "avoided" not in plain
    one = Stats(new_tokens=1, passes=1, decode_seconds=1.0)
    assert (one.tokens_per_pass, one.decode_tokens_per_second, one.acceptance_rate) == (0.0, 0.0, 0.0)
    assert one.prefill_tokens_per_second == 0.0


def measured(**more: Any) -> dict[str, Any]:
    return {
        "device": "cpu", "where": "", "threads": 2, "prefill_tokens_per_second": 120.0,
        "decode_tokens_per_second": 30.0, "weight_bytes_per_token": 98.4e6, "bandwidth_fraction": 0.25,
        "read_bandwidth_bytes_per_second": 12e9, "peers": [], **more,
    }  # fmt: skip


def test_speeds_and_their_share_of_the_bandwidth() -> None:
    head, prefill, decode = BENCH.show(measured()).splitlines()
    assert head == "cpu, 2 threads"
    assert prefill.split() == ["prefill", "120.0", "tokens/s"]
    assert decode.split(None, 3)[3] == "25 % of the read bandwidth of 12.0 GB/s (98.4 MB a token)"
    beside = {
        "name": "llama.cpp", "version": "1", "prefill_tokens_per_second": 60.0, "prefill_ratio": 2.0,
        "decode_tokens_per_second": 20.0, "decode_ratio": 1.5,
    }  # fmt: skip
    lines = BENCH.show(measured(where="GPU 0", threads=1, peers=[beside])).splitlines()
    assert lines[0] == "cpu, GPU 0"
    assert "of the copy bandwidth" in lines[2]
    assert lines[3].startswith("llama.cpp 1: prefill 60.0 tokens/s (here 2.00 times that), decode 20.0 tok")
    assert lines[3].endswith("(here 1.50 times that)")


def test_a_profile_is_a_table_for_each_step() -> None:
    operations = [
        {"name": "linear", "seconds": 0.002, "share": 0.8, "count": 4, "bytes": 24e6,
         "bytes_per_second": 12e9, "bandwidth_fraction": 0.5},
        {"name": "norm", "seconds": 0.0005, "share": 0.2, "count": 1, "bytes": 0},
    ]  # fmt: skip
    step = {"rows": 1, "depth": 64, "seconds": 0.003, "seconds_in_operations": 0.0025, "stages": 7,
            "operations": operations}  # fmt: skip
    empty, heading, titles, linear, norm = show_profile({"decode": step})
    assert empty == ""
    assert heading == "decode step: rows 1, depth 64, 3.00 ms, of which 2.50 ms in operations (stages 7)"
    assert linear.split() == ["80.0", "%", "4", "2000", "500.0", "24.00", "12.0", "50", "%", "linear"]
    assert norm.split() == ["20.0", "%", "1", "500", "500.0", "norm"]
    assert titles.index("operations") == linear.index("linear") == norm.index("norm")
    assert show_profile({"prefill": step})[1].startswith("prefill step: rows 1, depth 64")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("weights_bytes", 3 << 29, "1,610,612,736 (1.50 GiB)"), ("bits_per_weight", 4.516, "4.52"),
        ("has_chat_template", True, "yes"), ("has_chat_template", False, "no"), ("verdict", "fits", "fits"),
        ("remarks", ["One.", "Two."], "One. Two."), ("stop_token_ids", [1, 20], "1, 20"),
        ("gpus", [], "none"), ("advised", {}, "nothing"), ("vocab_size", 49152, "49,152"),
        ("advised", {"temperature": 0.6, "top_k": 20}, "temperature 0.6, top_k 20"),
        ("architectures", {"hf": ["A", "B"], "gguf": ["a"]}, "hf A, B; gguf a"),
        ("licence", "MIT\nand more", "MIT and more"), ("kernel_level", None, "none"),
        ("gpus", [{"number": 1, "name": "H200", "free_bytes": 1 << 30, "memory_bytes": 3 << 30}],
         "1: H200 (1.0 of 3.0 GiB free)"),
    ],
)  # fmt: skip
def test_what_info_says_of_a_value(key: str, value: Any, words: str) -> None:
    assert INFO.show({key: value}).split(maxsplit=len(key.split("_")))[-1] == words


def test_info_leaves_out_reasons_and_remarks_that_are_none() -> None:
    shown = INFO.show({"gpus_reason": "", "remarks": [], "licence": "", "layers": 3})
    assert [line.split() for line in shown.splitlines()] == [["licence"], ["layers", "3"]]


def test_large_scores_do_not_overflow() -> None:
    scores = np.array([[2000.0, 1999.0], [-3000.0, -3000.0]], np.float32)
    expected = [[-np.log1p(np.exp(-1.0)), -1 - np.log1p(np.exp(-1.0))], [-np.log(2.0)] * 2]
    np.testing.assert_allclose(log_softmax(scores), expected)
    for wrong in (np.nan, np.inf):
        with pytest.raises(BadCheckpoint, match="not finite numbers"):
            log_softmax(np.array([[0.0, wrong]], np.float32))
