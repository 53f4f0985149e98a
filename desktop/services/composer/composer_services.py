"""The services of the composer: files for the next message, queued messages, saved prompts, spelling."""

from __future__ import annotations

from typing import NamedTuple

from PySide6.QtCore import QObject

from desktop.services.composer.attachments import AttachmentService
from desktop.services.composer.draft_attachments import DraftAttachments
from desktop.services.composer.fitting import FittingService
from desktop.services.composer.follow_ups import FollowUps
from desktop.services.composer.meaning import MeaningService, OpenEmbedder, open_embedder
from desktop.services.composer.queue import MessageQueue
from desktop.services.composer.saved_prompts import SavedPromptService
from desktop.services.composer.spelling import SpellingService
from desktop.services.composer.unread_files import UnreadFiles
from desktop.services.models.local_models import LocalModelsService
from desktop.services.session.auto_turns import AutomaticTurns
from desktop.services.session.chat_session import ChatSession

__all__ = ["ComposerServices", "make_composer_services"]


class ComposerServices(NamedTuple):
    attachments: AttachmentService
    fitting: FittingService
    queue: MessageQueue
    prompts: SavedPromptService
    turns: AutomaticTurns
    draft_files: DraftAttachments
    spelling: SpellingService
    follow_ups: FollowUps
    unread: UnreadFiles

    def move(self, before: int, now: int) -> None:
        """Move the files and queued messages of one chat to another."""
        self.attachments.move(before, now)
        self.queue.move(before, now)

    def close(self) -> bool:
        """End their threads."""
        self.unread.close()
        return all([self.attachments.close(), self.spelling.close(), self.follow_ups.close()])


def make_composer_services(
    session: ChatSession,
    parent: QObject,
    models: LocalModelsService | None = None,
    open_model: OpenEmbedder = open_embedder,
) -> ComposerServices:
    """Create all of them for one session; without `models`, passages are found by words only."""
    meaning = MeaningService(session, models, open_model) if models is not None else None
    attachments, queue = AttachmentService(session, parent), MessageQueue(session, parent)
    prompts, turns = (
        SavedPromptService(session.stores.database, parent),
        AutomaticTurns(session, queue, parent),
    )
    fitting = FittingService(session, attachments, meaning, parent)
    return ComposerServices(
        attachments,
        fitting,
        queue,
        prompts,
        turns,
        DraftAttachments(session, attachments, parent),
        SpellingService(session, parent),
        FollowUps(session, attachments, fitting, parent),
        UnreadFiles(session, attachments, parent),
    )
