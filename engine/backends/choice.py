"""Chooses the device of a model by the settings, this machine's devices, and the model's size."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from engine.backends.main_memory import free_memory
from engine.errors import BadSetting
from engine.lazy_dataclass import dataclass
from engine.settings import LoadSettings
from engine.words import _

if TYPE_CHECKING:
    from engine.backends.cuda.runtime.driver import Gpus


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU that models can run on: its number in CUDA's order, its display name, and bytes of memory,
    `total` and `free` now.
    """

    index: int
    name: str
    total: int
    free: int


@dataclass(frozen=True, slots=True)
class Usable:
    """The GPUs that models can run on; `reason` says in a sentence why there are none, or no others."""

    gpus: tuple[Gpu, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """A device that a model could go to.

    `backend` is "cpu", "cuda" or "reference"; `gpus` are the numbers of its GPUs in layer order; `where` is
    their display name, empty for main memory; `free` is their free memory in bytes.
    """

    backend: str
    gpus: tuple[int, ...] = ()
    where: str = ""
    free: int = 0


Fits = Callable[[Target], bool]
"""Whether a model fits on a device."""


def find_gpus() -> Gpus:
    """The GPUs that the driver reports; a function of its own, so that tests can replace it."""
    from engine.backends.cuda.runtime.driver import find_gpus as find

    return find()


def usable_gpus() -> Usable:
    """The GPUs of this machine that models can run on.

    Imports neither torch nor Numba and creates no context on a device.
    """
    from engine.backends.cuda.runtime.kept_memory import kept_unused

    found, gpus = find_gpus(), list[Gpu]()
    for gpu in found.gpus:
        # Counted as in `cuda.device.Device.free_memory`, so that both report the same.
        free = (
            gpu.total_memory
            if gpu.free_memory is None
            else min(gpu.total_memory, gpu.free_memory + kept_unused(gpu.index))
        )
        gpus.append(Gpu(gpu.index, gpu.name, gpu.total_memory, free))
    return Usable(tuple(gpus), found.reason or " ".join(found.refused))


def check_reference() -> None:
    """Raises `BadSetting` if the reference backend cannot be used: it needs torch."""
    if importlib.util.find_spec("torch") is None:
        raise BadSetting(
            _(
                "The reference device needs PyTorch, which is not part of this installation. Choose the "
                "processor (CPU), or install the program with pip."
            )
        )


def gpu_numbers(settings: LoadSettings) -> tuple[int, ...]:
    """The numbers of `LoadSettings.gpus`, each once."""
    return tuple(dict.fromkeys(int(number) for number in re.findall(r"\d+", settings.gpus)))


def targets(settings: LoadSettings, known: Usable | None = None) -> list[Target]:
    """The devices that a model could go to, the best one first.

    With automatic GPUs these are the GPU with the most free memory, then the best two, up to all; with an
    automatic backend the processor is last. `known` are the GPUs if already found. Raises `BadSetting`, with
    the reason, if the settings ask for GPUs or a reference that cannot be used.
    """
    if settings.backend == "reference":
        check_reference()
    if settings.backend in ("cpu", "reference"):
        return [Target(settings.backend, free=free_memory())]
    usable, requested = usable_gpus() if known is None else known, gpu_numbers(settings)
    there = {gpu.index: gpu for gpu in usable.gpus}
    unknown = [number for number in requested if number not in there]
    if settings.backend == "cuda" and (unknown or not there):
        raise BadSetting(_refusal(unknown, usable))
    kept = settings.gpu_memory << 20
    if requested:
        chosen = [] if unknown else [_target([there[number] for number in requested], usable, kept)]
    else:
        roomy = sorted(usable.gpus, key=lambda gpu: -gpu.free)
        chosen = [
            _target(sorted(roomy[:count], key=lambda gpu: gpu.index), usable, kept)
            for count in range(1, len(roomy) + 1)
        ]
    return chosen if settings.backend == "cuda" else [*chosen, Target("cpu", free=free_memory())]


def may_take_gpus(settings: LoadSettings) -> bool:
    """Whether `targets` may name a GPU."""
    return settings.backend not in ("cpu", "reference") and bool(find_gpus().gpus)


def choose(settings: LoadSettings, fits: Fits = lambda _unused: True, known: Usable | None = None) -> Target:
    """The first of `targets` that a model fits on, or else the last. Raises as `targets` does."""
    found = targets(settings, known)
    return next((target for target in found[:-1] if fits(target)), found[-1])


def settled(settings: LoadSettings, target: Target) -> LoadSettings:
    """The settings that ask for exactly this device."""
    return dataclasses.replace(settings, backend=target.backend, gpus=",".join(map(str, target.gpus)))


def place(gpus: Sequence[Gpu], all_gpus: Sequence[Gpu]) -> str:
    """The display name of GPUs: "NVIDIA H200", with its number if another one has the same name; or "GPU 0
    and GPU 1".
    """
    if len(gpus) > 1:
        numbers = [_("GPU {index}", index=gpu.index) for gpu in gpus]
        return _("{numbers} and {numbers_2}", numbers=", ".join(numbers[:-1]), numbers_2=numbers[-1])
    (gpu,) = gpus
    alone = sum(other.name == gpu.name for other in all_gpus) == 1
    return gpu.name if alone else _("{gpu} (GPU {index})", gpu=gpu.name, index=gpu.index)


def _target(gpus: Sequence[Gpu], usable: Usable, kept: int) -> Target:
    free = sum(max(0, gpu.free - kept) for gpu in gpus)
    return Target("cuda", tuple(gpu.index for gpu in gpus), place(gpus, usable.gpus), free)


def _refusal(unknown: Sequence[int], usable: Usable) -> str:
    if not usable.gpus:
        return _(
            "A GPU was chosen, but none can be used. {reason} Choose the processor (CPU) or "
            "automatic as the device.",
            reason=usable.reason,
        )
    there = ", ".join(f"{gpu.index} ({gpu.name})" for gpu in usable.gpus)
    why = f" {usable.reason}" if usable.reason else ""
    return _(
        "GPU {unknown} was chosen, but the GPUs that can be used are: {there}.{why} Choose one "
        "of these, or the processor (CPU).",
        unknown=unknown[0],
        there=there,
        why=why,
    )
