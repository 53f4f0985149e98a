"""Which device is taken: by the settings, by what the machine has, by what a model needs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from engine.backends import choice, make_backend
from engine.backends.choice import Target, choose, settled, targets, usable_gpus
from engine.errors import BadSetting
from engine.settings import LoadSettings

GB = 10**9
RAM = 32 * GB


def gpu(index: int, name: str = "NVIDIA H200", free: int | None = 100 * GB) -> Any:
    return SimpleNamespace(index=index, name=name, total_memory=140 * GB, free_memory=free)


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=RAM))


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch):
    def put(*gpus: Any, refused: tuple[str, ...] = (), reason: str = "") -> None:
        monkeypatch.setattr(
            choice, "find_gpus", lambda: SimpleNamespace(gpus=gpus, refused=refused, reason=reason)
        )

    return put


CPU = Target("cpu", free=RAM)


def test_without_a_gpu(there) -> None:
    there(reason="No NVIDIA driver was found on this machine.")
    assert targets(LoadSettings()) == [CPU]
    assert make_backend(LoadSettings(threads=1)).name == "cpu"
    with pytest.raises(BadSetting) as error:
        make_backend(LoadSettings(backend="cuda"))
    assert str(error.value) == (
        "A GPU was chosen, but none can be used. No NVIDIA driver was found on this machine. Choose the "
        "processor (CPU) or automatic as the device."
    )
    # what was chosen for another machine does not stand in the way of automatic
    assert targets(LoadSettings(gpus="0")) == [CPU]


def test_the_processor_is_chosen_without_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "find_gpus", lambda: pytest.fail("nobody asked for a GPU"))
    assert targets(LoadSettings(backend="cpu")) == [CPU]
    assert targets(LoadSettings(backend="reference")) == [Target("reference", free=RAM)]


def test_the_gpu_with_the_most_memory_then_as_many_as_needed(there) -> None:
    there(gpu(0, free=20 * GB), gpu(1, "NVIDIA L4", 50 * GB), gpu(2, "NVIDIA A2", free=10 * GB))
    kept = 512 << 20
    found = targets(LoadSettings())
    assert found == [
        Target("cuda", (1,), "NVIDIA L4", 50 * GB - kept),
        Target("cuda", (0, 1), "GPU 0 and GPU 1", 70 * GB - 2 * kept),
        Target("cuda", (0, 1, 2), "GPU 0, GPU 1 and GPU 2", 80 * GB - 3 * kept), CPU,
    ]  # fmt: skip
    for needed, gpus in ((49, (1,)), (60, (0, 1)), (70, (0, 1, 2)), (90, ())):
        assert choose(LoadSettings(), lambda target, needed=needed: target.free >= needed * GB).gpus == gpus
    # Asked for GPUs, the processor is none of the answers: the last one then says that the memory is too
    # little.
    assert choose(LoadSettings(backend="cuda"), lambda _: False).gpus == (0, 1, 2)
    assert settled(LoadSettings(threads=3), found[1]) == LoadSettings(threads=3, backend="cuda", gpus="0,1")
    assert targets(settled(LoadSettings(), found[1])) == [found[1]]


def test_chosen_gpus_in_their_order(there) -> None:
    there(gpu(0), gpu(1))
    assert [t.gpus for t in targets(LoadSettings(backend="cuda", gpus=" 1, 0"))] == [(1, 0)]
    assert [t.gpus for t in targets(LoadSettings(gpus="1"))] == [(1,), ()]
    assert targets(LoadSettings(backend="cuda", gpus="1,1"))[0].where == "NVIDIA H200 (GPU 1)"
    assert targets(LoadSettings(backend="cuda", gpus="0", gpu_memory=1024))[0].free == 100 * GB - (1 << 30)
    with pytest.raises(
        BadSetting,
        match=r"^GPU 7 was chosen, but the GPUs that can be used are: 0 \(NVIDIA H200\), 1 \(NVIDIA H200\)\.",
    ):
        targets(LoadSettings(backend="cuda", gpus="0,7"))


def test_memory_kept_free_never_makes_it_negative(there) -> None:
    there(gpu(0, free=100))
    assert targets(LoadSettings(backend="cuda"))[0].free == 0


def test_unknown_memory_counts_as_free(there) -> None:
    there(gpu(0, free=None), refused=("NVIDIA K80 is too old.",))
    found = usable_gpus()
    assert found.gpus[0].free == 140 * GB
    assert found.reason == "NVIDIA K80 is too old."


@pytest.mark.parametrize("text", ["x", "0;1", "-1", "0,", ",1", "0 1", "100"])
def test_numbers_of_gpus_are_validated(text: str) -> None:
    with pytest.raises(BadSetting, match="GPU numbers separated by commas, such as 0 or 0,1"):
        LoadSettings(gpus=text)
    for good in ("", " ", "0", "0,1", "1 , 0"):
        assert LoadSettings(gpus=good).gpus == good
