"""The first use of a GPU: kernels prove themselves, are remembered, and torch's own operations take the
place of those that are wrong.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engine.backends.cuda.backend import CudaBackend
from engine.backends.cuda.codegen.targets import BuildError
from engine.backends.cuda.kernels.pointwise import add_call
from engine.backends.cuda.lowering.call import Runtime
from engine.backends.cuda.proof import proven
from engine.backends.cuda.proof.trial import Trial
from engine.backends.graph.buffers import Buffer
from engine.chat import LocalChat, finished, open_chat
from engine.core import ChatRequest, Loading, Message
from engine.drain import drain
from engine.errors import DeviceLost, EngineError, NotEnoughMemory, NotFinite
from engine.models.proof import cases, first_use
from engine.settings import AdapterSettings, CacheSettings, LoadSettings, StopSettings
from tests.engine.models.architectures import case_folders
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.families import rwkv6_files, rwkv_files, test_baichuan, test_gear, test_iquest_loop
from tests.engine.models.lora.test_lora import write_adapter
from tests.engine.models.oracle import load
from tests.engine.weights.packed.test_packed_folders import PACKINGS
from tests.simt.backend.test_replies import ASK, DRAWN, Reply
from tests.simt.fake import FakeDevice
from tests.simt.fake_machine import FakeMachine, install
from tests.tiny import TINY, write_gguf
from tests.tiny_packed import SIZES, write_packed

CACHE = CacheSettings(context_length=512, memory=1)
AUTO = LoadSettings()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("m") / "m.gguf", TINY, "Q4_0")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeMachine:
    """One GPU of which something can be remembered."""
    monkeypatch.setattr(proven, "cache_dir", lambda: tmp_path / "cache")
    monkeypatch.setattr(first_use, "SECONDS", 1000.0)  # another program may be at it
    monkeypatch.setattr(cases, "ATTENTION_STEPS", (1, 3, 8, 20, 1, 70))  # shorter ones, for NumPy is slow
    made = install(monkeypatch, FakeDevice())
    made.devices[0].identity = "fake 0 with its driver"
    return made


def loaded(path: Path, load: LoadSettings = AUTO) -> tuple[LocalChat, list[Loading]]:
    events, loading = list[Loading](), open_chat(path, load, CACHE)
    return drain(loading, events.append), events


def checks(events: list[Loading]) -> int:
    return sum(event.stage == first_use.STAGE for event in events)


@pytest.mark.parametrize(
    "name",
    [
        "GPT-2",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in (
                "OPT, 350M: norms after the sums, narrower embeddings", "GPT-BigCode", "Bloom", "Orion",
                "Mamba-2", "LFM2", "Gemma 3n", "DeepSeek V2", "GPT-OSS", "Llama 4", "Qwen 3.5",
                "Hunyuan 4", "Muse Spark", "Dots 3 Note", "DeepSeek V3.2", "GLM-5", "MiniMax-M3", "Qwen 4",
                "Mistral Large 4", "Mamba", "Ling 3", "RecurrentGemma", "Zamba", "Zamba 2", "JetMoE",
                "DiffLlama", "HRM-Text", "Dory", "Inkling", "Inkling 2", "Inkling 2 Mini", "ZAYA1",
                "GLM-5 next", "RWKV-4", "DeepSeek V4",
            )
        ),
    ],
)  # fmt: skip
def test_architectures_pass(
    machine: FakeMachine, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    """Its own small model among the cases, however few positions it has."""
    backend = CudaBackend(machine.devices)
    load(case_folders(tmp_path_factory)(BY_NAME[name]), backend).close()
    assert backend.notice == "", backend.report
    assert proven.known(machine.devices[0].identity).passed


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape", [rwkv6_files.Shape(halved=3), rwkv6_files.Shape(groups=2), rwkv_files.Shape()]
)
def test_rwkv_passes(machine: FakeMachine, tmp_path: Path, shape: Any) -> None:
    """Of files that transformers lacks."""
    files = rwkv_files if isinstance(shape, rwkv_files.Shape) else rwkv6_files
    backend = CudaBackend(machine.devices)
    load(files.write_gguf(tmp_path / "m.gguf", shape, files.tensors(shape)), backend).close()
    assert backend.notice == "", backend.report
    assert any("generalised_delta" in name for name in proven.known(machine.devices[0].identity).passed)


@pytest.mark.slow
@pytest.mark.parametrize("family", [test_iquest_loop, test_gear, test_baichuan])
def test_families_pass(machine: FakeMachine, tmp_path: Path, family: ModuleType) -> None:
    """Those that transformers lacks."""
    backend = CudaBackend(machine.devices)
    load(family.write_folder(tmp_path / "m"), backend).close()
    assert backend.notice == "", backend.report


@pytest.mark.slow
def test_a_short_last_group(machine: FakeMachine, tmp_path: Path) -> None:
    """No matrix of the cases' sizes has its groups."""
    write_packed(tmp_path / "m", PACKINGS["gptq, a short last group"], SIZES.but(layers=1), head=True)
    backend = CudaBackend(machine.devices)
    load(tmp_path / "m", backend).close()
    assert backend.notice == "", backend.report


@pytest.mark.slow
def test_proved_once(machine: FakeMachine, path: Path) -> None:
    """With progress, at the first use alone; afterwards no kernel of the model is unproven."""
    chat, events = loaded(path)
    assert checks(events) > 3
    assert (chat.info.backend, chat.info.notice) == ("cuda", "")
    assert machine.backends[0].to_prove(chat.generator.model.forward, "auto") == []
    assert proven.known(machine.devices[0].identity).untried == set()
    expected = Reply(chat, tokens=8).reported
    chat.close()
    chat, events = loaded(path)
    assert checks(events) == 0
    assert Reply(chat, tokens=8).reported == expected
    chat.close()
    assert machine.taken == [0]
    machine.devices[0].identity = "fake 0 with another driver"
    assert machine.backends[0].to_prove is not None
    assert proven.known("fake 0 with another driver") == proven.Proven()


def zeros(work: Callable[[], None]) -> None:
    """The kernel does nothing."""


KERNELS = (
    "linear_q40", "embed_q40", "unpack_q40", "rms_norm", "rope", "attend", "combine", "kv_write", "gather_",
    "gated", "gemm_fp16", "gemm_before", "gemm_after", "pack_fp16", "sample_draw", "sample_sort",
)  # fmt: skip


@pytest.fixture(scope="module")
def exact(path: Path) -> tuple[Any, ...]:
    """What the reference writes."""
    chat = finished(
        open_chat(
            path, LoadSettings(backend="reference"), CacheSettings(context_length=512, memory=1, dtype="fp16")
        )
    )
    reported = Reply(chat, tokens=10)
    chat.close()
    return tuple(reported.ids)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("how", "name"),
    [
        ("wrong", "attend"), ("refused", "linear_q40"),
        *(pytest.param(*each, marks=pytest.mark.slow)
          for each in (("wrong", "linear_q40"), ("wrong", "sample_draw"), ("refused", "attend"),
          ("refused", "sample_draw"))),
    ],
)  # fmt: skip
def test_a_kernel_that_is_wrong_or_does_not_run(
    machine: FakeMachine, path: Path, exact: tuple[Any, ...], name: str, how: str
) -> None:
    """torch's own operations on that GPU take its place: right answers, a sentence, a report; and the next
    loading proves anew.
    """
    device = machine.devices[0]
    if how == "wrong":
        device.broken[name] = zeros
    else:
        device.refused = name
    chat, events = loaded(path)
    assert checks(events) > 1
    assert (chat.info.backend, chat.info.where, chat.generator.model.backend.name) == (
        "cuda",
        "fake 0",
        "torch",
    )
    assert chat.info.notice.startswith("On fake 0, ")
    assert "PyTorch's own operations are used instead: replies are correct, but slow." in chat.info.notice
    assert "FAILED" in chat.info.report
    assert any(kernel.name in chat.info.report for kernel in device.prepared if kernel.name.startswith(name))
    launches = device.graph_launches
    assert tuple(Reply(chat, tokens=10).ids) == exact
    assert device.graph_launches == launches
    chat.close()
    assert (machine.taken, device.kept) == ([0], 0)
    assert not any(kernel.startswith(name) for kernel in proven.known(device.identity).passed)
    if how == "wrong" and name == "attend":
        device.broken.clear()
        chat, events = loaded(path)  # the fault has gone
        assert checks(events) > 1
        assert (chat.info.notice, chat.generator.model.backend.name) == ("", "cuda")
        chat.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_has_a_case_that_finds_it_wrong(machine: FakeMachine, path: Path, name: str) -> None:
    device = machine.devices[0]
    device.broken[name] = zeros
    loading = open_chat(path, AUTO, CACHE)
    while not machine.backends or not machine.backends[0].notice:
        next(loading)
    assert any(kernel.name.startswith(name) for kernel in device.prepared)
    loading.close()
    assert machine.taken == [0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gemm_expert_biases", "columns"])
def test_kernels_that_few_models_need(
    machine: FakeMachine, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    """Those of sinks, and of experts with biases, have a case, too."""
    machine.devices[0].broken[name] = zeros
    loading = open_chat(
        case_folders(tmp_path_factory)(BY_NAME["GPT-OSS"]), AUTO, CacheSettings(context_length=64, memory=1)
    )
    while not machine.backends or not machine.backends[0].notice:
        next(loading)
    assert name in machine.backends[0].report
    loading.close()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["q6", "q4"])
def test_every_type_of_cache_can_be_proved(machine: FakeMachine, path: Path, dtype: str) -> None:
    """One that is another for keys than for values, too."""
    chat = finished(open_chat(path, AUTO, replace(CACHE, dtype=dtype)))
    assert (chat.info.backend, chat.info.notice) == ("cuda", "")
    assert proven.known(machine.devices[0].identity).untried == set()
    chat.close()


@pytest.mark.slow
def test_adapters_bring_kernels_that_prove_themselves(
    machine: FakeMachine, path: Path, tmp_path: Path
) -> None:
    """When they are put on; programs that are recorded already are not trusted where one is wrong."""
    adapter = AdapterSettings((str(write_adapter(tmp_path / "adapter")),))
    chat, _ = loaded(path)
    assert not any(
        name.startswith("linear_fp32") for name in proven.known(machine.devices[0].identity).passed
    )
    reply = Reply(chat, tokens=4, adapters=adapter)
    assert checks([event for event in reply.events if isinstance(event, Loading)]) > 1
    known = proven.known(machine.devices[0].identity)
    assert any(name.startswith("linear_fp32") for name in known.passed)
    assert known.untried == set()
    chat.close()
    proven.forget(machine.devices[0].identity)
    machine.devices[0].broken["linear_fp32"] = zeros
    chat, _ = loaded(path)
    assert chat.info.notice == ""
    with pytest.raises(DeviceLost, match="Reload the model") as found:
        Reply(chat, tokens=4, adapters=adapter)
    assert "FAILED" in found.value.report
    chat.close()
    assert machine.taken == [0]


def test_what_is_only_recorded_has_not_proved_itself(machine: FakeMachine) -> None:
    (device,) = machine.devices
    noted = Trial(device, frozenset(), 100).narrowed()
    x, y, z = Buffer(64), Buffer(64), Buffer(64)
    call, memory = add_call(x, y, z, 1.0), device.zeros(1024)
    list(noted.prepare([call.kernel]))
    values = [
        int(memory.data_ptr()) if isinstance(value, Buffer) else 1 if isinstance(value, Runtime) else value
        for value in call.arguments
    ]
    graph = noted.record(lambda: noted.launch(call.kernel, call.blocks(1), values))
    assert noted.ran == set()
    graph.launch()
    assert noted.ran == {"add"}
    device.synchronize()


@pytest.mark.slow
def test_a_kernel_that_cannot_be_compiled(machine: FakeMachine, path: Path, exact: tuple[Any, ...]) -> None:
    def prepare(kernels: Any) -> Any:
        raise BuildError("The kernel kv_write_fp16_fp16_16 cannot be compiled: ptxas stopped.")
        yield

    machine.devices[0].prepare = prepare  # type: ignore[method-assign]
    chat, _ = loaded(path)
    assert chat.generator.model.backend.name == "torch"
    assert "a kernel that this model needs cannot be used" in chat.info.notice
    assert chat.info.report == "The kernel kv_write_fp16_fp16_16 cannot be compiled: ptxas stopped."
    assert tuple(Reply(chat, tokens=10).ids) == exact
    chat.close()


@pytest.mark.slow
def test_a_kernel_that_stops_the_device(machine: FakeMachine, path: Path, exact: tuple[Any, ...]) -> None:
    """The processor takes the model at once; at the next start of the program that kernel is not tried
    again.
    """
    device = machine.devices[0]

    def falls(work: Callable[[], None]) -> None:
        device.lost = True
        device.check()

    device.broken["attend"] = falls
    chat, _ = loaded(path)
    assert chat.info.backend == "cpu"
    assert "could not be used: The GPU stopped working: it fell off the bus" in chat.info.notice
    chat.close()
    device.lost = False
    chat, events = loaded(path)
    assert checks(events) == 0
    assert (chat.info.backend, chat.generator.model.backend.name) == ("cuda", "torch")
    assert "stopped this GPU before" in chat.info.notice
    assert tuple(Reply(chat, tokens=10).ids) == exact
    chat.close()
    assert machine.taken == [0]


@pytest.mark.slow
def test_pages_go_to_the_disk_and_come_back_with_torch(
    machine: FakeMachine, path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine.devices[0].broken["attend"] = zeros
    monkeypatch.setattr("engine.chat.local.cache_dir", lambda: tmp_path)
    kept = replace(CACHE, keep_on_disk=True)
    messages = (Message("user", "the dog and the fox " * 70),)
    reported = []
    for _ in range(2):
        chat = finished(open_chat(path, AUTO, kept))
        reply = Reply(chat, messages, tokens=6)
        reported.append(reply.reported)
        chat.close()
    assert reply.stats.cached_tokens >= 256
    assert reported[0] == reported[1]


@pytest.mark.slow
def test_the_time_of_a_proof_is_bounded(
    machine: FakeMachine, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left is tried at the next loading."""
    ticks = iter(range(0, 10_000, 3))
    monkeypatch.setattr(first_use, "SECONDS", 5.0)
    monkeypatch.setattr(first_use, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    chat, _ = loaded(path)
    (trial,) = machine.backends[0].to_prove(chat.generator.model.forward, "auto")
    assert chat.info.notice == ""
    before = trial.left
    chat.close()
    chat, _ = loaded(path)
    left = machine.backends[1].to_prove(chat.generator.model.forward, "auto")
    assert not left or left[0].left < before
    chat.close()


@pytest.mark.slow
def test_no_memory_for_a_proof(machine: FakeMachine, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not tried for that is tried at the next loading, and is not taken for what no case runs."""

    def none_left(*_: Any) -> Any:
        raise NotEnoughMemory("fake 0 has no room.")

    with monkeypatch.context() as patched:
        patched.setattr(CudaBackend, "new_cache", none_left)
        chat, _ = loaded(path)
        assert chat.info.backend == "cpu"  # nor is there room for the context
        chat.close()
    assert proven.known(machine.devices[0].identity).untried == set()
    chat, events = loaded(path)
    assert checks(events) > 1
    assert proven.known(machine.devices[0].identity).passed
    chat.close()


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("broken", [False, True])
def test_logits_that_are_no_numbers(machine: FakeMachine, path: Path, broken: bool) -> None:
    """The reply ends with a sentence, and the kernels are checked again."""
    device = machine.devices[0]
    chat, _ = loaded(path)
    program = chat.generator.cache.program
    run = program.run
    device.broken["linear_q40" if broken else "nothing of this name"] = zeros
    program.run = lambda step: run(step) * np.float32(np.nan)  # type: ignore[method-assign]
    events = list[Any]()
    stream = chat.stream(ChatRequest(ASK, DRAWN, StopSettings(max_tokens=5)), threading.Event())
    with pytest.raises(EngineError) as found:
        events.extend(stream)
    assert checks([event for event in events if isinstance(event, Loading)]) > 1
    assert isinstance(found.value, DeviceLost if broken else NotFinite)
    assert (
        "kernels now give wrong results. Reload the model" if broken else "checked again and are correct"
    ) in str(found.value)
    chat.close()
    assert machine.taken == [0]


@pytest.mark.slow
def test_logits_that_are_no_numbers_where_torch_does_it_all(machine: FakeMachine, path: Path) -> None:
    """No kernel is to blame."""
    machine.devices[0].broken["attend"] = zeros
    chat, _ = loaded(path)
    run = chat.generator.cache.program.run
    chat.generator.cache.program.run = lambda step: run(step) * np.float32(np.nan)  # type: ignore[method-assign]
    with pytest.raises(NotFinite, match="not finite numbers"):
        Reply(chat, tokens=3)
    chat.close()


def test_logits_that_are_no_numbers_elsewhere(path: Path) -> None:
    """On the processor there is nothing to be checked."""
    chat = finished(open_chat(path, LoadSettings(backend="reference"), CACHE))
    run = chat.generator.cache.program.run
    chat.generator.cache.program.run = lambda step: run(step) * np.float32(np.nan)  # type: ignore[method-assign]
    with pytest.raises(NotFinite, match="not finite numbers"):
        Reply(chat, tokens=3)
    chat.close()


def test_what_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By device, driver and program; a damaged file is none, and one that cannot be written is no trouble."""
    monkeypatch.setattr(proven, "cache_dir", lambda: tmp_path / "cache")
    proven.remember("one", passed=["a", "b"])
    proven.remember("one", crashed=["c"])
    proven.remember("two", passed=["d"])
    assert proven.known("one") == proven.Proven(frozenset("ab"), frozenset("c"))
    proven.forget("two")
    assert proven.known("two") == proven.Proven()
    proven.remember("two", passed=["a", "b"], untried=["c"])
    proven.forget("two", ["a", "c"])
    assert proven.known("two") == proven.Proven(frozenset("b"))
    monkeypatch.setattr(proven, "sources", lambda: "another version of the program")
    assert proven.known("one") == proven.Proven()
    for number in range(40):
        proven.remember(f"device {number}", passed=["a"])
    assert proven.known("device 39").passed
    assert not proven.known("device 2").passed
    for text in ("[1]", "{", '{"x": 3}', ""):
        (tmp_path / "cache" / proven.FILE_NAME).write_text(text)
        assert proven.known("device 39") == proven.Proven()
    monkeypatch.setattr(proven, "cache_dir", lambda: tmp_path / "cache" / proven.FILE_NAME / "below a file")
    proven.remember("one", passed=["a"])
