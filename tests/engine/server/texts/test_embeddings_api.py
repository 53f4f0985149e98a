"""POST /v1/embeddings: one vector of the model's last hidden states for each text."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from engine.chat import LocalChat
from engine.core import Waiting
from engine.server.texts.embedding import Embedded, embedding_work
from engine.tensors import Floats
from tests.engine.server.served import Answer, Gate, Served, ask, opened, write_tiny
from tests.tiny import TINY

pytestmark = pytest.mark.loopback
TEXT, LONG = "The quick brown fox", "The quick brown fox jumps over the lazy dog. " * 20


def embed(served: Served, input: Any = TEXT, **fields: Any) -> Answer:
    return ask(served, "/v1/embeddings", {"input": input, **fields})


def vectors(answer: Answer) -> Floats:
    assert answer.status == 200, answer.body
    value = answer.json
    assert (value["object"], value["model"]) == ("list", "tiny")
    assert [item["index"] for item in value["data"]] == list(range(len(value["data"])))
    assert {item["object"] for item in value["data"]} == {"embedding"}
    return np.array([item["embedding"] for item in value["data"]], np.float32)


def states(served: Served, text: str | list[int]) -> Floats:
    """The last hidden states of a text (T, E), read token by token."""

    def run(chat: LocalChat) -> Floats:
        ids = chat.tokenizer.encode(text) if isinstance(text, str) else text
        cache = chat.generator.cache
        with cache.open(ids) as lease:
            cache.rewind(lease, 0)
            return np.concatenate([cache.hidden_states(lease, [id]).copy() for id in ids])

    found: Floats = served.on_model_thread(run)
    return found


def unit(vector: Floats) -> Floats:
    found: Floats = vector / np.linalg.norm(vector)
    return found


@pytest.mark.parametrize("text", [TEXT, LONG])
def test_poolings(served: Served, text: str) -> None:
    found = states(served, text)
    expected = {"mean": found.mean(axis=0), "last": found[-1], "cls": found[0], "": found.mean(axis=0)}
    for pooling, vector in expected.items():
        (embedding,) = vectors(embed(served, text, pooling=pooling or None))
        np.testing.assert_allclose(embedding, unit(vector), atol=2e-5)
    assert served.idle()


def test_a_batch_of_texts_or_ids(served: Served) -> None:
    texts = [TEXT, "Hello there", LONG]
    alone = [vectors(embed(served, text))[0] for text in texts]
    together = embed(served, texts)
    np.testing.assert_array_equal(vectors(together), alone)
    ids: list[list[int]] = served.on_model_thread(
        lambda chat: [chat.tokenizer.encode(text) for text in texts]
    )
    np.testing.assert_array_equal(vectors(embed(served, ids)), alone)
    np.testing.assert_array_equal(vectors(embed(served, ids[0])), alone[:1])
    tokens = sum(map(len, ids))
    assert together.json["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    assert len(embed(served, ["a"] * 100).json["data"]) == 100


def test_numbers_as_base64(served: Served) -> None:
    item = embed(served, encoding_format="base64").json["data"][0]["embedding"]
    found = np.frombuffer(base64.b64decode(item), "<f4")
    np.testing.assert_allclose(found, vectors(embed(served))[0], atol=1e-8)
    assert np.linalg.norm(found) == pytest.approx(1, abs=1e-6)


def test_fewer_dimensions_have_length_one_again(served: Served) -> None:
    whole = vectors(embed(served))[0]
    np.testing.assert_allclose(vectors(embed(served, dimensions=16))[0], unit(whole[:16]), atol=1e-6)
    np.testing.assert_array_equal(vectors(embed(served, dimensions=TINY.width))[0], whole)
    answer = embed(served, dimensions=TINY.width + 1)
    assert (answer.status, str(TINY.width) in answer.error["message"]) == (400, True)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"), ({"input": []}, "input"), ({"input": ["a"] * 2049}, "input"),
        ({"input": ""}, None), ({"input": ["a", ""]}, None), ({"input": [99999]}, None),
        ({"dimensions": 0}, "dimensions"), ({"encoding_format": "binary"}, "encoding_format"),
        ({"pooling": "max"}, "pooling"), ({"task": "retrieval.query"}, "task"),
    ],
)  # fmt: skip
def test_bad_requests_get_one_sentence(served: Served, fields: dict[str, Any], param: str | None) -> None:
    answer = embed(served, **({"input": TEXT} | fields))
    assert (answer.status, answer.error["param"]) == (400, param)


def test_a_text_that_is_too_long_is_refused(served: Served) -> None:
    assert embed(served, [TEXT, "word " * 3000]).error["code"] == "context_length_exceeded"


def test_leaving_ends_it_within_a_step(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    program = served.chat.generator.cache._headless
    assert program is not None
    gate = Gate(served.chat, monkeypatch, program)
    with opened(served, "/v1/embeddings", {"input": [TEXT] * 50}):
        gate.wait()
    while served.server.service._open:
        gate.let()
    assert gate.passes < 50
    gate.open()
    assert served.idle()


@pytest.fixture(scope="module")
def embedding_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A model whose makers pool the last token, which is one that they put at the end."""
    folder = write_tiny(tmp_path_factory.mktemp("embedding") / "tiny")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_lasttoken": true}')
    definition = json.loads((folder / "tokenizer.json").read_text())
    end = {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}
    definition["post_processor"] = {
        "type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}, end], "pair": [],
        "special_tokens": {},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(definition))
    found = Served(folder)
    found.record_headless()
    yield found
    found.close()


def test_the_models_own_pooling_and_end(embedding_model: Served) -> None:
    ids = embedding_model.on_model_thread(lambda chat: [*chat.tokenizer.encode(TEXT), 0])
    expected = states(embedding_model, ids)
    answer = embed(embedding_model)
    np.testing.assert_allclose(vectors(answer)[0], unit(expected[-1]), atol=2e-5)
    assert answer.json["usage"]["prompt_tokens"] == len(ids)
    given = vectors(embed(embedding_model, ids[:-1]))[0]
    np.testing.assert_allclose(given, unit(expected[-2]), atol=2e-5)


def test_a_text_that_is_cut_keeps_the_end_of_the_makers(embedding_model: Served) -> None:
    text = "word " * 1500
    ids = embedding_model.on_model_thread(lambda chat: [*chat.tokenizer.encode(text)[:1023], 0])
    found = ask(embedding_model, "/api/embed", {"input": text}).json
    assert found["prompt_eval_count"] == len(ids)
    assert found["embeddings"][0] == embed(embedding_model, ids).json["data"][0]["embedding"]


def test_texts_wait_for_pages_that_others_hold(served: Served) -> None:
    """Also scored ones: nothing is refused because of other requests."""
    leases: list[Any] = []

    def hold(chat: LocalChat) -> None:
        lease = chat.generator.cache.table.open((), key="held")
        lease.reserve(256 * chat.generator.cache.store.page_count)
        leases.append(lease)

    served.on_model_thread(hold)
    scored = {"prompt": TEXT, "echo": True, "logprobs": 0, "max_tokens": 0}
    with (
        opened(served, "/v1/embeddings", {"input": TEXT}) as first,
        opened(served, "/v1/completions", scored) as second,
    ):
        while len(served.server.service._open) < 2 or not served.on_model_thread(
            lambda chat: len(chat.generator.cache.table._leases) == 3
        ):
            pass
        served.on_model_thread(lambda chat: leases.pop().close())
        for connection in (first, second):
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
    while not served.idle():
        pass


def test_replies_go_on_while_many_texts_are_tokenized(served: Served) -> None:
    def kinds(chat: LocalChat) -> list[type]:
        work = embedding_work([TEXT] * 5, "mean", 0)
        return [type(event) for event in work(chat, threading.Event())]

    found = served.on_model_thread(kinds)
    assert found[:5] == [Waiting] * 5
    assert found.count(Embedded) == 5
