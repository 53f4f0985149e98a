"""Loading onto devices: what fits where, what is done when one has too little room after all, and replies
that one breaks off.
"""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import engine.backends
from engine.backends import choice
from engine.backends.base import Step
from engine.backends.choice import Gpu, Target, Usable
from engine.backends.reference.backend import ReferenceBackend, ReferenceProgram
from engine.chat import LocalChat, finished, open_chat
from engine.core import ChatRequest, Done, Message, Text, WorkSpace
from engine.errors import BadCheckpoint, BadSetting, DeviceLost, EngineError, NotEnoughMemory
from engine.models.memory import placement
from engine.models.memory.fit import fit
from engine.settings import CacheSettings, LoadSettings, SamplerSettings, StopSettings
from engine.vision.describe import described
from engine.weights import open_checkpoint
from engine.words import set_language
from tests.engine.models.architectures import write_checkpoint
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.families.rwkv_files import Shape, tensors, write_folder
from tests.tiny import TINY, write_gguf

CACHE = CacheSettings(context_length=512, memory=1, dtype="fp32")
MB = 1 << 20


class FakeGpu(ReferenceBackend):
    """The reference as if it were a GPU with so many bytes free.

    `fail` is raised by the pass of this number; 0 is before any, while the model is loaded.
    """

    name = "cuda"

    def __init__(self, where: str, free: int, even: bool = False) -> None:
        self.where, self.free, self.even = where, free, even
        self.fail: tuple[int, EngineError] | None = None
        self.passes = 0

    def free_memory(self) -> int:
        if self.fail is not None and not self.fail[0]:
            raise self.fail[1]
        return self.free

    def record(self, *arguments: Any) -> Any:
        program, gpu = super().record(*arguments), self

        def run(step: Step) -> Any:
            gpu.passes += 1
            if gpu.fail is not None and gpu.passes == gpu.fail[0]:
                raise gpu.fail[1]
            return ReferenceProgram.run(program, step)

        program.run = run  # type: ignore[method-assign]
        return program


class Machine:
    """GPUs, what the driver says is free on each, and what is when a backend asks."""

    def __init__(self, *gpus: Gpu) -> None:
        self.gpus, self.really, self.made = gpus, dict[tuple[int, ...], int](), list[FakeGpu]()
        self.broken: set[int] = set()
        self.failing: dict[tuple[int, ...], EngineError] = {}

    def usable(self) -> Usable:
        return Usable(self.gpus)

    def backend_on(self, target: Target, settings: LoadSettings) -> Any:
        if target.backend != "cuda":
            return ReferenceBackend()
        if self.broken & set(target.gpus):
            raise EngineError("The GPU reported: it does not start.")
        self.made.append(FakeGpu(target.where, self.really.get(target.gpus, target.free)))
        if target.gpus in self.failing:
            self.made[-1].fail = 0, self.failing[target.gpus]
        return self.made[-1]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch):
    def make(*gpus: Gpu) -> Machine:
        made = Machine(*gpus)
        monkeypatch.setattr(choice, "usable_gpus", made.usable)
        monkeypatch.setattr(engine.backends, "backend_on", made.backend_on)
        return made

    return make


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("m") / "m.gguf", TINY, "F16")


def ask(chat: LocalChat, text: str = "Hello") -> str:
    request = ChatRequest(
        (Message("user", text),), SamplerSettings(temperature=0.0), StopSettings(max_tokens=8)
    )
    events = list(chat.stream(request, threading.Event()))
    assert isinstance(events[-1], Done)
    return "".join(event.text for event in events if isinstance(event, Text))


def gpu(index: int, free: int, name: str = "") -> Gpu:
    return Gpu(index, name or f"GPU {index}", 1 << 34, free + (512 << 20))


def test_automatic_takes_the_gpu_and_says_so(machine, path: Path) -> None:
    there = machine(gpu(0, 1 << 30, "NVIDIA H200"))
    chat = finished(open_chat(path, LoadSettings(), CACHE))
    assert (chat.info.backend, chat.info.where) == ("cuda", "NVIDIA H200")
    assert chat.info.cache_bytes == chat.generator.cache.store.nbytes > 0
    assert len(there.made) == 1
    assert ask(chat)
    chat.close()


def test_automatic_goes_to_the_processor_where_no_gpu_has_room(machine, path: Path) -> None:
    there = machine(gpu(0, 1000), gpu(1, 2000))
    chat = finished(open_chat(path, LoadSettings(), CACHE))
    assert (chat.info.backend, chat.info.where, there.made) == ("cpu", "", [])
    chat.close()


def test_the_next_device_where_one_has_too_little_room_after_all_or_does_not_start(
    machine, path: Path
) -> None:
    there = machine(gpu(0, 1 << 30), gpu(1, 1 << 31))
    there.really[1,] = 1000
    there.broken = {0}
    chat = finished(open_chat(path, LoadSettings(), CACHE))
    assert (chat.info.backend, len(there.made)) == ("cpu", 1)
    chat.close()


def test_weights_context_and_work_space_must_fit_on_a_gpu(
    machine: Any, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the byte, as the device itself says what is free; the processor takes work space as it needs it."""
    monkeypatch.setattr(placement, "work_space", lambda *_unused: WorkSpace(0, 0, 0, 5 * MB))
    weights, check = list[int](), placement.check_memory

    def checked(name: str, needed: int, *more: Any, **further: Any) -> None:
        weights.append(needed)
        check(name, needed, *more, **further)

    monkeypatch.setattr(placement, "check_memory", checked)
    there = machine(gpu(0, 1 << 30))
    chat = finished(open_chat(path, LoadSettings(), CACHE))
    needed = weights[0] + chat.info.cache_bytes + 5 * MB
    chat.close()
    for free, backend in ((needed, "cuda"), (needed - 1, "cpu")):
        there.really[0,] = free
        chat = finished(open_chat(path, LoadSettings(), CACHE))
        assert chat.info.backend == backend
        chat.close()


@pytest.mark.parametrize(
    "error",
    [NotEnoughMemory("It has no room."), DeviceLost("The GPU stopped working."), EngineError("No graph.")],
)
def test_the_next_device_where_loading_fails(machine: Any, path: Path, error: EngineError) -> None:
    """All errors of devices are reasons to try another one, and told where it is the processor."""
    there = machine(gpu(0, 1 << 31), gpu(1, 1 << 30))
    there.failing = {(0,): error}
    chat = finished(open_chat(path, LoadSettings(), CACHE))
    assert (chat.info.backend, chat.info.notice, len(there.made)) == ("cuda", "", 2)
    chat.close()
    there.failing[0, 1] = error
    chat = finished(open_chat(path, LoadSettings(), CACHE))
    assert chat.info.backend == "cpu"
    assert chat.info.notice.startswith("m.gguf runs on the processor (CPU), because ")
    assert chat.info.notice.endswith(f" could not be used: {error}")
    chat.close()


def test_a_damaged_file_is_damaged_on_every_device(machine: Any, path: Path) -> None:
    there = machine(gpu(0, 1 << 31))
    there.failing = {(0,): BadCheckpoint("m.gguf is damaged.")}
    with pytest.raises(BadCheckpoint, match="damaged"):
        finished(open_chat(path, LoadSettings(), CACHE))


def test_a_model_that_makes_room_counts_before_a_device_is_passed_over(
    machine: Any, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = machine(gpu(0, 1 << 30))
    first = finished(open_chat(path, LoadSettings(), CACHE))
    with closing(open_checkpoint(path)) as checkpoint:
        info, _layouts = described(checkpoint, for_gpus=choice.may_take_gpus(LoadSettings()))
    needed = fit(info, CACHE, 0, backend="cuda").total
    there.gpus = (gpu(0, needed - 1000),)
    alone = finished(open_chat(path, LoadSettings(), CACHE))
    assert alone.info.backend == "cpu"
    alone.close()
    close = first.close

    def leave() -> None:
        close()
        there.made[-1].free = 1 << 30

    monkeypatch.setattr(first, "close", leave)
    second = finished(open_chat(path, LoadSettings(), CACHE, replaces=first))
    assert (second.info.backend, second.info.where) == ("cuda", "GPU 0")
    second.close()


def test_a_chosen_gpu_that_is_too_small_is_refused_before_anything_is_loaded(machine, path: Path) -> None:
    machine(gpu(0, 1000, "NVIDIA L4"))
    with pytest.raises(
        NotEnoughMemory,
        match=r"free on NVIDIA L4; close other programs, .* or the processor \(CPU\) as the device",
    ):
        finished(open_chat(path, LoadSettings(backend="cuda"), CACHE))
    with pytest.raises(BadSetting, match="GPU 3 was chosen"):
        finished(open_chat(path, LoadSettings(backend="cuda", gpus="3"), CACHE))


def test_a_context_that_is_too_long_for_the_gpu(machine, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = machine(gpu(0, 1 << 30, "NVIDIA L4"))
    first = finished(open_chat(path, LoadSettings(backend="cuda"), CACHE))
    weights = first.generator.model.resident_bytes  # of the reference, which stands for the GPU
    there.really[0,] = weights + MB // 4
    with pytest.raises(
        NotEnoughMemory,
        match=r"leaves too little memory after loading its weights\. .* are free on NVIDIA L4",
    ):
        finished(open_chat(path, LoadSettings(backend="cuda"), CACHE))
    # The model that leaves gives its weights and its cache back, and then there is room.
    there.really[0,] = weights - first.info.resident_bytes + 1000 + first.info.work.bytes(512)
    close = first.close

    def leave() -> None:
        close()
        there.made[-1].free = 1 << 30

    monkeypatch.setattr(first, "close", leave)
    second = finished(open_chat(path, LoadSettings(backend="cuda"), CACHE, replaces=first))
    assert second.info.where == "NVIDIA L4"
    second.close()


@pytest.mark.parametrize(
    "error", [NotEnoughMemory("NVIDIA L4 has no room."), DeviceLost("The GPU stopped working.")]
)
def test_a_reply_that_the_gpu_breaks_off(machine, path: Path, error: EngineError) -> None:
    """One sentence ends it; its pages come back, and where memory was all that was missing, the next reply
    is as if nothing had been.
    """
    there = machine(gpu(0, 1 << 30))
    chat = finished(open_chat(path, LoadSettings(), CACHE))
    expected = ask(chat)
    there.made[0].passes = 0
    for number in (1, 3):
        there.made[0].fail, there.made[0].passes = (number, error), 0
        with pytest.raises(type(error), match=str(error)):
            ask(chat, "Something else entirely")
        there.made[0].fail = None
        assert ask(chat) == expected
    chat.close()


def test_closing_after_a_lost_device(
    machine, path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Keeping the cache on disk has to read it; a device that is gone is no reason to fail at the end."""
    machine(gpu(0, 1 << 30))
    monkeypatch.setenv("INGLENOOK_CACHE", str(tmp_path))
    monkeypatch.setattr("engine.chat.local.cache_dir", lambda: tmp_path)
    chat = finished(
        open_chat(
            path, LoadSettings(), CacheSettings(context_length=512, memory=1, dtype="fp32", keep_on_disk=True)
        )
    )
    ask(chat, "long enough for a page " * 20)

    def gone(page: int) -> Any:
        raise DeviceLost("The GPU stopped working.")

    monkeypatch.setattr(chat.generator.cache.store, "read_page", gone)
    chat.close()


def test_a_model_with_recurrent_layers_takes_the_gpu(machine: Any, tmp_path: Path) -> None:
    path = write_checkpoint(BY_NAME["LFM2"], tmp_path / "m")
    made = machine(gpu(0, 1 << 30, "NVIDIA H200"))
    chat = finished(open_chat(path, LoadSettings(), CACHE))
    assert len(made.made) == 1
    assert (chat.info.backend, chat.info.notice) == ("cuda", "")
    assert chat.info.state_bytes == 4 * 3 * 2 * 64
    assert chat.info.layers - len(chat.info.kv_shapes) == 3
    chat.close()


def test_what_gpus_have_no_kernels_for_runs_on_the_processor(
    machine: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    what = "recurrent layers with keys of more than 512 numbers"
    shape = Shape(width=520, dim=520, layers=1)
    path = write_folder(tmp_path / "m", shape, tensors(shape))
    made = machine(gpu(0, 1 << 30, "NVIDIA H200"))
    chat = finished(open_chat(path, LoadSettings(), CACHE))
    assert not made.made
    assert (chat.info.backend, chat.info.cpu_only) == ("cpu", what)
    assert chat.info.notice == f"m runs on the processor (CPU): there are no GPU kernels for its {what}."
    chat.close()
    with pytest.raises(BadSetting, match=f"m has {what}, which GPUs have no kernels for"):
        finished(open_chat(path, LoadSettings(backend="cuda"), CACHE))
    request.addfinalizer(lambda: set_language("en"))
    set_language("de")
    with pytest.raises(BadSetting, match=r"m hat rekurrente Schichten mit .* 512 Zahlen, wofür GPUs"):
        finished(open_chat(path, LoadSettings(backend="cuda"), CACHE))
