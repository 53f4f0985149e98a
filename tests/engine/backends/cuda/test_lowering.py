"""A pass on a GPU: the launches of a layer, the devices of layers, what a step leaves allocated."""

from __future__ import annotations

import gc
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.backends.base import Program, Step
from engine.backends.cuda.backend import CudaBackend
from engine.backends.cuda.lowering.call import Call
from engine.backends.cuda.program import CudaProgram
from engine.backends.cuda.runtime.device_map import Split
from engine.backends.decode_loop import SamplingPlan
from engine.errors import EngineError
from engine.models import Model
from tests.engine.models.architectures import write_checkpoint
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.oracle import load
from tests.simt.fake import FakeDevice
from tests.simt.models import model_name
from tests.tiny import TINY, WIDE, write_folder, write_gguf


def launches(program: Program) -> Counter[str]:
    assert isinstance(program, CudaProgram)
    return Counter(model_name(call.kernel) for _, call in program._lowered.small if isinstance(call, Call))


def per_layer(path: Path) -> Counter[str]:
    """The launches of one layer: those of the whole pass but for the ones outside of layers, divided by the
    number of layers.
    """
    model = load(path, CudaBackend([FakeDevice()]))
    found = launches(model.record(model.new_cache(300), 8))
    outside = Counter({"unpack_codes.embed": 1, "rows.last_rows": 1})
    layers = model.config.layers
    model.close()
    return Counter({name: count // layers for name, count in (found - outside).items() if count >= layers})


def test_a_llama_layer_is_eleven_launches(tmp_path: Path) -> None:
    """Two norms that write packed activations, q with k and v, rope, the cache write, two of attention, the
    output projection, gate with up, the activation, down.
    """
    found = per_layer(write_gguf(tmp_path / "m.gguf", WIDE, "Q8_0"))
    assert sum(found.values()) == 11, found


def test_a_gemma_layer_fuses_its_four_norms(tmp_path: Path) -> None:
    """A sum and two norms in one launch, twice a layer; the last norm stands alone, since rows are picked
    before it. The norms of heads are part of rope.
    """
    model = load(write_checkpoint(BY_NAME["Gemma 3"], tmp_path / "model"), CudaBackend([FakeDevice()]))
    found = launches(model.record(model.new_cache(300), 8))
    assert found["norm.sum_norm"] == 2 * model.config.layers - 1
    assert not found["qk_norm.qk_norm"]
    model.close()


def make(tmp_path: Path) -> tuple[Model, FakeDevice]:
    device = FakeDevice()
    return load(write_folder(tmp_path / "m", TINY), CudaBackend([device])), device


def step(ids: list[int], position: int = 0, logit_rows: int = 1) -> Step:
    return Step(
        np.array(ids, np.int32),
        np.arange(position, position + len(ids), dtype=np.int32),
        np.array([0, 1], np.int32),
        logit_rows,
    )


def test_a_graph_for_each_number_of_rows(tmp_path: Path) -> None:
    """Captured once, then launched; the logits are the step's own."""
    model, device = make(tmp_path)
    program = model.record(model.new_cache(300), 32)
    first = program.run(step([5])).copy()
    again = program.run(step([5])).copy()
    assert device.graph_launches == 2
    np.testing.assert_array_equal(first, again)
    three = program.run(step([5, 6, 7], logit_rows=3)).copy()
    np.testing.assert_array_equal(three[:1], first)
    program.close()
    model.close()


def test_large_batches_agree_with_small_ones(tmp_path: Path) -> None:
    model, _ = make(tmp_path)
    program = model.record(model.new_cache(300, "fp32"), 32)
    ids = list(range(3, 30))
    rows = [program.run(step([token], at)).copy()[0] for at, token in enumerate(ids)]
    whole = program.run(step(ids, logit_rows=len(ids))).copy()
    np.testing.assert_allclose(whole, np.array(rows), atol=2e-3)
    program.close()
    model.close()


def test_more_logit_rows_than_in_any_step_before(tmp_path: Path) -> None:
    """The memory of logits grows on demand, and steps before and after give the same."""
    model, _ = make(tmp_path)
    program = model.record(model.new_cache(300), 64)
    ids = list(range(3, 43))
    one = program.run(step(ids)).copy()
    every = program.run(step(ids, logit_rows=40)).copy()
    np.testing.assert_allclose(every[-1:], one, atol=1e-4)  # torch adds up in another order for more rows
    np.testing.assert_array_equal(program.run(step(ids)), one)
    program.close()
    model.close()


def decode_two(program: Program) -> None:
    """Two tokens of a running reply."""
    assert isinstance(program, CudaProgram)
    decode_loop = program.decode_loop(SamplingPlan(program._lowered.logits.width, greedy=True))
    assert decode_loop is not None
    decode_loop.start([5], np.array([0, 1], np.int32), lambda place: 0.5)
    decode_loop.next(1)
    decode_loop.next(1)


@pytest.mark.parametrize("way", ["closed", "dropped", "fails", "lost"])
def test_a_program_leaves_no_cycle(tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However it ends, its memory is freed without the garbage collector."""
    assert not gc.isenabled()
    model, device = make(tmp_path)
    cache = model.new_cache(300)
    before = device.taken
    program: Any = model.record(cache, 32)
    decode_two(program)
    with monkeypatch.context() as patched:
        if way == "fails":
            patched.setattr(device, "step", lambda: (_ for _ in ()).throw(EngineError("misaligned")))
            with pytest.raises(EngineError, match="misaligned"):
                program.close()
        device.lost = way == "lost"
        if way in ("closed", "lost"):
            program.close()
        device.lost = False
    if way == "dropped":
        device.synchronize()
        del program
    assert device.taken == before
    if way == "fails":
        device._queue.clear()
    model.close()


@pytest.mark.parametrize(("free", "layers", "even", "expected"), [
    ((1000, 1000), 4, False, [0, 0, 0, 0]),
    ((500, 1000), 4, False, [0, 1, 1, 1]),
    ((400, 400, 400), 6, False, [0, 0, 0, 1, 1, 1]),
    ((1000, 1000), 4, True, [0, 0, 1, 1]),
    ((3000, 1000), 4, True, [0, 0, 0, 1]),
])  # fmt: skip
def test_layers_are_distributed(free: tuple[int, ...], layers: int, even: bool, expected: list[int]) -> None:
    """To the fewest devices whose free memory holds the weights and a quarter more."""
    split = Split([FakeDevice(total_memory=size, index=i) for i, size in enumerate(free)], even)
    for layer in range(layers):
        split.note(f"blk.{layer}.ffn_up.weight", 600 // layers)
    assert [split.layer(i) for i in range(layers)] == expected
    assert split.device_of("token_embd.weight") == 0
    assert split.device_of("output.weight") == expected[-1]
    assert split.device_of("model.layers.1.self_attn.q_proj.weight") == expected[1]


def test_stacks_count_as_often_as_they_have_matrices() -> None:
    split = Split([FakeDevice(total_memory=1000), FakeDevice(total_memory=1000, index=1)])
    for layer in range(2):
        for _ in range(8):
            split.note(f"blk.{layer}.ffn_up_exps.weight", 100)
    assert split.used == 2
