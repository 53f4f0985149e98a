"""The CUDA bench runs end to end on a device that is none, at sizes that measure nothing, and judges its
bars.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.backends import choice
from tests.bench import bench_cuda
from tests.bench.bench_cuda import TOY, Line, facts, main, measure, table, write
from tests.bench.cuda_kit import KINDS, SHAPES, Made
from tests.simt.fake import FakeDevice


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("kind", KINDS)
def test_toy(kind: str) -> None:
    device = FakeDevice()
    lines = measure(device, SHAPES["toy"], kind, TOY, None)
    assert [line.what for line in lines] == [
        "copy bandwidth", "matmul rate", "decode at 0", "decode at 24", "prompt of 20", "verify 5",
        "host work a step",
    ]  # fmt: skip
    assert all(line.value > 0 for line in lines)
    assert device.done > 0
    assert device.graph_launches > 0


@pytest.mark.slow
def test_toys_are_never_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        bench_cuda, "measure", lambda *_: [Line("toy", "bf16", "decode at 0", 1.0, "tokens/s")]
    )
    assert main(["--toy", "--results", str(tmp_path)], FakeDevice()) == 0
    assert "written" not in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    with pytest.raises(SystemExit):  # only a GPU passes for one
        main(["1B", "--results", str(tmp_path)], FakeDevice())
    with pytest.raises(SystemExit):
        main(["9B"])


def test_bars_and_files(tmp_path: Path) -> None:
    lines = [
        Line("8B", "bf16", "decode at 0", 200.0, "tokens/s", "of the copy bandwidth", 0.81, 0.80),
        Line("8B", "bf16", "verify 5", 6.0, "ms", "of one token", 1.3, 1.25, True),
        Line("8B", "bf16", "host work a step", 30.0, "us", bar=40.0, at_most=True, rival=15.0),
        Line("8B", "bf16", "copy bandwidth", 4000.0, "GB/s"),
    ]
    assert [line.met for line in lines] == [True, False, True, None]
    text = table(lines, judged=True).splitlines()
    assert [line.rsplit(None, 1)[-1] for line in text[:3]] == ["met", "MISSED", "met"]
    assert "transformers 15.0, 2.00 times that" in text[2]
    assert "met" not in table(lines, judged=False)
    file = write(tmp_path / "results", facts(FakeDevice()), lines, judged=True)
    assert "card: fake 0" in file.read_text("utf-8")
    assert file.with_suffix(".json").is_file()


def test_layers_share_their_bytes() -> None:
    made = Made(SHAPES["toy"], "bf16")
    first, second = (made.tensors[f"model.layers.{layer}.mlp.up_proj.weight"] for layer in (0, 1))
    assert first.data.ctypes.data == second.data.ctypes.data or bool((first.data == second.data).all())
    assert sum(len(part) for part in made._bytes.values()) < sum(
        tensor.nbytes for tensor in made.tensors.values()
    )


def test_without_a_gpu_one_sentence_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        choice, "usable_gpus", lambda: choice.Usable((), "No NVIDIA driver was found on this machine.")
    )
    assert main(["1B"]) == 1
    assert "No NVIDIA driver was found" in capsys.readouterr().err


@pytest.mark.slow
def test_the_rival_runs_at_toy_sizes() -> None:
    pytest.importorskip("transformers")
    from tests.bench.cuda_transformers import transformers_seconds

    found = transformers_seconds(SHAPES["toy"], TOY, "cpu")
    assert set(found) == {"decode at 0", "decode at 24", "prompt of 20"}
    assert all(seconds > 0 for seconds in found.values())
