"""The model hub for the GUI thread: searches and choices on one thread, downloads one by one on another."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Signal, Slot

from desktop.services.engine.stream_thread import Job, StreamThread
from desktop.store.settings.preferences import Preferences
from engine.core import Downloaded, Downloading
from engine.settings import LoadSettings

if TYPE_CHECKING:
    from engine.hub import HubChoice, HubModel, UnfinishedDownload

__all__ = ["HUB", "Fetching", "HubApi", "HubService"]


class HubApi:
    """`engine.hub`, imported on first use; tests replace it by a fake. All methods but `set_offline` may
    block.
    """

    def search(self, query: str, stop: threading.Event) -> list[HubModel]:
        from engine.hub import search_models

        return search_models(query, stop=stop)

    def choices(
        self, model_id: str, folder: Path, load: LoadSettings, stop: threading.Event
    ) -> list[HubChoice]:
        from engine.hub import model_choices

        return model_choices(model_id, target_folder=folder, load=load, stop=stop)

    def download(
        self, choice: HubChoice, folder: Path, stop: threading.Event
    ) -> Iterator[Downloading | Downloaded]:
        from engine.hub import download_model

        return download_model(choice, folder, stop=stop)

    def discard(self, choice: HubChoice, folder: Path) -> None:
        from engine.hub import discard_download

        discard_download(choice, folder)

    def unfinished(self, folder: Path) -> list[UnfinishedDownload]:
        from engine.hub import unfinished_downloads

        return unfinished_downloads(folder)

    def set_token(self, token: str) -> str:
        from engine.hub import set_hub_token

        return set_hub_token(token)

    def token_source(self) -> str:
        from engine.hub import token_source

        return token_source()

    def set_offline(self, on: bool) -> None:
        from engine.hub import set_offline

        set_offline(on)


HUB = HubApi()
"""The real hub."""


@dataclass(frozen=True)
class Fetching:
    """A download: `state` is "waiting", "running", "paused", "failed" or "finished"; `done` of `total` bytes.

    `sentence` is shown to the user.
    """

    choice: HubChoice
    state: str
    done: int = 0
    total: int = 0
    sentence: str = ""
    path: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Identifies the download."""
        return self.choice.model_id, self.choice.title


class HubService(QObject):
    """Searches the hub and downloads into `folder`. Nothing happens until it is asked for.

    Signals:
        found(str query, object models): a list of `HubModel`.
        chosen(str model_id, object choices): a list of `HubChoice`.
        trouble(str what, str sentence): "search", "choices", "token" or "discard" failed.
        busy_changed(bool): whether a request to the hub is running.
        downloads_changed(object): a tuple of `Fetching`.
        finished(str path): a model was downloaded.
        token_changed(str source, str sentence): where the token is stored ("" for nowhere), and why storing
        it failed.
    """

    found = Signal(str, object)
    chosen = Signal(str, object)
    trouble = Signal(str, str)
    busy_changed = Signal(bool)
    downloads_changed = Signal(object)
    finished = Signal(str)
    token_changed = Signal(str, str)

    def __init__(
        self, preferences: Preferences, folder: Path, api: HubApi, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._preferences, self._folder, self._api = preferences, folder, api
        self._asker: StreamThread | None = None
        self._fetcher: StreamThread | None = None
        self._asked: dict[int, tuple[str, str]] = {}
        self._question: Job | None = None
        self._downloads: dict[tuple[str, str], Fetching] = {}
        self._jobs: dict[int, tuple[tuple[str, str], Job]] = {}
        self._discarded: set[tuple[str, str]] = set()
        self._offline, self._switching = preferences.offline, threading.Lock()

    # -- questions

    @property
    def offline(self) -> bool:
        """Whether the user allows no connection to the hub."""
        return self._preferences.offline

    def set_offline(self, on: bool) -> None:
        """Switch; a running download ends soon and keeps what it has."""
        self._preferences.set_offline(on)
        self._offline = on
        self._apply_offline()

    def _apply_offline(self) -> None:
        """Pass the current state of the switch to the engine, from any thread: an older request must not
        revert it.
        """
        with self._switching:
            self._api.set_offline(self._offline)

    def begin(self) -> None:
        """Report the present state: unfinished downloads and where the token is stored."""
        folder = self._folder
        self._ask("unfinished", "", lambda stop: self._api.unfinished(folder))
        self._ask("token", "", lambda stop: (self._api.token_source(), ""))

    def search(self, query: str) -> None:
        """Search for models; replaces a running request."""
        self._replace("search", query, lambda stop: self._api.search(query, stop))

    def ask_choices(self, model_id: str) -> None:
        """Ask what can be downloaded of a model; replaces a running request."""
        folder, load = self._folder, self._preferences.settings(LoadSettings)
        self._replace("choices", model_id, lambda stop: self._api.choices(model_id, folder, load, stop))

    def set_token(self, token: str) -> None:
        """Store a token, or delete it (with "")."""

        def keep(stop: threading.Event) -> tuple[str, str]:
            sentence = self._api.set_token(token)
            return self._api.token_source(), sentence

        self._ask("token", "", keep)

    def _replace(self, what: str, about: str, ask: Callable[[threading.Event], Any]) -> None:
        if self._question is not None:
            self._question.stop()
        self._question = self._ask(what, about, ask)
        self.busy_changed.emit(True)

    def _ask(self, what: str, about: str, ask: Callable[[threading.Event], Any]) -> Job:
        if self._asker is None:
            self._asker = StreamThread("hub", self)
            self._asker.finished.connect(self._on_answer)
            self._asker.failed.connect(self._on_refusal)

        def run(stop: threading.Event) -> Generator[None, None, Any]:
            yield
            self._apply_offline()
            return ask(stop)

        job = self._asker.start(run)
        self._asked[job.id] = (what, about)
        return job

    @Slot(int, object)
    def _on_answer(self, job: int, result: Any) -> None:
        what, about = self._asked.pop(job, ("", ""))
        if what in ("search", "choices") and not self._ended(job):
            return
        if result is None:
            return
        if what == "search":
            self.found.emit(about, result)
        elif what == "choices":
            self.chosen.emit(about, result)
        elif what == "token":
            self.token_changed.emit(*result)
        elif what == "unfinished":
            for each in result:
                fetching = Fetching(each.choice, "paused", each.done, each.choice.bytes)
                self._downloads.setdefault(fetching.key, fetching)
            self._announce()

    @Slot(int, str, str)
    def _on_refusal(self, job: int, sentence: str, details: str) -> None:
        what, _ = self._asked.pop(job, ("", ""))
        if what in ("search", "choices") and not self._ended(job):
            return
        if what:
            self.trouble.emit(what, sentence)

    def _ended(self, job: int) -> bool:
        """Whether this was the latest request; then nothing is running any more."""
        if self._question is None or self._question.id != job:
            return False
        self._question = None
        self.busy_changed.emit(False)
        return True

    # -- downloads

    @property
    def downloads(self) -> tuple[Fetching, ...]:
        """All downloads of this session, and unfinished ones of earlier sessions."""
        return tuple(self._downloads.values())

    @property
    def running(self) -> bool:
        """Whether a download runs or waits."""
        return bool(self._jobs)

    def download(self, choice: HubChoice) -> None:
        """Start or resume a download; it waits while another one runs."""
        key = (choice.model_id, choice.title)
        if any(key == other for other, _ in self._jobs.values()):
            return
        if self._fetcher is None:
            self._fetcher = StreamThread("hub download", self)
            self._fetcher.yielded.connect(self._on_progress)
            self._fetcher.finished.connect(self._on_fetched)
            self._fetcher.failed.connect(self._on_fetch_failed)
        before = self._downloads.get(key)
        waiting = "Waiting for the download before it" if self._jobs else "Starting"
        self._downloads[key] = Fetching(
            choice, "waiting", before.done if before else 0, choice.bytes, waiting
        )
        folder = self._folder

        def run(stop: threading.Event) -> Generator[Downloading | Downloaded, None, None]:
            self._apply_offline()
            yield from self._api.download(choice, folder, stop)

        job = self._fetcher.start(run)
        self._jobs[job.id] = (key, job)
        self._announce()

    def pause(self, key: tuple[str, str]) -> None:
        """Stop it soon; `download` resumes it."""
        for other, job in self._jobs.values():
            if other == key:
                job.stop()

    def discard(self, key: tuple[str, str]) -> None:
        """Cancel it and delete the partial download."""
        self._discarded.add(key)
        if any(other == key for other, _ in self._jobs.values()):
            self.pause(key)
        else:
            self._remove(key)

    def forget(self, key: tuple[str, str]) -> None:
        """Remove a finished download from the list; the model stays."""
        if self._downloads.get(key) is not None and self._downloads[key].state == "finished":
            del self._downloads[key]
            self._announce()

    def close(self) -> bool:
        """Pause all downloads and end both threads."""
        workers = [worker for worker in (self._asker, self._fetcher) if worker is not None]
        ended = [worker.close() for worker in workers]  # all of them, even if the first one hangs
        return all(ended)

    def _remove(self, key: tuple[str, str]) -> None:
        self._discarded.discard(key)
        fetching = self._downloads.pop(key, None)
        if fetching is not None:
            choice, folder = fetching.choice, self._folder
            self._ask("discard", "", lambda stop: self._api.discard(choice, folder))
        self._announce()

    @Slot(int, object)
    def _on_progress(self, job: int, event: Downloading | Downloaded) -> None:
        if job not in self._jobs:
            return
        key = self._jobs[job][0]
        if isinstance(event, Downloaded):
            self._change(key, state="finished", path=event.path, done=self._downloads[key].total, sentence="")
        else:
            total = event.total or self._downloads[key].total
            self._change(key, state="running", done=event.done, total=total, sentence=event.stage)

    @Slot(int, object)
    def _on_fetched(self, job: int, result: object) -> None:
        key, _ = self._jobs.pop(job)
        fetching = self._downloads[key]
        if fetching.state == "finished":
            self._discarded.discard(key)
            self.finished.emit(fetching.path)
        else:
            self._stopped(key)

    @Slot(int, str, str)
    def _on_fetch_failed(self, job: int, sentence: str, details: str) -> None:
        key, stopped = self._jobs.pop(job)
        if stopped.stopping:
            self._stopped(key)
        else:
            self._change(key, state="failed", sentence=sentence)

    def _stopped(self, key: tuple[str, str]) -> None:
        if key in self._discarded:
            self._remove(key)
        else:
            self._change(key, state="paused", sentence="")

    def _change(self, key: tuple[str, str], **what: Any) -> None:
        self._downloads[key] = dataclasses.replace(self._downloads[key], **what)
        self._announce()

    def _announce(self) -> None:
        self.downloads_changed.emit(self.downloads)
