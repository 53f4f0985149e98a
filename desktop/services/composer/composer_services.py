"""What helps to write to the model, made together: files for the next message, messages that wait, saved
prompts.
"""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QObject

from desktop.services.composer.attachments import AttachmentService
from desktop.services.composer.draft_attachments import DraftAttachments
from desktop.services.composer.queue import MessageQueue
from desktop.services.composer.saved_prompts import SavedPromptService
from desktop.services.session.auto_turns import AutomaticTurns
from desktop.services.session.chat_session import ChatSession

__all__ = ["ComposerServices", "make_composer_services"]


@dataclass(frozen=True)
class ComposerServices:
    """The services of the composer."""

    attachments: AttachmentService
    queue: MessageQueue
    prompts: SavedPromptService
    turns: AutomaticTurns
    draft_files: DraftAttachments

    def move(self, before: int, now: int) -> None:
        """What waits for one chat waits for another one from now on: its files and its messages."""
        self.attachments.move(before, now)
        self.queue.move(before, now)

    def close(self) -> bool:
        """End their threads."""
        return self.attachments.close()


def make_composer_services(session: ChatSession, parent: QObject) -> ComposerServices:
    """All of them over one session."""
    attachments, queue = AttachmentService(session, parent), MessageQueue(session, parent)
    prompts, turns = (
        SavedPromptService(session.stores.database, parent),
        AutomaticTurns(session, queue, parent),
    )
    return ComposerServices(
        attachments, queue, prompts, turns, DraftAttachments(session, attachments, parent)
    )
