"""Work that tells what may follow a text: the model's own distribution of the next token."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Generator
from typing import Any

from engine.chat import LocalChat
from engine.chat.own_pages import own_pages
from engine.core import Waiting
from engine.generator.decode import check_prompt
from engine.server.host import Work
from engine.server.texts.scoring import ROWS, prompt_ids, row_score
from engine.text.tokenizer.aside import encoded_aside


def next_token_work(prompt: str, count: int) -> Work:
    """The work that yields one event, the JSON of an object: the texts of the `count` likeliest tokens after
    `prompt`, likeliest first, and their probabilities. Tokens of the same text count together.
    """

    def work(chat: LocalChat, stop: threading.Event) -> Generator[Any, None, None]:
        chat.check_writes()
        ids = yield from encoded_aside(chat.tokenizer, lambda: prompt_ids(chat, prompt), chat.context_length)
        cache = chat.generator.cache
        vocabulary = chat.vocabulary
        check_prompt(ids, vocabulary, chat.context_length)
        with own_pages(chat, len(ids)) as ready:
            lease = yield from ready
            while lease.length < len(ids):
                part = ids[lease.length : lease.length + min(ROWS, cache.rows)]
                (row,) = cache.run(lease, part, logit_rows=1)
                yield Waiting()
            found: dict[str, float] = {}
            for one in row_score(chat, row, ids[-1], min(count, vocabulary)).top:
                found[one.text] = found.get(one.text, 0.0) + math.exp(one.logprob or 0.0)
        yield json.dumps(found)

    return work
