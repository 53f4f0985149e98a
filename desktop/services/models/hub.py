"""The model hub for the GUI thread: searches and choices on one thread, downloads one by one on another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from PySide6.QtCore import QObject, Signal

from desktop.services.engine.background import Background
from desktop.services.engine.job import Job
from desktop.store.settings.preferences import Preferences
from engine.core import Downloaded, Downloading
from engine.settings import LoadSettings
from engine.words import _

if TYPE_CHECKING:
    from engine.hub import HubChoice, HubModel, Picks, UnfinishedDownload

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

    def picks(self, folder: Path) -> Picks:
        from engine.hub import load_picks

        return load_picks(folder)

    def renew_picks(self, folder: Path, stop: threading.Event) -> Picks:
        from engine.hub import renew_picks

        return renew_picks(folder, stop=stop)

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


class Fetching(NamedTuple):
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
        picks_loaded(object): the recommended models, as `Picks`.
        trouble(str what, str sentence): "search", "choices", "picks", "token" or "discard" failed.
        busy_changed(bool): whether a request to the hub is running.
        downloads_changed(object): a tuple of `Fetching`.
        finished(str path): a model was downloaded.
        token_changed(str source, str sentence): where the token is stored ("" for nowhere), and why storing
        it failed.
        offline_changed(bool): the switch "Work offline" was set.
    """

    found = Signal(str, object)
    chosen = Signal(str, object)
    picks_loaded = Signal(object)
    trouble = Signal(str, str)
    busy_changed = Signal(bool)
    downloads_changed = Signal(object)
    finished = Signal(str)
    token_changed = Signal(str, str)
    offline_changed = Signal(bool)

    def __init__(
        self, preferences: Preferences, folder: Path, api: HubApi, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._preferences, self._folder, self._api = preferences, folder, api
        self._questions = Background("hub", self)
        self._fetches = Background("hub download", self)
        self._question: Job | None = None
        self._downloads: dict[tuple[str, str], Fetching] = {}
        self._jobs: dict[tuple[str, str], Job] = {}
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
        self.offline_changed.emit(on)

    def _apply_offline(self) -> None:
        """Pass the current state of the switch to the engine, from any thread: an older request must not
        revert it.
        """
        with self._switching:
            self._api.set_offline(self._offline)

    def begin(self) -> None:
        """Report the present state: unfinished downloads and where the token is stored."""
        folder = self._folder
        self._ask("unfinished", lambda stop: self._api.unfinished(folder), self._show_unfinished)
        self._ask("token", lambda stop: (self._api.token_source(), ""), self._show_token)
        self._ask("picks", lambda stop: self._api.picks(folder), self.picks_loaded.emit)

    def renew_picks(self) -> None:
        """Ask the hub for the present files of the recommended models; replaces a running request."""
        folder = self._folder
        self._replace("picks", lambda stop: self._api.renew_picks(folder, stop), self.picks_loaded.emit)

    def search(self, query: str) -> None:
        """Search for models; replaces a running request."""
        self._replace("search", lambda stop: self._api.search(query, stop), partial(self.found.emit, query))

    def ask_choices(self, model_id: str) -> None:
        """Ask what can be downloaded of a model; replaces a running request."""
        folder, load = self._folder, self._preferences.settings(LoadSettings)
        self._replace(
            "choices",
            lambda stop: self._api.choices(model_id, folder, load, stop),
            partial(self.chosen.emit, model_id),
        )

    def set_token(self, token: str) -> None:
        """Store a token, or delete it (with "")."""

        def keep(stop: threading.Event) -> tuple[str, str]:
            sentence = self._api.set_token(token)
            return self._api.token_source(), sentence

        self._ask("token", keep, self._show_token)

    def _replace(
        self, what: str, ask: Callable[[threading.Event], Any], answered: Callable[[Any], object]
    ) -> None:
        self._questions.drop(self._question)
        self._question = self._ask(what, ask, answered, self._end_question)
        self.busy_changed.emit(True)

    def _end_question(self) -> None:
        self._question = None
        self.busy_changed.emit(False)

    def _ask(
        self,
        what: str,
        ask: Callable[[threading.Event], Any],
        answered: Callable[[Any], object],
        ended: Callable[[], None] = lambda: None,
    ) -> Job:
        def work(stop: threading.Event) -> Any:
            self._apply_offline()
            return ask(stop)

        def done(result: Any) -> None:
            ended()
            if result is not None:
                answered(result)

        def failed(sentence: str, _details: str) -> None:
            ended()
            self.trouble.emit(what, sentence)

        return self._questions.call(work, done, failed)

    def _show_token(self, found: tuple[str, str]) -> None:
        self.token_changed.emit(*found)

    def _show_unfinished(self, found: list[UnfinishedDownload]) -> None:
        for each in found:
            fetching = Fetching(each.choice, "paused", each.done, each.choice.bytes)
            self._downloads.setdefault(fetching.key, fetching)
        self._announce()

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
        if key in self._jobs:
            return
        before = self._downloads.get(key)
        waiting = _("Waiting for the previous download") if self._jobs else _("Starting")
        self._downloads[key] = Fetching(
            choice, "waiting", before.done if before else 0, choice.bytes, waiting
        )
        folder = self._folder

        def run(stop: threading.Event) -> Generator[Downloading | Downloaded, None, None]:
            self._apply_offline()
            yield from self._api.download(choice, folder, stop)

        self._jobs[key] = self._fetches.start(
            run,
            lambda _result: self._on_fetched(key),
            lambda sentence, _details: self._on_fetch_failed(key, sentence),
            lambda event: self._on_progress(key, event),
        )
        self._announce()

    def pause(self, key: tuple[str, str]) -> None:
        """Stop it soon; `download` resumes it."""
        if key in self._jobs:
            self._jobs[key].stop()

    def discard(self, key: tuple[str, str]) -> None:
        """Cancel it and delete the partial download."""
        self._discarded.add(key)
        if key in self._jobs:
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
        ended = [self._questions.close(), self._fetches.close()]  # both, even if the first one hangs
        return all(ended)

    def _remove(self, key: tuple[str, str]) -> None:
        self._discarded.discard(key)
        fetching = self._downloads.pop(key, None)
        if fetching is not None:
            choice, folder = fetching.choice, self._folder
            self._ask("discard", lambda stop: self._api.discard(choice, folder), lambda _nothing: None)
        self._announce()

    def _on_progress(self, key: tuple[str, str], event: Downloading | Downloaded) -> None:
        if isinstance(event, Downloaded):
            self._change(key, state="finished", path=event.path, done=self._downloads[key].total, sentence="")
        else:
            total = event.total or self._downloads[key].total
            self._change(key, state="running", done=event.done, total=total, sentence=event.stage)

    def _on_fetched(self, key: tuple[str, str]) -> None:
        del self._jobs[key]
        fetching = self._downloads[key]
        if fetching.state == "finished":
            self._discarded.discard(key)
            self.finished.emit(fetching.path)
        else:
            self._stopped(key)

    def _on_fetch_failed(self, key: tuple[str, str], sentence: str) -> None:
        if self._jobs.pop(key).stopping:
            self._stopped(key)
        else:
            self._change(key, state="failed", sentence=sentence)

    def _stopped(self, key: tuple[str, str]) -> None:
        if key in self._discarded:
            self._remove(key)
        else:
            self._change(key, state="paused", sentence="")

    def _change(self, key: tuple[str, str], **what: Any) -> None:
        self._downloads[key] = self._downloads[key]._replace(**what)
        self._announce()

    def _announce(self) -> None:
        self.downloads_changed.emit(self.downloads)
