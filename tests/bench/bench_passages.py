"""How often the passage that answers a question is among the first ones: by words, by meaning, and by both.

    python -m tests.bench.bench_passages [MODEL]

The texts are this project's own documents, cut as attached files are; the questions say in other words what a
passage says. MODEL is an embedding model (GGUF or a folder); without one, only words are measured. A question
whose answer is no longer in its text is left out. The last line is one JSON object with the shares of
questions whose passage is among the first 1, 3 and 8, and with a model the shares of the questions and of
small talk that are taken for questions when they follow later in a chat.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from desktop.services.composer.meaning import open_embedder
from desktop.services.composer.small_talk import SENTENCES, is_small_talk
from desktop.store.attachments.passages import matching, passages
from engine.drain import drain

ROOT = Path(__file__).parents[2]
FIRST = (1, 3, 8)
QUESTIONS = {
    "README.md": (
        ("Does it report anything about me to its makers?", "no telemetry"),
        ("How much room does it take on my hard drive?", "GB of disk space"),
        ("Why is it slow when I launch it for the very first time?", "first start compiles"),
        ("Can I put an icon for it into my launcher?", "--install-desktop-entry"),
        ("What must I install if my machine has no GNOME or KDE?", "sudo apt install"),
        ("How do I bring over my old conversations from another chatbot?", "chats from ChatGPT"),
        ("Can a blind person operate it?", "screen reader"),
        ("Is there a way to have the answers spoken?", "reads aloud"),
        ("How do I halt an answer while it is being written?", "stop the reply"),
        ("Which folders are searched for networks I already have?", "Hugging Face cache"),
        ("What if the network is too big for my RAM?", "Offload to disk"),
        ("Can fine-tuned add-ons be combined with different intensities?", "each with its own strength"),
    ),
    "CHANGELOG.md": (
        ("Can I compare answers of different temperatures at once?", "Several replies to one message"),
        ("Is there a mode whose conversations leave no trace?", "temporary chats"),
        ("What happens if I attach a whole directory?", "dropped folder of documents"),
        ("Do photos I send reveal my location?", "place and camera"),
        ("Where are login secrets of tool providers stored?", "keyring"),
        ("Does it underline typos?", "Enchant"),
        ("Who names my conversations?", "short title after its first reply"),
    ),
    "engine/server/README.md": (
        ("Which addresses can be reached without authentication?", "these alone need no token"),
        ("What is done when a conversation exceeds the window?", "prompt that is too long is refused"),
        ("How can I reproduce the same answer twice?", "`seed`; with `n` choices"),
        ("How do I force the output to follow a given structure?", "`json_schema`. The reply always fits"),
        ("Are images accepted in requests?", "parts with pictures or sound are refused"),
        ("How long are answers remembered so that they can be continued?", "latest 32 MiB"),
        ("Can I make it ponder less?", "how much the model thinks"),
    ),
}
SMALL_TALK = (
    "Thanks, that was very helpful!", "Thank you so much for the explanation.",
    "Great, that makes a lot of sense now.", "Hello, how are you doing today?",
    "Good morning, I hope you are well.", "Okay, please go on with it.",
    "Can you make that a little shorter?",
    "Please say that again in simpler words.", "Could you translate your last answer into French?",
    "That is wrong, please try again.", "You are right, I did not think of that.",
    "I like this answer much better than the first one.", "Tell me a joke about cats.",
    "What is the capital of France?", "Wow, I did not expect that at all!", "No, that is not what I meant.",
    "Let us talk about something else now.", "Please write it as a bulleted list.",
    "I will come back to you tomorrow.", "Sorry, I made a typing mistake there.",
    "What do you think about the weather?", "Haha, that is really funny!",
    "Could you be more precise, please?", "Who are you and who made you?", "Bye, see you later my friend.",
    "That sounds like a good plan to me.",
)  # fmt: skip
"""None of it is among the sentences that small talk is known by."""


class Asked(NamedTuple):
    """A question, the pieces of its text, and the numbers of those that answer it."""

    question: str
    pieces: Sequence[str]
    answers: frozenset[int]


def asked() -> list[Asked]:
    """The questions that the texts still answer. A phrase may stand across two lines, or in two passages."""
    found = []
    for name, questions in QUESTIONS.items():
        pieces = passages((ROOT / name).read_text("utf-8"))
        flat = [" ".join(piece.split()) for piece in pieces]
        for question, phrase in questions:
            answers = frozenset(number for number, piece in enumerate(flat) if phrase in piece)
            if answers:
                found.append(Asked(question, pieces, answers))
    return found


def by_meaning(path: Path, questions: Sequence[Asked]) -> list[list[int]]:
    """The numbers of the pieces for each question, the nearest first."""
    model, known, orders = drain(open_embedder(path, threading.Event())), {}, []
    try:
        for each in questions:
            for piece in each.pieces:
                if piece not in known:
                    known[piece] = drain(model.vector(piece, "document"))
            near = np.stack([known[piece] for piece in each.pieces]) @ drain(
                model.vector(each.question, "query")
            )
            orders.append([int(number) for number in np.argsort(-near, kind="stable")])
    finally:
        model.close()
    return orders


def taken_for_questions(path: Path, messages: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """The shares of messages that are no small talk, as later questions."""
    model, found = drain(open_embedder(path, threading.Event())), dict[str, float]()
    try:
        known = np.stack([drain(model.vector(each, "query")) for each in SENTENCES])
        for kind, texts in messages.items():
            asks = [not is_small_talk(each, drain(model.vector(each, "query")), known) for each in texts]
            found[kind] = round(sum(asks) / len(asks), 3)
    finally:
        model.close()
    return found


def shares(questions: Sequence[Asked], orders: Sequence[Sequence[int]]) -> dict[str, float]:
    """The share of the questions with an answer among the first pieces, for each of `FIRST`."""
    return {
        str(most): round(
            sum(
                not each.answers.isdisjoint(order[:most])
                for each, order in zip(questions, orders, strict=True)
            )
            / len(questions),
            3,
        )
        for most in FIRST
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", nargs="?", type=Path, metavar="MODEL")
    path = parser.parse_args(arguments).model
    questions = asked()
    words = [matching(each.pieces, each.question) for each in questions]
    found: dict[str, object] = {"questions": len(questions), "words": shares(questions, words)}
    if path is not None:
        began = time.perf_counter()
        meaning = by_meaning(path, questions)
        both = [
            matching(each.pieces, each.question, order)
            for each, order in zip(questions, meaning, strict=True)
        ]
        found |= {
            "model": path.name, "meaning": shares(questions, meaning), "both": shares(questions, both),
            "taken for questions": taken_for_questions(
                path, {"questions": [each.question for each in questions], "small talk": SMALL_TALK}
            ),
            "seconds": round(time.perf_counter() - began, 1),
        }  # fmt: skip
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
