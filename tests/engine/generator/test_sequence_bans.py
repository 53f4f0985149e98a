"""Banned strings in a whole sequence: what is shown, which ids it has, and that nothing banned appears,
over random token boundaries.
"""

from __future__ import annotations

import random
from functools import cache

import numpy as np
import pytest

from engine.errors import NothingAllowed
from engine.generator.params import GenerationParams
from engine.generator.sequence import TokenSequence
from engine.settings import SamplerSettings
from engine.text.stops.conditions import StopRules
from engine.text.tokenizer.tokenizer import Tokenizer
from tests.engine.text.tokenizer.vocabularies import byte_level_metadata


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer.from_gguf(byte_level_metadata())


@pytest.mark.slow_after(60)
@pytest.mark.parametrize("seed", range(250))
def test_text_and_ids_agree_and_nothing_banned_is_shown(seed: int) -> None:
    draw = random.Random(seed)
    banned = tuple("".join(draw.choices("ab", k=draw.randrange(2, 4))) for _ in range(draw.randrange(1, 3)))
    stops = tuple("".join(draw.choices("abcx", k=3)) for _ in range(2))
    sampler = SamplerSettings(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0)
    sequence = TokenSequence(
        tokenizer(),
        [50],
        GenerationParams(sampler, seed, StopRules(frozenset(), stops, max_tokens=14), banned=banned),
        context_length=1000,
    )
    words = (b"a", b"b", b"c", b"x", b"ab", b"ba", b"aa", b"bb")
    usable = [i for i in range(tokenizer().vocab_size) if tokenizer().token_bytes(i) in words]
    text, ids = "", []
    while True:
        logits = np.full(tokenizer().vocab_size, -50, np.float32)
        logits[usable] = np.random.default_rng((seed, len(sequence.ids))).normal(size=len(usable))
        try:
            output = sequence.decide(logits)
        except NothingAllowed:
            return
        text += output.text
        ids += [token.info.id for token in output.tokens]
        if output.reason:
            break
    whole = tokenizer().decode(sequence.ids[1:])
    end = min((at for stop in stops if (at := whole.find(stop)) >= 0), default=len(whole))
    assert text == whole[:end]
    assert tokenizer().decode(ids).startswith(text)
    assert sequence.ids[1 : 1 + len(ids)] == ids
    assert not any(string in text for string in banned)
