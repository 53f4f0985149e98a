"""The draft model of a chat: loaded when a request asks for it, checked against the target model, and
released when it is no longer needed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING

from engine.core import Loading
from engine.drain import mapped
from engine.errors import BadSetting, Cancelled, forget_frames
from engine.settings import LoadSettings, SpeculationSettings
from engine.text.tokenizer.tokenizer import Tokenizer
from engine.words import _

if TYPE_CHECKING:
    from engine.backends.base import Backend
    from engine.generator.drafting.drafters import Drafters
    from engine.models.base import Model


_HEAD = "\0head"
"""Stands for a path: the model's own head."""


class DraftSlot:
    """Holds at most one draft model for the drafters of one generator."""

    def __init__(
        self,
        drafters: Drafters,
        tokenizer: Tokenizer,
        load: LoadSettings = LoadSettings(),
        main: Model | None = None,
        own: str = "",
    ) -> None:
        """`main` is the target model and `own` its file or folder, for drafting with its own head."""
        self._drafters = drafters
        self._main, self._own = main, own
        self._tokenizer = tokenizer
        self._load = load
        self._path = ""
        self._model: Model | None = None

    def holds(self, settings: SpeculationSettings) -> bool:
        """Whether a reply with these settings can start while others are written."""
        return settings.method not in ("model", "mtp") or self._key(settings) == self._path

    @staticmethod
    def _key(settings: SpeculationSettings) -> str:
        """What is to be loaded: the path of a draft model, `_HEAD`, or nothing."""
        return {"model": settings.draft_model, "mtp": _HEAD}.get(settings.method, "")

    def fit(self, settings: SpeculationSettings, stop: threading.Event) -> Generator[Loading, None, None]:
        """Load the draft model that `settings` name, or the model's own head, and release the one before.

        Raises `BadSetting` if none is named or its vocabulary does not match, `Cancelled` when `stop` was
        set, and what loading raises.
        """
        path = self._key(settings)
        if settings.method == "model" and not path:
            raise BadSetting(
                _(
                    "Drafting with a draft model is on, but no draft model is chosen; choose one, or "
                    "turn off drafting."
                )
            )
        if path == self._path:
            return
        self.close()
        if path:
            yield from self._open_head(stop) if path == _HEAD else self._open(path, stop)
            self._path = path
        else:
            self._drafters.keep_nothing()

    def _open_head(self, stop: threading.Event) -> Generator[Loading, None, None]:
        from engine.models import preparation
        from engine.models.drafting.mtp import read_head
        from engine.weights.checkpoint import open_checkpoint

        assert self._main is not None
        checkpoint = open_checkpoint(Path(self._own))
        try:
            prepare = preparation(checkpoint, self._load)
            yield from self._set(read_head(checkpoint, self._main, prepare), self._main.backend, stop)
        finally:
            checkpoint.close()

    def _open(self, path: str, stop: threading.Event) -> Generator[Loading, None, None]:
        # Imported here, so that importing this module does not import Numba and torch.
        from engine.backends import make_backend
        from engine.models import preparation, read_model
        from engine.models.architectures.drafters.names import is_dflash, is_drafter, is_eagle3
        from engine.models.drafting.assistant import read_assistant
        from engine.models.drafting.dflash import read_dflash
        from engine.models.drafting.eagle3 import read_eagle3
        from engine.models.open_text import open_tokenizer
        from engine.speculation.compatible import draft_problem
        from engine.weights.checkpoint import open_checkpoint
        from engine.weights.gguf.ollama import known_name

        checkpoint = open_checkpoint(Path(path))
        try:
            if is_drafter(checkpoint):
                assert self._main is not None
                read: Callable[..., Generator[Loading, None, Model]] = read_assistant
                if is_eagle3(checkpoint) or is_dflash(checkpoint):
                    read = read_eagle3 if is_eagle3(checkpoint) else read_dflash
                loading = read(checkpoint, self._main, preparation(checkpoint, self._load))
                yield from self._set(loading, self._main.backend, stop)
                return
            problem = draft_problem(self._tokenizer, open_tokenizer(checkpoint))
            if problem:
                raise BadSetting(
                    _(
                        "{name} cannot draft for this model: {problem}",
                        name=known_name(checkpoint.path),
                        problem=problem,
                    )
                )
            backend = make_backend(self._load)
            prepare = preparation(checkpoint, self._load)
            yield from self._set(read_model(checkpoint, backend, prepare=prepare), backend, stop)
        finally:
            checkpoint.close()

    def _set(
        self, loading: Generator[Loading, None, Model], backend: Backend, stop: threading.Event
    ) -> Generator[Loading, None, None]:
        """Load the model and give it to the drafters; `backend` gives back what a failure leaves."""

        def check() -> None:
            if stop.is_set():
                raise Cancelled(_("Loading the draft model was stopped."))

        try:
            model = yield from mapped(
                loading,
                lambda at: Loading(
                    _("Draft model: {stage}", stage=at.stage), at.done, at.total, of_draft=True
                ),
                check,
            )
            try:
                self._drafters.set_model(model)
            except BaseException:
                model.close()
                raise
        except BaseException as error:
            forget_frames(error)  # which hold what was loaded
            backend.trim()
            raise
        self._model = model

    def close(self) -> None:
        """Release the draft model, if any."""
        self._path = ""
        self._drafters.drop_model()
        if self._model is not None:
            self._model.close()
        self._model = None
