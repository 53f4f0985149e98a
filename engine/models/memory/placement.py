"""Loads a model on the first device that has memory for its weights, its cache and its work space."""

from __future__ import annotations

import functools
import logging
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from engine import backends
from engine.backends.base import Backend
from engine.backends.choice import Target, targets
from engine.backends.trim import give_memory_back
from engine.core import Loading, ModelInfo
from engine.errors import BadSetting, DeviceLost, EngineError, NotEnoughMemory, forget_frames
from engine.lazy_dataclass import dataclass
from engine.models.building.source import Survey
from engine.models.load import check_memory, read_config, read_model
from engine.models.memory.estimate import cache_bytes, cache_dtype, chosen_context
from engine.models.memory.fit import fit, freed_bytes, offload_limit, work_space
from engine.models.paged import PagedCache
from engine.models.proof.provable import Provable
from engine.models.quantising import preparation
from engine.settings import CacheSettings, LoadSettings
from engine.units import size_text
from engine.weights.checkpoint import Checkpoint
from engine.weights.gguf.ollama import known_name
from engine.words import _, translate


@runtime_checkable
class Offloading(Protocol):
    """A backend that can keep weights on the disk."""

    @property
    def offloaded(self) -> int:
        """Bytes of the loaded weights that lie on the disk."""
        ...

    def offload(self, limit: int, beyond: int) -> None:
        """Keep `limit` bytes of the weights that will be loaded in memory, and those `beyond` on the disk.

        Raises `NotEnoughMemory` if the disk has no room for them.
        """
        ...


class Replaced(Protocol):
    """A chat that is closed when another model needs its memory."""

    @property
    def info(self) -> ModelInfo | None:
        """Its model, None if there is none; tells how much memory closing it frees."""
        ...

    def close(self) -> None:
        """Release the model's memory."""
        ...


@dataclass(frozen=True)
class Placed:
    """A loaded model with its cache, and its device."""

    paged: PagedCache
    target: Target
    notice: str
    """Why the CPU is used instead of a GPU, why kernels were replaced, and how much is kept on the disk; ""
    if nothing of this is so.
    """
    report: str = ""
    """Details of replaced kernels."""
    on_disk: int = 0
    """Bytes of the weights that are kept on the disk."""


def on_a_device(
    checkpoint: Checkpoint,
    info: ModelInfo,
    load: LoadSettings,
    cache: CacheSettings,
    replaces: Replaced | None,
) -> Generator[Loading, None, Placed]:
    """Load a model with its cache on the first device that they fit on.

    The headers give an estimate. If a device then runs out of memory or fails, the next one is tried. If this
    ends early, all memory is released.
    """
    name, against = known_name(Path(info.path)), ""
    replacement = _Replacement(checkpoint, info, cache, replaces)
    there = targets(load)
    *others, last = runnable(info, there)
    if len(there) > len(others) + 1:
        against = _(
            "{name} runs on the processor (CPU): there are no GPU kernels for its {cpu_only}.",
            name=name,
            cpu_only=translate(info.cpu_only),
        )
    for target in (*others, last):
        if target is not last:
            free = target.free + freed_bytes(replacement.leaving, target.where)
            judged = fit(info, cache, free, load=load, backend=target.backend, where=target.where)
            if judged.verdict == "too large":
                against = _passed_over(target, name, judged.sentence)
                continue
        try:
            backend = backends.backend_on(target, load)
        except EngineError as error:  # a GPU that does not start
            if target is last:
                raise
            against = _passed_over(target, name, str(error))
            continue
        try:
            paged = yield from _loaded(checkpoint, backend, load, cache, replacement)
            notice, report = (backend.notice, backend.report) if isinstance(backend, Provable) else ("", "")
            on_disk = backend.offloaded if isinstance(backend, Offloading) else 0
            notice = notice or (against if target.backend == "cpu" else "")
            if on_disk:
                notice = f"{notice} {_offloaded(name, on_disk)}".lstrip()
            return Placed(paged, target, notice, report, on_disk)
        except BaseException as error:
            forget_frames(error)  # they hold what was loaded
            backend.trim()
            # Other errors of the driver, such as while graphs are recorded, are plain `EngineError`s.
            if target is last or not (
                isinstance(error, NotEnoughMemory | DeviceLost) or type(error) is EngineError
            ):
                raise
            against = _passed_over(target, name, str(error))
    raise AssertionError("the last device either loads the model or says why not")


def runnable(info: ModelInfo, found: Sequence[Target]) -> list[Target]:
    """The devices that have kernels for a model. Raises `BadSetting` if none has."""
    able = [target for target in found if target.backend != "cuda" or not info.cpu_only]
    if not able:
        raise BadSetting(
            _(
                "{name} has {cpu_only}, which GPUs have no kernels for; choose the processor (CPU) "
                "or automatic as the device.",
                name=known_name(Path(info.path)),
                cpu_only=translate(info.cpu_only),
            )
        )
    return able


def _passed_over(target: Target, name: str, why: str) -> str:
    """Log that a device is not used; returns the notice for the case that the CPU is used instead."""
    logging.getLogger(__name__).warning("%s is not used for %s: %s", target.where, name, why)
    return _(
        "{name} runs on the processor (CPU), because {where} could not be used: {why}",
        name=name,
        where=target.where,
        why=why,
    )


def _offloaded(name: str, on_disk: int) -> str:
    return _(
        "{size} of the weights of {name} did not fit into memory and are read from the disk "
        "for each token, so replies are slow.",
        size=size_text(on_disk),
        name=name,
    )


def _loaded(
    checkpoint: Checkpoint,
    backend: Backend,
    load: LoadSettings,
    cache: CacheSettings,
    replacement: _Replacement,
) -> Generator[Loading, None, PagedCache]:
    """Load the model with its cache on one device."""
    from engine.sampling import kernels

    make_room = functools.partial(replacement.make_room, backend, load.offload)
    model = yield from read_model(
        checkpoint, backend, cache_dtype(cache), preparation(checkpoint, load), make_room
    )
    yield Loading(_("Preparing the sampler"), 0, 1)
    kernels.prepare(model.config.vocab_size)  # now, so that no reply waits for it
    yield Loading(_("Reserving memory for the context"), 0, 1)
    return PagedCache(model, cache)


class _Replacement:
    """Makes memory available for a new model, for which an old one may have to be closed."""

    def __init__(
        self, checkpoint: Checkpoint, info: ModelInfo, cache: CacheSettings, replaces: Replaced | None
    ) -> None:
        self._checkpoint, self._info, self._cache, self._replaces = checkpoint, info, cache, replaces

    @property
    def leaving(self) -> ModelInfo | None:
        """The model to be closed; None if there is none or it is closed."""
        return self._replaces.info if self._replaces is not None else None

    def make_room(self, backend: Backend, offload: bool, seen: Survey) -> None:
        """Close the old model if the new one, surveyed as `seen`, and its context then fit. With `offload`,
        weights that do not fit will be kept on the disk by a backend that can.

        Raises `NotEnoughMemory` otherwise.
        """
        assert seen.parts is not None
        name, free = (
            known_name(Path(self._info.path)),
            backend.free_memory() + freed_bytes(self.leaving, backend.where),
        )
        length = chosen_context(self._cache, self._info.context_length, self._info.advised_context)
        # A GPU cannot overcommit its memory, so the work space must fit, too.
        work = (
            work_space(read_config(self._checkpoint), backend, seen.parts).bytes(length)
            if backend.where or offload
            else 0
        )
        resident = seen.bytes
        if offload and isinstance(backend, Offloading):
            beside = work + cache_bytes(self._info, self._cache, backend.name, free=free).context_bytes
            if seen.bytes + beside > free:
                resident = offload_limit(free, beside)
                backend.offload(resident, seen.bytes - resident)
        check_memory(name, resident, free, backend.where, can_offload=isinstance(backend, Offloading))
        busy = resident + (work if backend.where else 0)
        context = cache_bytes(
            self._info, self._cache, backend.name, busy=busy, free=free, where=backend.where
        )
        if not context.fits:
            raise NotEnoughMemory(
                _(
                    "{name} leaves too little memory after loading its weights. {sentence}",
                    name=name,
                    sentence=context.sentence,
                )
            )
        if self._replaces is not None:
            self._replaces.close()
            self._replaces = None
        give_memory_back()  # used for the headers and the tokenizer
