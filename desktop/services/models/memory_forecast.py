"""The memory that the loaded model uses, or would use with other settings: RAM and each GPU."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from PySide6.QtCore import QObject, Signal, Slot

from desktop.services.engine.background import Background
from desktop.services.engine.model_host import Describe
from desktop.services.models.devices import DeviceService
from desktop.services.session.chat_session import ChatSession
from engine.core import ModelInfo
from engine.settings import CacheSettings, LoadSettings, Settings, SpeculationSettings
from engine.words import N_, _

if TYPE_CHECKING:
    from engine.backends.choice import Target, Usable

__all__ = ["MEMORY", "PARTS", "MemoryForecast", "Place", "forecast"]

MEMORY = N_("Memory")
"""The name of the place that is the memory of the processor."""
PARTS = (N_("Other programs"), N_("Weights"), N_("Cache"), N_("Draft model"), N_("Work space"))
"""The parts of a bar in order; the rest is free."""


class Place(NamedTuple):
    """One memory: `parts` are bytes in the order of `PARTS`, of `total`."""

    name: str
    total: int
    parts: tuple[int, ...]

    @property
    def free(self) -> int:
        """Bytes left; negative if it does not fit."""
        return self.total - sum(self.parts)


def forecast(
    info: ModelInfo, draft: ModelInfo | None, cache: CacheSettings, load: LoadSettings, usable: Usable | None
) -> tuple[Place, ...]:
    """The memories in which the loaded model `info` would be with these settings, RAM last."""
    from engine.backends.choice import Usable
    from engine.backends.main_memory import free_memory, total_memory
    from engine.models.memory.fit import fit, freed_bytes, likely_target

    known = usable or Usable()
    target = likely_target(info, cache, load, known, info)
    found = fit(
        info,
        cache,
        target.free + freed_bytes(info, target.where),
        load=load,
        backend=target.backend,
        where=target.where,
    )
    own = [found.weights, found.cache, 0, found.work]
    if draft is not None:
        if draft.assistant:  # which goes on as long as the model
            draft = dataclasses.replace(draft, context_length=found.context_length)
        length = dataclasses.replace(cache, context_length=min(found.context_length, draft.context_length))
        drafting = fit(
            draft,
            dataclasses.replace(length, dtype="auto", value_dtype="same"),
            target.free,
            load=load,
            backend=target.backend,
        )
        own[2] = drafting.weights + drafting.cache + drafting.work
    taken = (0, 0, 0, 0)
    total, free = total_memory(), free_memory()
    ram = (*own,) if not target.where else taken
    places = _gpu_places(target, known, own, info)
    return (*places, Place(MEMORY, total, (max(0, total - free - freed_bytes(info, "")), *ram)))


def _gpu_places(target: Target, known: Usable, own: list[int], info: ModelInfo) -> list[Place]:
    """One for each GPU of the target; layers are distributed evenly."""
    from engine.models.memory.fit import freed_bytes

    gpus = [gpu for gpu in known.gpus if gpu.index in target.gpus]
    freed = freed_bytes(info, target.where)
    return [
        Place(
            _("GPU {index}, {gpu}", index=gpu.index, gpu=gpu.name), gpu.total,
            (max(0, gpu.total - gpu.free - freed // len(gpus)), *(part // len(gpus) for part in own)),
        )
        for gpu in gpus
    ]  # fmt: skip


class MemoryForecast(QObject):
    """Keeps the inputs of `forecast` up to date; the headers of a draft model are read on a thread.

    Signals:
        changed(): ask again.
    """

    changed = Signal()

    def __init__(
        self, session: ChatSession, devices: DeviceService, describe: Describe, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._session, self._devices, self._describe = session, devices, describe
        self._background = Background("forecast", self)
        self._drafts: dict[str, ModelInfo | None] = {}
        self._preview: dict[type[Settings], Settings] = {}
        session.model_changed.connect(self.changed)
        session.settings_changed.connect(self._on_settings)
        devices.found.connect(self.changed)

    def preview(self, settings: Settings) -> None:
        """Settings that are being chosen but not applied yet; valid until their class changes."""
        self._preview[type(settings)] = settings
        self.changed.emit()

    def places(self) -> tuple[Place, ...]:
        """The memories; empty while no model is loaded here."""
        session = self._session
        if session.model is None or session.model.host:
            return ()
        cache = self._preview.get(CacheSettings, session.settings(CacheSettings))
        load = self._preview.get(LoadSettings, session.settings(LoadSettings))
        assert isinstance(cache, CacheSettings)
        assert isinstance(load, LoadSettings)
        return forecast(session.model, self._draft(), cache, load, self._devices.usable)

    def close(self) -> bool:
        """End the thread."""
        return self._background.close()

    def _draft(self) -> ModelInfo | None:
        from engine.models.memory.fit import head_of

        drafting, model = self._session.settings(SpeculationSettings), self._session.model
        if drafting.method == "mtp" and model is not None:
            return head_of(model)
        if drafting.method != "model" or not drafting.draft_model:
            return None
        path = drafting.draft_model
        if path not in self._drafts:
            self._drafts[path] = None
            self._background.call(
                lambda _stop: self._describe(Path(path)), lambda info: self._on_described(path, info)
            )
        return self._drafts[path]

    @Slot(object)
    def _on_settings(self, cls: type[Settings]) -> None:
        self._preview.pop(cls, None)
        if cls in (CacheSettings, LoadSettings, SpeculationSettings):
            self.changed.emit()

    def _on_described(self, path: str, info: ModelInfo | None) -> None:
        if info is not None:
            self._drafts[path] = info
            self.changed.emit()
