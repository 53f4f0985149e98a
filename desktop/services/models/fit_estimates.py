"""What the model library shows beyond headers: whether each model fits now, and how fast it will generate."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal, Slot

from desktop.items.models.local_models import ModelEntry
from desktop.services.engine.background import Background
from desktop.services.engine.job import Job
from desktop.services.models.devices import FindDevices, find_devices
from desktop.services.models.local_models import LocalModelsService
from desktop.services.session.chat_session import ChatSession
from desktop.services.system.debounce import debounce
from desktop.store.caches.speeds import FILE_NAME, Speeds
from engine.core import ModelInfo, Stats
from engine.settings import CacheSettings, LoadSettings, Settings

if TYPE_CHECKING:
    from engine.backends.choice import Usable
    from engine.models.memory.fit import Fit

__all__ = ["LibraryService", "Measure", "measure_bandwidth"]

log = logging.getLogger(__name__)

Measure = Callable[[int], float]
"""The read bandwidth of the memory in bytes/s with this many threads (0: the engine's default); 0.0 if
unknown.
"""
COLLECT_MS, SEARCHING_MS = 60, 400
"""Changes are collected for this long before all models are estimated again; longer while a search runs."""
_BATCH = 100
_LEAST_TOKENS = 32
"""A shorter reply says little about speed."""
_MEASURED_MB, _MEASURE_S = 256, 60


def measure_bandwidth(threads: int) -> float:
    """`engine.backends.cpu.runtime.bandwidth.read_bandwidth` in another process, because importing Numba here
    would cost the window frames.
    """
    # not needed to start the window
    import subprocess

    from engine.platform.python_process import NO_WINDOW, python_command

    try:
        done = subprocess.run(
            python_command("engine.backends.cpu.runtime.bandwidth", str(threads), str(_MEASURED_MB)),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=_MEASURE_S,
            creationflags=NO_WINDOW,
        )
        return max(0.0, float(done.stdout))
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        log.warning("could not measure the memory bandwidth: %s", error)
        return 0.0


class LibraryService(QObject):
    """Estimates the fit of local models while `active`, again whenever models, settings or the loaded model
    change.

    Speeds are learned from replies: that of each model, and what it says about others on this machine. Before
    the first reply, the memory bandwidth is measured once, on the engine's thread while it is idle.

    Signals:
        estimated(object): a dict of path -> `engine.models.memory.fit.Fit`, for some of the models at a time.
    """

    estimated = Signal(object)

    def __init__(
        self,
        session: ChatSession,
        catalogue: LocalModelsService,
        folder: Path,
        measure: Measure = measure_bandwidth,
        find_devices: FindDevices = find_devices,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._find_devices = find_devices
        self._session, self._catalogue, self._measure = session, catalogue, measure
        self._background = Background("library", self)
        self._job: Job | None = None
        self._active = False
        self._speeds = Speeds(folder / FILE_NAME)
        self._offered: tuple[ModelInfo, ...] = ()
        self._ran: dict[int, Stats] = {}
        self._shared: set[int] = set()  # replies that ran beside others
        self._bandwidth: float | None = None
        self._measuring = False
        self._soon = debounce(self, self._estimate)
        catalogue.changed.connect(self._later)
        session.model_changed.connect(self._later)
        session.settings_changed.connect(self._on_settings)
        session.engine_changed.connect(self._measure_when_free)
        session.replies.ran.connect(self._on_ran)
        session.reply_ended.connect(self._on_reply_ended)

    @property
    def bandwidth(self) -> float:
        """Bytes/s, learned from replies or else measured; 0 while it is not known."""
        return self._speeds.of(self._machine_key) or self._bandwidth or 0.0

    @property
    def _machine_key(self) -> str:
        return f"bandwidth, threads {self._session.settings(LoadSettings).threads}"

    def set_active(self, active: bool) -> None:
        """Whether the library is visible."""
        self._active = active
        if active:
            self._later()
            self._measure_when_free()

    def offer(self, infos: Sequence[ModelInfo]) -> None:
        """Estimate these models too, which can be downloaded; their paths only name them."""
        self._offered = tuple(infos)
        self._later()

    def close(self) -> bool:
        """End the thread."""
        self._soon.stop()
        self._active = False
        return self._background.close()

    @Slot()
    def _later(self) -> None:
        if self._active and not self._soon.isActive():
            self._soon.start(SEARCHING_MS if self._catalogue.searching else COLLECT_MS)

    @Slot(object)
    def _on_settings(self, cls: type[Settings]) -> None:
        if cls in (CacheSettings, LoadSettings):
            self._later()

    @Slot(int, object)
    def _on_ran(self, message_id: int, stats: Stats) -> None:
        replies = self._session.replies
        running = sum(len(replies.growing_in(chat)) for chat in replies.conversations)
        if running > 1:
            self._shared.add(message_id)
        self._ran[message_id] = stats

    @Slot(int, int, bool)
    def _on_reply_ended(self, conversation: int, message_id: int, stopped: bool) -> None:
        stats, shared = self._ran.pop(message_id, None), message_id in self._shared
        self._shared.discard(message_id)
        model = self._session.model
        if stats is None or shared or model is None or model.offloaded_bytes or model.server:
            return
        speed = stats.decode_tokens_per_second
        if speed <= 0 or stats.new_tokens < _LEAST_TOKENS:
            return
        found = [(_key(model.path, model.where, self._session.settings_for(model.path, LoadSettings)), speed)]
        if not model.where and not stats.drafted_tokens:
            from engine.models.memory.fit import bandwidth_from

            if bandwidth := bandwidth_from(model, speed):
                found.append((self._machine_key, bandwidth))
        self._speeds.put(*found)
        self._later()

    @Slot()
    def _measure_when_free(self) -> None:
        if self._active and not self.bandwidth and not self._measuring and not self._session.busy:
            self._measuring = True
            threads, measure = self._session.settings(LoadSettings).threads, self._measure
            self._session.measure(lambda stop: _measured(measure, threads), self._on_measured)

    def _on_measured(self, result: object) -> None:
        self._measuring = False
        if isinstance(result, float):
            self._bandwidth = result
            self._later()

    def _settings_of(self, path: str) -> tuple[CacheSettings, LoadSettings]:
        """The settings with which a model with settings of its own would be loaded."""
        return self._session.settings_for(path, CacheSettings), self._session.settings_for(path, LoadSettings)

    @Slot()
    def _estimate(self) -> None:
        preferences = self._session.preferences
        usual, kept = (
            (preferences.settings(CacheSettings), preferences.settings(LoadSettings)),
            preferences.models_with_settings,
        )
        models = [
            (entry, entry.info, *(self._settings_of(entry.path) if entry.path in kept else usual))
            for entry in self._catalogue.entries
            if entry.info is not None
        ]
        models += [(ModelEntry(info.path, info.name), info, *usual) for info in self._offered]
        self._background.drop(self._job)
        loaded, bandwidth, speeds = self._session.model, self.bandwidth, self._speeds.medians()
        self._job = self._background.start(
            lambda stop: _estimates(models, loaded, bandwidth, speeds, self._find_devices, stop),
            event=self.estimated.emit,
        )


def _measured(measure: Measure, threads: int) -> Generator[None, None, float]:
    yield
    return measure(threads)


def _estimates(
    models: Sequence[tuple[ModelEntry, ModelInfo, CacheSettings, LoadSettings]],
    loaded: ModelInfo | None,
    bandwidth: float,
    speeds: Mapping[str, float],
    find_devices: FindDevices,
    stop: threading.Event,
) -> Generator[dict[str, Fit], None, None]:
    """Batches of path -> `Fit`. The loaded model's memory counts as free: another one would replace it."""
    usable = find_devices()
    for start in range(0, len(models), _BATCH):
        if stop.is_set():
            return
        yield {
            entry.path: _fit_of(info, cache, load, usable, loaded, bandwidth, speeds)
            for entry, info, cache, load in models[start : start + _BATCH]
        }


def _fit_of(
    info: ModelInfo,
    cache: CacheSettings,
    load: LoadSettings,
    usable: Usable,
    loaded: ModelInfo | None,
    bandwidth: float,
    speeds: Mapping[str, float],
) -> Fit:
    """How a model fits on the device that it would use, in place of the `loaded` one."""
    from engine.models.memory.fit import fit, freed_bytes, likely_target

    target = likely_target(info, cache, load, usable, loaded)
    free = target.free + freed_bytes(loaded, target.where)
    # The bandwidth was measured for the machine's own memory.
    speed = bandwidth if not target.where else 0.0
    measured = speeds.get(_key(info.path, target.where, load), 0.0)
    return fit(info, cache, free, speed, load, backend=target.backend, where=target.where, measured=measured)


def _key(path: str, where: str, load: LoadSettings) -> str:
    """What a model's speed depends on."""
    return f"{path}, {where or 'CPU'}, threads {load.threads}, {load.quantise} {load.quantise_head}"
