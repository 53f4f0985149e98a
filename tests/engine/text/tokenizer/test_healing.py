"""Tokens by their bytes, and streamed text that goes on from a healed token."""

from __future__ import annotations

import gc
import random
import time
import weakref
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.text.tokenizer.detokenizer import Detokenizer
from engine.text.tokenizer.healing import TokenPrefixes
from engine.text.tokenizer.tokenizer import Tokenizer
from tests.engine.text.tokenizer.vocabularies import (
    byte_level_metadata,
    metaspace_json,
    random_text,
    sentencepiece_metadata,
)

KINDS = ["byte-level", "sentencepiece", "metaspace"]


@pytest.fixture(scope="module")
def tokenizers_of(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    folder: Path = tmp_path_factory.mktemp("metaspace")
    (folder / "tokenizer.json").write_text(metaspace_json(), encoding="utf-8")
    return {
        "byte-level": Tokenizer.from_gguf(byte_level_metadata()),
        "sentencepiece": Tokenizer.from_gguf(sentencepiece_metadata()),
        "metaspace": Tokenizer.from_folder(folder),
    }


def by_definition(tokenizer: Tokenizer, prefix: bytes) -> list[int]:
    ids = (id for id in range(tokenizer.vocab_size) if id not in tokenizer.special_ids)
    return [id for id in ids if tokenizer.token_bytes(id) and tokenizer.token_bytes(id).startswith(prefix)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_beginning_of_every_token(tokenizers_of: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = tokenizers_of[kind]
    prefixes = {tokenizer.token_bytes(id)[:n] for id in range(tokenizer.vocab_size) for n in (0, 1, 2, 3, 99)}
    for prefix in sorted(prefixes) + [b"\xff", b"\xff\xff", b"\x00", b"no such token", b"the\xff"]:
        found = TokenPrefixes(tokenizer).starting_with(prefix)
        assert found.dtype == np.int64
        assert found.tolist() == by_definition(tokenizer, prefix)


@pytest.mark.parametrize("kind", KINDS)
def test_exactly_one_text(tokenizers_of: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = tokenizers_of[kind]
    prefixes = TokenPrefixes(tokenizer)
    for id in range(tokenizer.vocab_size):
        data = tokenizer.token_bytes(id)
        if data and id not in tokenizer.special_ids:
            assert list(prefixes.exactly(data)) == [
                i for i in by_definition(tokenizer, data) if tokenizer.token_bytes(i) == data
            ]
    assert prefixes.exactly(b"no such token") == ()


def test_control_tokens_are_left_out(tokenizers_of: dict[str, Tokenizer]) -> None:
    found = TokenPrefixes(tokenizers_of["byte-level"]).starting_with(b"<|im")
    assert not tokenizers_of["byte-level"].special_ids.intersection(found.tolist())


def test_sentencepiece_space_belongs_to_the_bytes(tokenizers_of: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers_of["sentencepiece"]
    id = tokenizer.encode("the")[0]
    assert tokenizer.token_bytes(id)[:1] == b" "
    assert id in TokenPrefixes(tokenizer).starting_with(tokenizer.token_bytes(id))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=150)
@given(seed=st.integers(0, 1 << 20), skip_special=st.booleans())
def test_healed_text_joins_to_the_full_decode(
    tokenizers_of: dict[str, Tokenizer], kind: str, seed: int, skip_special: bool
) -> None:
    """The last prompt token goes and any token that begins with its bytes comes, then any others: the text
    is that of all ids.
    """
    tokenizer, draw = tokenizers_of[kind], random.Random(seed)
    prompt = tokenizer.encode(random_text(draw, 12))[: draw.randrange(1, 9)]
    if not prompt or prompt[-1] in tokenizer.special_ids:
        return
    *before, last = prompt
    prefix = tokenizer.token_bytes(last)
    candidates = TokenPrefixes(tokenizer).starting_with(prefix).tolist()
    assert last in candidates
    ids = [
        draw.choice(candidates),
        *draw.choices(range(tokenizer.vocab_size), k=5),
        *tokenizer.encode(random_text(draw, 9)),
    ]
    detokenizer = Detokenizer(tokenizer, skip_special=skip_special, prompt_ids=before, healed_prefix=prefix)
    new = "".join(map(detokenizer.add, ids)) + detokenizer.finish()
    # The healed bytes were shown already, so what is new is what comes after the whole characters of the
    # prompt's text.
    data = (
        b"".join(
            tokenizer.token_bytes(i) for i in before if not (skip_special and i in tokenizer.special_ids)
        )
        + prefix
    )
    rest = tokenizer.token_bytes(ids[0])[len(prefix) :]
    rest += b"".join(
        tokenizer.token_bytes(i) for i in ids[1:] if not (skip_special and i in tokenizer.special_ids)
    )
    shown = data.decode("utf-8", "replace")
    if shown.endswith("\ufffd") and not data.endswith("\ufffd".encode()):
        return  # an unfinished character: see the test below
    assert shown + new == (data + rest).decode("utf-8", "replace")


def test_prefix_that_ends_inside_a_character(tokenizers_of: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers_of["byte-level"]
    ids = tokenizer.encode("a😀")
    for at in range(1, len(ids)):
        prefix = tokenizer.token_bytes(ids[at])
        healed = Detokenizer(tokenizer, prompt_ids=ids[:at], healed_prefix=prefix)
        plain = Detokenizer(tokenizer, prompt_ids=ids[: at + 1])
        assert [*map(healed.add, ids[at:]), healed.finish()] == [
            "",
            *map(plain.add, ids[at + 1 :]),
            plain.finish(),
        ]


def test_first_token_must_begin_with_the_healed_bytes(tokenizers_of: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers_of["byte-level"]
    detokenizer = Detokenizer(tokenizer, prompt_ids=[9], healed_prefix=b" th")
    with pytest.raises(ValueError, match="does not begin"):
        detokenizer.add(tokenizer.encode("x")[0])


def test_healed_first_word_keeps_its_hidden_space(tokenizers_of: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers_of["sentencepiece"]
    the = tokenizer.encode("the")[0]
    detokenizer = Detokenizer(tokenizer, healed_prefix=b" ")
    assert detokenizer.add(the) == "the"
    assert detokenizer.add(the) == " the"


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_snapshots(tokenizers_of: dict[str, Tokenizer], kind: str, data: st.DataObject) -> None:
    tokenizer = tokenizers_of[kind]
    some = st.lists(st.integers(0, tokenizer.vocab_size), max_size=6)
    first, aside, then = data.draw(some), data.draw(some), data.draw(some)
    detokenizer = Detokenizer(tokenizer)
    begin = "".join(map(detokenizer.add, first))
    snapshot = detokenizer.snapshot()
    for _ in range(2):
        "".join(map(detokenizer.add, aside))
        detokenizer.finish()
        detokenizer.restore(snapshot)
    assert begin + "".join(map(detokenizer.add, then)) + detokenizer.finish() == tokenizer.decode(
        first + then
    )


@pytest.mark.slow
def test_index_of_a_large_vocabulary_is_quick_and_goes_with_its_tokenizer() -> None:
    class Large:
        """256k tokens, as the largest vocabularies have."""

        vocab_size, special_ids = 1 << 18, frozenset((0,))

        def token_bytes(self, id: int) -> bytes:
            return b" %x" % (id * 2654435761 % (1 << 32))

    tokenizer = Large()
    prefixes = TokenPrefixes(tokenizer)  # type: ignore[arg-type]
    begin = time.process_time()
    found = prefixes.starting_with(b" ab")
    assert time.process_time() - begin < 3.0  # measured: about 0.3 seconds
    assert all(tokenizer.token_bytes(i).startswith(b" ab") for i in found[:100])
    begin = time.process_time()
    for i in range(100):
        TokenPrefixes(tokenizer).starting_with(b" ab%x" % i)  # type: ignore[arg-type]
    assert time.process_time() - begin < 0.5
    gone = weakref.ref(tokenizer)
    del tokenizer, prefixes
    gc.collect()
    assert gone() is None
