"""POST /v1/completions, which also scores prompts, and the endpoints about tokens."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.chat import LocalChat
from engine.cli.perplexity import negative_log_likelihood
from engine.core import ChatRequest, Text
from engine.drain import drain
from engine.settings import SamplerSettings, StopSettings
from tests.engine.models.lora.test_lora import write_adapter
from tests.engine.server.served import HELLO, Answer, Gate, Served, ask, opened

pytestmark = pytest.mark.loopback
TEXT = "The quick brown fox jumps over the lazy dog. " * 8


def complete(served: Served, prompt: Any = "The quick", **fields: Any) -> Answer:
    return ask(served, "/v1/completions", {"prompt": prompt, "max_tokens": 6, "temperature": 0, **fields})


def own_text(served: Served, ids: list[int], tokens: int = 6) -> str:
    def run(chat: LocalChat) -> str:
        request = ChatRequest((), SamplerSettings(temperature=0.0), StopSettings(max_tokens=tokens))
        events = chat.complete(ids, request, threading.Event())
        return "".join(event.text for event in events if isinstance(event, Text))

    return str(served.on_model_thread(run))


def ids_of(served: Served, text: str) -> list[int]:
    found: list[int] = served.on_model_thread(lambda chat: chat.tokenizer.encode(text))
    return found


def test_texts_and_ids_are_completed(served: Served) -> None:
    ids = ids_of(served, "The quick")
    text = own_text(served, ids)
    answer = complete(served)
    assert answer.json["object"] == "text_completion"
    assert answer.json["choices"] == [
        {"index": 0, "text": text, "logprobs": None, "finish_reason": "length", "stop_reason": None}
    ]
    assert answer.json["usage"]["completion_tokens"] == 6
    assert complete(served, ids).json["choices"][0]["text"] == text


def test_several_prompts_and_choices_are_in_order(served: Served) -> None:
    prompts = ["The quick", "Hello there"]
    one = [complete(served, prompt).json for prompt in prompts]
    found = complete(served, prompts, n=2).json
    texts = [choice["text"] for choice in found["choices"]]
    assert texts == [each["choices"][0]["text"] for each in one for _ in range(2)]
    assert [choice["index"] for choice in found["choices"]] == [0, 1, 2, 3]
    assert found["usage"]["prompt_tokens"] == sum(each["usage"]["prompt_tokens"] for each in one)
    ids = [ids_of(served, prompt) for prompt in prompts]
    assert [c["text"] for c in complete(served, ids).json["choices"]] == texts[::2]


@pytest.mark.parametrize("stream", [False, True])
def test_many_prompts_are_completed_in_turns(
    served: Served, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    prompts = [f"{number} is" for number in range(40)]
    alone = [complete(served, prompt, max_tokens=3).json["choices"][0]["text"] for prompt in prompts[::13]]
    running, most, submit = list[Any](), list[int](), served.host.submit

    class Counted:
        """An outlet, which is in `running` until its end."""

        def __init__(self, outlet: Any) -> None:
            self.put, self._end = outlet.put, outlet.end
            running.append(self)
            most.append(len(running))

        def end(self, failure: Any) -> None:
            running.remove(self)
            self._end(failure)

    monkeypatch.setattr(served.host, "submit", lambda work, outlet: submit(work, Counted(outlet)))
    answer = complete(served, prompts, max_tokens=3, stream=stream)
    texts = [""] * 40
    for event in answer.events[:-1] if stream else [answer.json]:
        for choice in event["choices"]:
            texts[choice["index"]] += choice["text"]
    assert texts[::13] == alone
    assert max(most) == 16
    assert not running
    assert served.idle()


@pytest.mark.parametrize("most", [0, 1])
def test_scores_are_those_of_the_command_perplexity(served: Served, most: int) -> None:
    ids = ids_of(served, TEXT)[:200]
    expected = served.on_model_thread(lambda chat: negative_log_likelihood(chat.generator.cache, list(ids)))
    answer = complete(served, ids, echo=True, logprobs=1, max_tokens=most).json
    logprobs = answer["choices"][0]["logprobs"]
    assert len(logprobs["tokens"]) == len(logprobs["text_offset"]) == 200 + most
    assert logprobs["token_logprobs"][0] is logprobs["top_logprobs"][0] is None
    assert -sum(logprobs["token_logprobs"][101:200]) == pytest.approx(expected, abs=1e-3)
    assert answer["usage"]["completion_tokens"] == most
    for value, top in zip(logprobs["token_logprobs"][1:200], logprobs["top_logprobs"][1:200], strict=True):
        assert len(top) == 1
        assert value <= max(top.values()) + 1e-9
    assert served.idle()


def test_echo_gives_the_prompt_and_where_each_token_stands(served: Served) -> None:
    choice = complete(served, "The quick", echo=True, logprobs=0, max_tokens=2).json["choices"][0]
    assert choice["text"].startswith("The quick")
    logprobs = choice["logprobs"]
    assert logprobs["top_logprobs"] is None
    begins = np.cumsum([0] + [len(token) for token in logprobs["tokens"]])
    assert logprobs["text_offset"] == begins[:-1].tolist()
    plain = complete(served, "The quick", echo=True, max_tokens=0).json["choices"][0]
    assert (plain["text"], plain["logprobs"]) == ("The quick", None)


def test_tokens_inside_a_character_stand_where_it_does(served: Served) -> None:
    fields: dict[str, Any] = {"echo": True, "logprobs": 0, "max_tokens": 12}
    prompt = "Größe 漢字 😀!"
    whole = complete(served, prompt, **fields).json["choices"][0]["logprobs"]
    offsets, at = whole["text_offset"], prompt.index("漢")
    assert offsets.count(at) == 3  # the vocabulary has single bytes for it
    generated = offsets[len(ids_of(served, prompt)) :]
    assert generated[0] == len(prompt)
    assert generated == sorted(generated)
    streamed = complete(served, prompt, **fields, stream=True).events[:-1]
    pieces = [event["choices"][0]["logprobs"] for event in streamed]
    assert [one for piece in pieces if piece for one in piece["text_offset"]] == offsets


def test_a_stream_has_the_same_text(served: Served) -> None:
    whole = complete(served, logprobs=2).json
    events = complete(served, logprobs=2, stream=True, stream_options={"include_usage": True}).events
    assert events[-1] == "[DONE]"
    assert events[-2]["choices"] == []
    assert events[-2]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"] == 6
    choices = [event["choices"][0] for event in events[:-2]]
    assert "".join(choice["text"] for choice in choices) == whole["choices"][0]["text"]
    tokens = [token for choice in choices if choice["logprobs"] for token in choice["logprobs"]["tokens"]]
    assert tokens == whole["choices"][0]["logprobs"]["tokens"]
    assert choices[-1]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": None}, "prompt"), ({"prompt": []}, "prompt"), ({"prompt": 5}, "prompt"),
        ({"prompt": [[]]}, "prompt"), ({"prompt": [-1]}, "prompt"), ({"prompt": ["a", [1.5]]}, "prompt"),
        ({"prompt": ["a"] * 2049}, "prompt"),
        ({"prompt": ["a"] * 1025, "n": 2}, "n"), ({"prompt": [99999]}, None), ({"prompt": ""}, None),
        ({"suffix": "end"}, None), ({"suffix": "end", "echo": True}, "suffix"),
        ({"max_tokens": 0}, "max_tokens"), ({"logprobs": True}, "logprobs"),
        ({"logprobs": 21}, "logprobs"),
    ],
)  # fmt: skip
def test_bad_requests(served: Served, fields: dict[str, Any], param: str | None) -> None:
    answer = complete(served, **({"prompt": "x"} | fields))
    assert (answer.status, answer.error["param"]) == (400, param)


def test_leaving_ends_scoring_within_a_step(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(served.chat, monkeypatch)
    body = {"prompt": ids_of(served, TEXT)[:250], "echo": True, "logprobs": 0, "max_tokens": 0}
    with opened(served, "/v1/completions", body):
        gate.wait()
    while served.server.service._open:
        gate.let()
    gate.open()
    assert served.idle()


def test_tokens_there_and_back(served: Served) -> None:
    found = ask(served, "/tokenize", {"prompt": "The quick", "return_token_strs": True}).json
    assert found["tokens"] == ids_of(served, "The quick")
    assert found["count"] == len(found["tokens"]) == len(found["token_strs"])
    assert found["max_model_len"] == 1024
    assert ask(served, "/detokenize", {"tokens": found["tokens"]}).json["prompt"] == "The quick"
    assert ask(served, "/detokenize", {"tokens": []}).json["prompt"] == ""
    assert ask(served, "/detokenize", {"tokens": [99999]}).status == 400
    assert ask(served, "/detokenize", {"tokens": ["a"]}).error["param"] == "tokens"


def test_facts_of_the_tokenizer(served: Served) -> None:
    found = ask(served, "/tokenizer_info").json
    assert (found["bos_token"], found["eos_token"]) == ("<|endoftext|>", "<|im_end|>")
    assert found["add_bos_token"] is False
    assert "<|im_start|>" in found["chat_template"]
    assert ask(served, "/tokenizer_info", headers={"Authorization": None}).status == 401


def test_the_template_is_applied(served: Served) -> None:
    text = ask(served, "/apply-template", {"messages": HELLO}).json["prompt"]
    assert text == "<|im_start|>user\nHello there<|im_end|>\n<|im_start|>assistant\n"
    closed = ask(served, "/apply-template", {"messages": HELLO, "add_generation_prompt": False}).json[
        "prompt"
    ]
    assert text == closed + "<|im_start|>assistant\n"
    ids = ask(served, "/tokenize", {"messages": HELLO}).json["tokens"]
    assert ask(served, "/detokenize", {"tokens": ids}).json["prompt"] == text
    assert ask(served, "/apply-template", {"messages": []}).status == 400


def test_a_scored_prompt_is_in_the_cache_for_the_reply_and_forgotten_without_one(served: Served) -> None:
    ids = ids_of(served, TEXT)[:101]
    served.on_model_thread(lambda chat: chat.generator.cache.table.forget())
    expected = own_text(served, ids)
    for most, cached in ((0, 0), (6, 100)):
        served.on_model_thread(lambda chat: chat.generator.cache.table.forget())
        choice = complete(served, ids, echo=True, logprobs=0, max_tokens=most).json["choices"][0]
        assert served.on_model_thread(lambda chat: chat.generator.cache.found([*ids, 5])) >= cached
        held = served.on_model_thread(lambda chat: chat.generator.cache.table.cached)
        assert (held > 0) == (cached > 0)
    assert choice["text"].endswith(expected)
    usage = complete(served, ids, echo=True, logprobs=0).json["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 100


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_token_after_a_scored_prompt_has_a_score_but_no_text(served: Served, stream: bool) -> None:
    ids = ids_of(served, "The quick")
    fields = {"max_tokens": 3, "logprobs": 1, "logit_bias": {"2": 1000}, "stream": stream}
    answer = complete(served, ids, echo=True, **fields)
    choices = [event["choices"][0] for event in answer.events[:-1]] if stream else answer.json["choices"]
    tokens = [token for choice in choices if choice["logprobs"] for token in choice["logprobs"]["tokens"]]
    assert tokens[-1] == "<|im_end|>"
    assert len(tokens) == len(ids) + 1
    assert "".join(choice["text"] for choice in choices) == "The quick"
    assert choices[-1]["finish_reason"] == "stop"
    unscored = complete(served, ids, **{**fields, "stream": False}).json["choices"][0]
    assert (unscored["text"], unscored["logprobs"]["tokens"]) == ("", [])


def test_content_is_tokenized_as_llama_cpp_does(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served.chat.tokenizer, "add_bos", True)
    monkeypatch.setattr(served.chat.tokenizer, "bos_token_id", 7)
    plain = ask(served, "/tokenize", {"content": "The quick"}).json["tokens"]
    assert ask(served, "/tokenize", {"content": "The quick", "add_special": True}).json["tokens"] == [
        7,
        *plain,
    ]
    assert ask(served, "/tokenize", {"prompt": "The quick"}).json["tokens"] == [7, *plain]


@pytest.mark.parametrize("echo", [False, True])
def test_a_stop_token_that_is_asked_for_stays_in_the_text(served: Served, echo: bool) -> None:
    fields = {"max_tokens": 3, "logprobs": 1, "logit_bias": {"2": 1000}, "include_stop_str_in_output": True}
    ids = ids_of(served, "The quick")
    choice = complete(served, ids, echo=echo, **fields).json["choices"][0]
    assert choice["text"] == ("The quick" if echo else "") + "<|im_end|>"


def test_texts_are_read_without_the_adapters_of_an_earlier_reply(tiny_folder: Path, tmp_path: Path) -> None:
    """The model keeps those until the next reply."""
    served = Served(tiny_folder)
    adapter = write_adapter(tmp_path / "pirate")
    asked = [
        ("/v1/completions", {"prompt": TEXT, "echo": True, "logprobs": 0, "max_tokens": 0}),
        ("/v1/embeddings", {"input": TEXT}),
        ("/v1/internal/logits", {"prompt": TEXT}),
    ]

    def answer(path: str, fields: Any) -> Any:
        return {k: v for k, v in ask(served, path, fields).json.items() if k not in ("id", "created")}

    def put_on(chat: LocalChat) -> bool:
        drain(chat.adapters.apply([(str(adapter), 2.5)]))
        return chat.adapters.holds(())

    try:
        for path, fields in asked:
            before = answer(path, fields)
            assert not served.on_model_thread(put_on)
            assert answer(path, fields) == before
            assert before
        assert served.on_model_thread(lambda chat: chat.adapters.holds(()))
        assert served.idle()
    finally:
        served.close()
