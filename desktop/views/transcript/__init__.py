"""The transcript: a conversation as a list of block rows, of which only those near the screen exist as
widgets.
"""

from desktop.views.transcript.style import TranscriptColours
from desktop.views.transcript.view import TranscriptView

__all__ = ["TranscriptColours", "TranscriptView"]
