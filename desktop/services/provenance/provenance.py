"""What replies were made from: recorded when they begin, and available for display and replay."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from PySide6.QtCore import QObject, Slot

from desktop.services.engine.token_cache import STRETCH, WRITTEN
from desktop.services.models.file_hashes import HashService
from desktop.services.session.chat_session import ChatSession
from desktop.store.caches.file_hashes import identity
from desktop.store.conversations.records import StoredMessage
from desktop.store.conversations.token_trace import TokenTrace
from desktop.store.database.database import StoreError
from desktop.store.provenance.provenance import Provenance
from engine.core import ChatRequest, ModelInfo, Picture, Rendered
from engine.platform.version import version
from engine.settings import Settings

__all__ = ["FACTS", "ProvenanceService", "ReplyProvenance"]

log = logging.getLogger(__name__)

FACTS = (
    "path", "name", "architecture", "format", "quantisation", "bits_per_weight", "parameters",
    "weights_bytes", "context_length", "backend", "where", "threads", "size", "server", "host",
    "server_version",
)  # fmt: skip
"""Fields of the model's `ModelInfo` that are recorded."""
_OF_REQUEST = ("sampler", "stops", "speculation", "constraint", "guidance", "output", "adapters", "thinking")


class ReplyProvenance(NamedTuple):
    """A reply with what it was made from; `provenance` is None if that was not recorded.

    `hash` is "" while it is not known, as is `vision_hash`, that of `vision_path`.
    """

    message: StoredMessage
    provenance: Provenance | None
    trace: TokenTrace | None
    hash: str = ""
    vision_hash: str = ""

    @property
    def path(self) -> str:
        """The file or folder of the model; "" for a model of a server."""
        return "" if self.server else str(self.model.get("path", ""))

    @property
    def server(self) -> str:
        """The server that wrote it, for a model of one."""
        return str(self.model.get("server", ""))

    @property
    def model(self) -> Mapping[str, Any]:
        """The recorded facts about the model."""
        found = self.provenance.facts.get("model", {}) if self.provenance is not None else {}
        return found if isinstance(found, dict) else {}

    @property
    def vision(self) -> Mapping[str, Any]:
        """The recorded facts about the file (mmproj) of the vision encoder that read its pictures: path,
        size in bytes, and identity; empty if it was no such file, or there were no pictures.
        """
        found = self.provenance.facts.get("vision", {}) if self.provenance is not None else {}
        return found if isinstance(found, dict) else {}

    @property
    def vision_path(self) -> str:
        """That file; "" if there was none."""
        return str(self.vision.get("path", ""))

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """The pictures that its prompt was made with, without their bytes."""
        kept = self.provenance.facts.get("pictures", ()) if self.provenance is not None else ()
        return tuple(
            Picture("", each[0], each[1], each[2])
            for each in kept
            if isinstance(each, list) and list(map(type, each)) == [str, int, int]
        )

    @property
    def expected(self) -> tuple[int, ...]:
        """The ids of the tokens generated after the prompt."""
        trace, first = self.trace, self.known
        if trace is None or self.provenance is None or not self.provenance.facts.get("plain"):
            return tuple(trace.ids[first:]) if trace is not None else ()
        stretch, last = self.message.stats.get(STRETCH), first + int(self.message.stats.get(WRITTEN, 0))
        if not first < last <= len(trace) or stretch != [trace.starts[first], trace.end(last - 1)]:
            return ()  # the document was edited before or within the stretch
        return tuple(trace.ids[first:last])

    @property
    def known(self) -> int:
        """The number of tokens in the trace that existed before the reply began."""
        return int(self.provenance.facts.get("known", 0)) if self.provenance is not None else 0

    def settings(self, cls: type[Settings]) -> dict[str, Any]:
        """The values of a settings class that were used."""
        kept = self.provenance.facts.get("settings", {}) if self.provenance is not None else {}
        found = kept.get(cls.__name__, {}) if isinstance(kept, dict) else {}
        return dict(found) if isinstance(found, dict) else {}


class ProvenanceService(QObject):
    """Records the provenance of every reply of `session` when it begins; if the store fails, it stays in
    memory.
    """

    def __init__(self, session: ChatSession, hashes: HashService, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session, self.hashes = session, hashes
        self._begun: dict[int, dict[str, Any]] = {}
        self._unsaved: dict[int, Provenance] = {}
        self._identities: dict[str, str] = {}
        self._vision_identity = ""
        session.model_changed.connect(self._on_model)
        session.replies.begun.connect(self._on_begun)
        session.replies.rendered.connect(self._on_rendered)
        session.replies.ended.connect(self._on_ended)

    def of(self, message_id: int) -> ReplyProvenance:
        """Everything known about a reply. Raises `StoreError`."""
        stores = self._session.stores
        provenance = self._unsaved.get(message_id) or stores.provenance(message_id).load(message_id)
        found = ReplyProvenance(
            stores.of(message_id).message(message_id), provenance, self._session.tokens(message_id)
        )
        if not found.path:
            return found
        return found._replace(
            hash=self.hashes.hash_of(found.path, str(found.model.get("identity", ""))),
            vision_hash=(
                self.hashes.hash_of(found.vision_path, str(found.vision.get("identity", "")))
                if found.vision_path
                else ""
            ),
        )

    def identity_of_loaded(self) -> str:
        """The identity of the loaded model's files; "" if none is loaded."""
        return next(iter(self._identities.values()), "")

    def vision_identity_of_loaded(self) -> str:
        """That of the loaded model's vision encoder; "" if no model is loaded or it has no such file."""
        return self._vision_identity

    def compute_hash(self, reply: ReplyProvenance) -> bool:
        """Compute the hash of the model's files; False if they have changed or are gone."""
        return self._compute(reply.path, reply.model)

    def compute_vision_hash(self, reply: ReplyProvenance) -> bool:
        """The same for the file of its vision encoder."""
        return self._compute(reply.vision_path, reply.vision)

    def _compute(self, path: str, facts: Mapping[str, Any]) -> bool:
        same = bool(path) and identity(Path(path)) == facts.get("identity")
        if same:
            self.hashes.compute(path)
        return same

    @Slot(object)
    def _on_model(self, model: ModelInfo | None) -> None:
        """Remember the files as they were loaded: if they are replaced later, that is another model."""
        has_files = model is not None and not model.host
        self._identities = {model.path: identity(Path(model.path))} if model and has_files else {}
        vision = model.vision_file if model is not None else ""
        self._vision_identity = identity(Path(vision)) if vision else ""

    @Slot(int, object, int)
    def _on_begun(self, message_id: int, request: ChatRequest, known: int) -> None:
        session, model = self._session, self._session.model
        settings: dict[str, Any] = {
            type(each).__name__: each.to_json() for each in (getattr(request, name) for name in _OF_REQUEST)
        }
        settings |= {type(each).__name__: each.to_json() for each in session.loaded_with}
        facts: dict[str, Any] = {
            "engine": version(), "started": time.time(), "known": known, "plain": request.plain,
            "settings": settings,
        }  # fmt: skip
        pictures = {
            each.key: [each.key, each.width, each.height]
            for message in request.messages
            for each in message.pictures
            if each.data
        }
        if pictures and model is not None and not model.host:
            facts["pictures"] = list(pictures.values())
            if model.vision_file:
                facts["vision"] = {
                    "path": model.vision_file, "size": model.vision_file_bytes,
                    "identity": self._vision_identity,
                }  # fmt: skip
        if model is not None:
            about = {name: getattr(model, name) for name in FACTS}
            facts["model"] = {**about, "identity": self._identities.get(model.path, "")}
        self._begun[message_id] = facts

    @Slot(int, object)
    def _on_rendered(self, message_id: int, prompt: Rendered) -> None:
        self._keep(message_id, prompt)

    @Slot(int, int)
    def _on_ended(self, _conversation: int, message_id: int) -> None:
        self._keep(message_id, None)
        for waiting in tuple(self._unsaved):
            self._save(waiting)

    def _keep(self, message_id: int, prompt: Rendered | None) -> None:
        facts = self._begun.pop(message_id, None)
        if facts is not None:
            self._unsaved[message_id] = Provenance(facts, prompt)
            self._save(message_id)

    def _save(self, message_id: int) -> None:
        try:
            self._session.stores.provenance(message_id).save(message_id, self._unsaved[message_id])
        except StoreError as error:
            log.warning("could not save the provenance of reply %d yet: %s", message_id, error)
            return
        del self._unsaved[message_id]
