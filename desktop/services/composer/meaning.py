"""Finds the passages of files by meaning: an embedding model makes vectors of them and of the question.

The model runs on the engine's thread between the steps of replies, and is closed when the vectors are made.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from desktop.items.models.local_models import ModelEntry
from desktop.services.composer.small_talk import SENTENCES, is_small_talk
from desktop.services.models.local_models import LocalModelsService
from desktop.services.session.chat_session import ChatSession
from desktop.store.attachments.message_format import Attachment
from desktop.store.attachments.passages import passages
from desktop.store.caches.file_hashes import identity
from desktop.store.caches.vectors import FILE_NAME, VectorStore
from engine.drain import mapped
from engine.errors import Cancelled
from engine.platform.folders import cache_dir
from engine.words import _

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["WORDS_ONLY", "Embedder", "MeaningService", "OpenEmbedder", "open_embedder"]

WORDS_ONLY = "words"
"""The choice of no embedding model at all, in place of its path; "" is the smallest one."""
_MOST_PIECES = 4000
"""Of a file: about a thousand pages, and minutes. The rest of a longer one is found by words only."""
Progress = Callable[[int], object]
"""Gets how much is done, in percent."""
Orders = tuple[tuple[int, ...], ...]
"""The numbers of the passages of each file, those nearest in meaning first."""
Ranked = Callable[[Orders, str], object]
"""Gets the orders, and the sentence of an error."""


class Embedder(Protocol):
    """A loaded embedding model."""

    def vector(
        self, text: str, role: Literal["query", "document"]
    ) -> Generator[Any, None, npt.NDArray[np.floating[Any]]]:
        """The vector of a text, of length 1; yields between steps."""
        ...

    def close(self) -> None:
        """Give its memory back."""
        ...


OpenEmbedder = Callable[[Path, threading.Event], Generator[Any, None, Embedder]]
"""Loads an embedding model; yields between steps. Raises `EngineError`."""


def open_embedder(path: Path, stop: threading.Event) -> Generator[Any, None, Embedder]:
    """`engine.open_chat` on the processor, where a small model is fast and takes nothing from the chat's."""
    from engine.chat import LocalChat, open_chat, text_vector
    from engine.settings import LoadSettings

    class Local:
        def __init__(self, chat: LocalChat) -> None:
            self._chat = chat
            self.close = chat.close

        def vector(
            self, text: str, role: Literal["query", "document"]
        ) -> Generator[Any, None, npt.NDArray[np.floating[Any]]]:
            return text_vector(self._chat, text, role)

    return Local((yield from open_chat(path, LoadSettings(backend="cpu"), stop=stop)))


class MeaningService:
    """Ranks the passages of files with the embedding model that the user chose, or the smallest one.

    The vectors of files are kept in `folder`, but not those of temporary chats.
    """

    def __init__(
        self,
        session: ChatSession,
        models: LocalModelsService,
        open_model: OpenEmbedder = open_embedder,
        folder: Path | None = None,
    ) -> None:
        self._session, self._models, self._open = session, models, open_model
        self._folder = folder
        self._stop: Callable[[], object] | None = None
        self._looked, self._waiting = False, list[Callable[[], object]]()
        self.look: Callable[[], object] = lambda: None
        """Searches this computer for models."""
        models.finished.connect(self._on_found)

    def choices(self) -> tuple[ModelEntry, ...]:
        """The embedding models on this computer, the smallest first."""
        found = [
            each
            for each in self._models.entries
            if each.info is not None and each.info.embedding and not each.trouble
        ]
        return tuple(sorted(found, key=lambda each: each.info.size if each.info is not None else 0))

    @property
    def choice(self) -> str:
        """`WORDS_ONLY`, "" for the smallest model, or the path of one."""
        return self._session.preferences.passage_model

    def choose(self, choice: str) -> None:
        self._session.preferences.set_passage_model(choice)

    def model(self) -> ModelEntry | None:
        """The model that is used; None for words only. If the chosen one is gone, it is the smallest."""
        if self.choice == WORDS_ONLY:
            return None
        found = self.choices()
        return next((each for each in found if each.path == self.choice), found[0] if found else None)

    def when_known(self, then: Callable[[], object]) -> None:
        """Call `then` when the models on this computer are known, at once if they are; not after `stop`."""
        if not self._looked and not self.choices() and self.choice != WORDS_ONLY:
            self._looked = True
            if not self._models.searching:
                self.look()
        if self._models.searching and self.choice != WORDS_ONLY:
            self._waiting = [then]
        else:
            then()

    def _on_found(self) -> None:
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()

    def rank(
        self,
        model: ModelEntry,
        files: Sequence[Attachment],
        question: str,
        keep: bool,
        progress: Progress,
        ended: Ranked,
        small_talk: Callable[[], object] | None = None,
    ) -> None:
        """Rank the passages of files by their nearness to a question; `keep` their vectors on disk. `ended`
        is not called after `stop`.

        Of a later question, whose message waits, `small_talk` is called in place of `ended` if it is small
        talk, and `stop` ends it without orders. No file is read for it: there are no orders if the vectors
        of one are not on disk.
        """
        self.stop()
        path, pieces = Path(model.path), [_pieces(file) for file in files]
        later = small_talk is not None

        def work(_source: object, stop: threading.Event) -> Generator[Any, None, Orders | None]:
            def check() -> None:
                if stop.is_set():
                    raise Cancelled(_("Reading {name} was stopped.", name=model.name))

            store = VectorStore((self._folder or cache_dir()) / FILE_NAME) if keep else None
            try:
                steps = _ranked(self._open(path, stop), identity(path), pieces, question, store, later)
                return (yield from mapped(steps, lambda event: event, check))
            finally:
                if store is not None:
                    store.close()

        stopped = False

        def on_event(event: object) -> None:
            if isinstance(event, int) and not stopped:
                progress(event)

        def on_ended(result: Any, sentence: str) -> None:
            if not stopped:
                self._stop = None
                if small_talk is not None and result is None and not sentence:
                    small_talk()
                else:
                    ended(result or (), sentence)

        job = self._session.replies.engine.ask(work, on_event, on_ended)

        def stop() -> None:
            nonlocal stopped
            stopped = True
            job.stop()
            if later:
                ended((), "")

        self._stop = stop

    def stop(self) -> None:
        """Stop ranking."""
        self._waiting = []
        stop, self._stop = self._stop, None
        if stop is not None:
            stop()

    @property
    def running(self) -> bool:
        """Whether something is ranked, or models are searched for that."""
        return self._stop is not None or bool(self._waiting)


def _pieces(file: Attachment) -> list[str]:
    """The passages of a file; none of a picture."""
    return passages(file.text)[:_MOST_PIECES] if file.picture is None else []


def _ranked(
    opening: Generator[Any, None, Embedder],
    key: str,
    texts: Sequence[Sequence[str]],
    question: str,
    store: VectorStore | None,
    later: bool = False,
) -> Generator[Any, None, Orders | None]:
    """The numbers of the pieces of each text, the nearest to the question first; yields percents. `key`
    identifies the model. For a `later` question there are no orders if the vectors of a text are not in the
    store, and None if it is small talk.
    """
    import numpy as np

    known = [store.get(key, pieces) if store is not None and pieces else None for pieces in texts]
    total = sum(len(pieces) for pieces, vectors in zip(texts, known, strict=True) if vectors is None)
    done, orders = 0, list[tuple[int, ...]]()
    if later and total:
        opening.close()
        return ()
    yield 0
    model = yield from opening
    try:
        asked = yield from model.vector(question, "query")
        if later and is_small_talk(question, asked, (yield from _sentences(model, key, store))):
            return None
        for pieces, vectors in zip(texts, known, strict=True):
            if not pieces:
                orders.append(())
                continue
            if vectors is None:
                rows = []
                for piece in pieces:
                    rows.append((yield from model.vector(piece, "document")).astype(np.float16))
                    done += 1
                    yield 100 * done // total
                vectors = np.stack(rows)
                if store is not None:
                    store.put(key, pieces, vectors)
            near = vectors.astype(np.float32) @ asked.astype(np.float32)
            orders.append(tuple(int(number) for number in np.argsort(-near, kind="stable")))
        return tuple(orders)
    finally:
        model.close()


def _sentences(
    model: Embedder, key: str, store: VectorStore | None
) -> Generator[Any, None, npt.NDArray[np.floating[Any]]]:
    """The vectors of `SENTENCES`, (N, E) float16, which are kept in the store."""
    import numpy as np

    known = store.get(key, SENTENCES) if store is not None else None
    if known is None:
        rows = []
        for sentence in SENTENCES:
            rows.append((yield from model.vector(sentence, "query")).astype(np.float16))
        known = np.stack(rows)
        if store is not None:
            store.put(key, SENTENCES, known)
    return known
