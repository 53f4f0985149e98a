"""Tells small talk, and wishes about the last reply, from questions about a file by an embedding model.

How near a message is to the passages does not tell. Of all pairs of a question and a message of small talk
in `tests/bench/bench_passages.py`, with the embeddings of SmolLM2's tokens, averaged, 58 % were in the right
order by the nearest passage, 43 % by the rarest word that a passage has, and 95 % by the nearest of
`SENTENCES`. By the bounds below, all of the questions and 19 % of the small talk were taken for questions
(85 % and 12 % whatever their length).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt

    Vectors = npt.NDArray[Any]

__all__ = ["SENTENCES", "is_small_talk"]

SENTENCES = (
    "Thanks a lot!", "Thank you, this helps me.", "Hello! How are you?", "Please continue.",
    "Make it shorter, please.", "Explain that in other words.", "Translate it into German.",
    "That is not right, try again.", "I see, you are right.", "Goodbye, see you soon.", "Tell me a story.",
    "What is your name?", "Hi there, nice to meet you.", "Great, that is exactly what I needed.",
    "Please shorten your answer.", "Can you give me an example?", "Write it as a list.",
    "Are you sure about that?", "Ok.", "No, I meant something else.", "Let me think about it.",
    "How was your day?", "That was funny!", "I am sorry, my mistake.",
)  # fmt: skip


MOST_WORDS = 8
"""A longer message is a question: small talk is short, and passages that nobody needs are a smaller fault
than a question without any.
"""


def is_small_talk(message: str, asked: Vectors, known: Vectors) -> bool:
    """Whether a short message with the vector `asked` (E,) is as near to one of `SENTENCES`, whose vectors
    are `known` (N, E), as half of these are to the nearest other one. All vectors have the length 1.

    A bound from the model's own vectors fits every model; one similarity for all models would fit none.
    """
    if len(message.split()) > MOST_WORDS:
        return False
    import numpy as np

    sentences = known.astype(np.float32)
    near = sentences @ sentences.T
    np.fill_diagonal(near, -1.0)
    nearest = float((sentences @ asked.astype(np.float32)).max())
    return nearest >= float(np.median(near.max(axis=1)))
