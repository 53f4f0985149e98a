"""Keeps the tags in which a transcript finds thoughts those of the model and of the chat's adapters."""

from __future__ import annotations

from desktop.services.session.chat_session import ChatSession
from desktop.views.transcript.view import TranscriptView
from desktop.views.widgets.listening import listen

__all__ = ["keep_thought_tags"]


def keep_thought_tags(session: ChatSession, transcript: TranscriptView) -> None:
    """Set the tags of a transcript that shows the open chat, now and whenever they may have changed."""

    def show() -> None:
        transcript.set_thinking(session.thought_tags)

    def show_again() -> None:
        """Messages may have been shown before the tags of the chat's adapters were known."""
        show()
        marks = {mark for tag in session.thought_tags for mark in tag}
        if any(mark in item.text for item in session.messages.items() for mark in marks):
            transcript.set_model(session.messages)

    listen(transcript, session.adapted_changed, show)
    listen(transcript, session.replies.adapted.found, show_again)
    show()
