"""The devices that can be chosen, as texts and as the settings that they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.settings import LoadSettings
from engine.units import size_text
from engine.words import N_, _, translate

if TYPE_CHECKING:
    from engine.backends.choice import Gpu, Usable

__all__ = ["device_choices", "device_fields", "device_note", "device_value"]

AUTOMATIC, PROCESSOR, REFERENCE = (
    ("auto", N_("Automatic")),
    ("cpu", N_("Processor (CPU)")),
    ("reference", N_("Reference (exact but slow)")),
)
ANY_GPU = "cuda"


def _shown(choice: tuple[str, str]) -> tuple[str, str]:
    return choice[0], translate(choice[1])


def device_value(settings: LoadSettings) -> str:
    """The device in the settings in one word, as --device takes it: "auto", "cpu", "cuda", "cuda:1",
    "cuda:0,1" or "reference".
    """
    numbers = ",".join(settings.gpus.replace(",", " ").split())
    return f"{ANY_GPU}:{numbers}" if settings.backend == ANY_GPU and numbers else settings.backend


def device_fields(value: str) -> tuple[str, str]:
    """The inverse of `device_value`: `backend` and `gpus` of `LoadSettings`."""
    backend, _unused, gpus = value.partition(":")
    return backend, gpus


def device_choices(usable: Usable | None, current: str = "auto") -> list[tuple[str, str]]:
    """(value, text) of every device; `usable` is None while it is not known.

    The current choice is included even when its GPU is missing.
    """
    gpus = usable.gpus if usable is not None else ()
    found = [_shown(AUTOMATIC), _shown(PROCESSOR), *((f"cuda:{gpu.index}", _name(gpu, gpus)) for gpu in gpus)]
    if len(gpus) > 1:
        found.append((f"cuda:{','.join(str(gpu.index) for gpu in gpus)}", _("All GPUs")))
    found.append(_shown(REFERENCE))
    if current not in dict(found):
        found.insert(-1, (current, _other(current, usable)))
    return found


def _name(gpu: Gpu, gpus: Sequence[Gpu]) -> str:
    """The name of a GPU, with its number when another one has the same name."""
    return (
        gpu.name
        if sum(other.name == gpu.name for other in gpus) == 1
        else _("{gpu} (GPU {index})", gpu=gpu.name, index=gpu.index)
    )


def _other(value: str, usable: Usable | None) -> str:
    numbers = value.partition(":")[2].split(",")
    if not numbers[0]:
        return _("Any GPU")
    words = (
        _("GPU {numbers}", numbers=numbers[0])
        if len(numbers) == 1
        else _("GPUs {numbers}", numbers=", ".join(numbers))
    )
    there = {str(gpu.index) for gpu in usable.gpus} if usable is not None else set(numbers)
    return words if set(numbers) <= there else _("{words} (not found)", words=words)


def device_note(usable: Usable | None, current: str) -> tuple[str, bool]:
    """The text below the choice, and whether it reports a problem: why there is no GPU, or that the chosen
    one is missing.
    """
    if usable is None:
        return _("Looking for GPUs…"), False
    backend, numbers = (
        current.partition(":")[0],
        [number for number in current.partition(":")[2].split(",") if number],
    )
    there = {str(gpu.index) for gpu in usable.gpus}
    reason = f"{usable.reason} " if usable.reason else ""
    if backend == ANY_GPU and (not there or not set(numbers) <= there):
        return _("{reason}The chosen GPU cannot be used. Choose another device.", reason=reason), True
    if not there:
        return _("{reason}Models run on the processor.", reason=reason), False
    free = ", ".join(
        _(
            "{name}: {free} of {total} free",
            name=_name(gpu, usable.gpus),
            free=size_text(gpu.free),
            total=size_text(gpu.total),
        )
        for gpu in usable.gpus
    )
    return f"{reason}{free}.", False
