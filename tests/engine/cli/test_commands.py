"""Every command on a tiny model: the keys of its JSON, its text for people, exit codes, one sentence for
trouble.
"""

from __future__ import annotations

import dataclasses
import io
import json
import math
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from engine.__main__ import main
from engine.backends import choice
from engine.backends.choice import Gpu, Usable
from engine.chat import LocalChat, finished, open_chat
from engine.cli import bench, commands, peers, text
from engine.cli.flags import FLAG_NAMES, REPLY_SETTINGS
from engine.cli.logits import log_softmax
from engine.core import ChatRequest, Message, Text
from engine.core.reasons import reason_words
from engine.models.open_text import open_text
from engine.printable import printable
from engine.settings import CacheSettings, LoadSettings, SamplerSettings, StopSettings, setting_info
from engine.text.template.encoding import encode_chat
from engine.weights.checkpoint import open_checkpoint
from tests.engine.models.oracle import load, logits
from tests.tiny import TINY, write_folder, write_gguf

ROOT = Path(__file__).parents[3]
REFERENCE = ("--backend", "reference")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(
        tmp_path_factory.mktemp("tiny") / "tiny.gguf", TINY, "F16", tokenizer__ggml__add_bos_token=True
    )


@pytest.fixture
def run_command(capsys: pytest.CaptureFixture[str]):
    """Run a command; its exit code, stdout and stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as exit:
            code = int(exit.code or 0)
        found = capsys.readouterr()
        return code, found.out, found.err

    return run


@pytest.fixture
def answer(run_command):
    """Run a command with --json: the one object on stdout."""

    def run(*arguments: object) -> dict[str, Any]:
        code, out, err = run_command(*arguments, "--json")
        assert (code, err) == (0, "")
        assert out.count("\n") == 1
        found: dict[str, Any] = json.loads(out)
        return found

    return run


@pytest.fixture
def loaded(tiny):
    """The tiny model on the reference backend, by the library."""
    chat = finished(open_chat(tiny, LoadSettings(backend="reference"), CacheSettings(context_length=256)))
    yield chat
    chat.close()


def greedy(chat: LocalChat, ids: list[int], count: int) -> list[int]:
    """Greedy ids by running the whole sequence anew for each."""
    sequence = list(ids)
    for _ in range(count):
        with chat.generator.cache.table.open((), key=str(len(sequence))) as lease:
            sequence.append(int(chat.generator.cache.run(lease, sequence)[-1].argmax()))
    return sequence[len(ids) :]


# info


def test_info_of_a_model(answer, run_command, tiny):
    found = answer("info", tiny)
    assert list(found) == [
        "architecture", "format", "parameters", "bits_per_weight", "weights_bytes", "layers",
        "context_length", "vocab_size", "kv_bytes_per_token", "stop_token_ids", "has_chat_template",
        "quantisation", "licence", "resident_bytes", "read_bytes", "embedding", "pooling",
        "reads_pictures", "vision_encoder", "vision_bytes", "vision_file", "why_no_pictures", "advised",
        "remarks", "needed_bytes", "verdict", "memory",
    ]  # fmt: skip
    assert found["needed_bytes"] > found["resident_bytes"] >= found["read_bytes"] > 0
    assert found["verdict"] == "fits"
    assert (found["architecture"], found["format"]) == ("llama", "gguf")
    assert found["bits_per_weight"] == pytest.approx(8 * found["weights_bytes"] / found["parameters"])
    assert found["stop_token_ids"] == list(open_text(open_checkpoint(tiny))[0].stop_token_ids)
    code, out, _ = run_command("info", tiny)
    assert code == 0
    assert "architecture        llama" in out


def test_info_of_the_machine(answer, run_command):
    found = answer("info")
    assert found["packages"]["numba"]
    assert found["memory_bytes"] >= found["memory_available_bytes"] > 0
    assert found["logical_cores"] >= found["physical_cores"] >= 1
    assert isinstance(found["kernels_cached"], bool)
    assert found["kernel_level"] is None
    assert found["cpu"]
    assert "kernels cached" in run_command("info")[1]


def test_info_of_gpus(answer, run_command, monkeypatch, tiny):
    monkeypatch.setattr(
        choice,
        "usable_gpus",
        lambda: Usable((Gpu(1, "NVIDIA H200", 3 << 30, 2 << 30),), "NVIDIA K80 is too old."),
    )
    found = answer("info")
    assert found["gpus"] == [
        {"number": 1, "name": "NVIDIA H200", "memory_bytes": 3 << 30, "free_bytes": 2 << 30}
    ]
    assert found["gpus_reason"] == "NVIDIA K80 is too old."
    assert "1: NVIDIA H200 (2.0 of 3.0 GiB free)" in run_command("info")[1]
    assert "free on NVIDIA H200." in answer("info", tiny)["memory"]
    monkeypatch.setattr(
        choice, "usable_gpus", lambda: Usable((), "No NVIDIA driver was found on this machine.")
    )
    text = run_command("info")[1]
    assert {"LlamaForCausalLM", "Lfm2ForCausalLM"} <= set(found["architectures"]["hf"])
    assert {"llama", "lfm2", "qwen35"} <= set(found["architectures"]["gguf"])
    assert re.search("architectures +hf .*LlamaForCausalLM, .*; gguf .*llama, ", text)
    assert re.search("gpus +none\n", text)
    assert "No NVIDIA driver was found" in text


# --device


@pytest.mark.parametrize("device", ["gpu", "cpu:0", "cuda:", "cuda:x", "reference:1"])
def test_devices_that_are_none(run_command, tiny, device):
    code, _, err = run_command("logits", tiny, "--prompt", "Hi", "--device", device)
    assert code == 2
    assert "--device" in err


def test_a_device_is_chosen_once(answer, run_command, tiny, monkeypatch):
    monkeypatch.setattr(
        choice, "usable_gpus", lambda: Usable((), "No NVIDIA driver was found on this machine.")
    )
    prompt = ("logits", tiny, "--prompt", "Hi", "--context-length", 256)
    assert answer(*prompt, "--device", "reference") == answer(*prompt, *REFERENCE)
    code, _, err = run_command(*prompt, "--device", "cpu", *REFERENCE)
    assert (code, "Use only one of them" in err) == (1, True)
    code, out, err = run_command(*prompt, "--device", "cuda:0")
    assert (code, out) == (1, "")
    assert err == (
        "A GPU was chosen, but none can be used. No NVIDIA driver was found on this machine. Choose the "
        "processor (CPU) or automatic as the device.\n"
    )


# tokenize, render


def test_tokenize(answer, run_command, tiny, tmp_path):
    tokenizer = open_text(open_checkpoint(tiny))[0]
    text = "Héllo <|im_end|> 🦊"
    found = answer("tokenize", tiny, "--text", text)
    assert list(found) == ["ids", "pieces"]
    assert found["ids"] == tokenizer.encode(text)
    assert found["pieces"] == [tokenizer.piece(token) for token in found["ids"]]
    assert answer("tokenize", tiny, "--text", text, "--special", "--add-bos")["ids"] == tokenizer.encode(
        text, special=True, add_bos=True
    )
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    assert answer("tokenize", tiny, "--file", tmp_path / "text.txt") == found
    assert run_command("tokenize", tiny, "--text", "a\tb")[1].count("\n") == len(tokenizer.encode("a\tb"))


def test_render(answer, run_command, tiny, tmp_path):
    messages = [{"role": "user", "content": "Hi <|im_end|>"}, {"role": "assistant", "content": "Yes"}]
    file = tmp_path / "messages.json"
    file.write_text(json.dumps(messages))
    tokenizer, template = open_text(open_checkpoint(tiny))
    required = [Message(**message) for message in messages]
    text, ids = encode_chat(tokenizer, template, required)
    assert answer("render", tiny, "--messages", file) == {"text": text, "ids": ids}
    file.write_text(json.dumps({"messages": messages}))
    text, ids = encode_chat(tokenizer, template, required, add_generation_prompt=False, continue_last=True)
    assert answer("render", tiny, "--messages", file, "--continue-last") == {"text": text, "ids": ids}
    assert run_command("render", tiny, "--messages", file)[1].startswith(text[:20])


def test_render_and_run_switch_thinking(answer, run_command, tmp_path):
    source = "{% for m in messages %}{{ m.content }}{% endfor %}{% if thinking %} Think.{% endif %}"
    model = write_gguf(tmp_path / "model.gguf", TINY, "F16", tokenizer__chat_template=source)
    file = tmp_path / "messages.json"
    file.write_text(json.dumps([{"role": "user", "content": "Hi"}]))
    for level, expected in (("auto", "Hi"), ("off", "Hi"), ("on", "Hi Think."), ("high", "Hi Think.")):
        found = answer("render", model, "--messages", file, "--thinking", level)
        assert found["text"] == expected
        run = answer(
            "run",
            model,
            "--messages",
            file,
            "--thinking",
            level,
            "--max-tokens",
            "1",
            "--backend",
            "reference",
        )
        assert run["prompt_tokens"] == len(found["ids"])
    code, _, err = run_command("render", model, "--messages", file, "--thinking", "much")
    assert code == 2
    assert "--thinking" in err


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '["Hi"]',
        '{"messages": 3}',
        '[{"role": "user"}]',
        '[{"role": "user", "content": null}]',
        "\xff",
    ],
)
def test_messages_that_are_none(run_command, tiny, tmp_path, content):
    file = tmp_path / "messages.json"
    file.write_bytes(content.encode("latin-1"))
    code, out, err = run_command("render", tiny, "--messages", file, "--json")
    assert (code, out) == (1, "")
    assert str(file) in err
    assert err.count("\n") == 1


# run


RUN_KEYS = ["text", "ids", "prompt_tokens", "reason", "trigger", "suppressed", "stats"]
STATS_KEYS = [
    "seed", "prefill_tokens", "cached_tokens", "prefill_seconds", "first_token_seconds", "decode_seconds",
    "decode_tokens_per_second", "passes", "drafted_tokens", "accepted_tokens", "tokens_per_pass", "speedup",
]  # fmt: skip


def test_run_a_prompt(answer, run_command, tiny, loaded):
    ids = loaded.tokenizer.encode("the quick brown", add_bos=loaded.tokenizer.add_bos)
    found = answer(
        "run", tiny, *REFERENCE, "--prompt", "the quick brown", "--max-tokens", 8, "--temperature", 0
    )
    assert list(found) == RUN_KEYS
    assert list(found["stats"]) == STATS_KEYS
    stops = loaded.tokenizer.stop_token_ids
    required = greedy(loaded, ids, 8)
    required = required[: next((i for i, token in enumerate(required) if token in stops), 8)]
    assert found["ids"] == required
    assert found["text"] == loaded.tokenizer.decode(ids + required)[len(loaded.tokenizer.decode(ids)) :]
    assert found["prompt_tokens"] == found["stats"]["prefill_tokens"] == len(ids)
    assert (
        answer(
            "run", tiny, *REFERENCE, "--ids", ",".join(map(str, ids)), "--max-tokens", 8, "--temperature", 0
        )["ids"]
        == required
    )
    code, out, err = run_command(
        "run", tiny, *REFERENCE, "--prompt", "the quick brown", "--max-tokens", 8, "--temperature", 0
    )
    assert (code, err) == (0, "")
    assert out.startswith(found["text"])
    assert f"[{reason_words(found['reason'], found['trigger'])}" in out


def test_run_with_everything_that_shapes_a_reply(answer, run_command, tiny, tmp_path):
    prompt = ("run", tiny, *REFERENCE, "--prompt", "the quick brown", "--temperature", 0, "--max-tokens", 24)
    plain = answer(*prompt)
    drafted = answer(*prompt, "--drafting", "ngram", "--no-adaptive-drafting", "--draft-tokens", 4)
    assert (drafted["ids"], drafted["text"]) == (plain["ids"], plain["text"])
    itself = answer(*prompt, "--drafting", "model", "--draft-model", tiny, "--no-adaptive-drafting")
    assert itself["ids"] == plain["ids"]
    assert itself["stats"]["accepted_tokens"] <= itself["stats"]["drafted_tokens"]
    schema = tmp_path / "schema.json"
    schema.write_text(
        '{"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"], '
        '"additionalProperties": false}'
    )
    form = answer(*prompt, "--format", "json_schema", "--pattern", f"@{schema}", "--max-tokens", 200)
    assert json.loads(form["text"])["a"] in ("x", "y")
    for flags in (("--json-schema", f"@{schema}"), ("-jf", schema), ("-j", schema.read_text())):
        assert answer(*prompt, *flags, "--max-tokens", 200)["text"] == form["text"]
    grammar = tmp_path / "digits.gbnf"
    grammar.write_text('root ::= [0-9]{3} "!"')
    for flags in (
        ("--grammar", f"@{grammar}"),
        ("--grammar-file", grammar),
        ("--grammar", grammar.read_text()),
    ):
        assert re.fullmatch("[0-9]{3}!", answer(*prompt, *flags)["text"])
    assert answer(*prompt, "--format", "choices", "--pattern", "yes\nno")["text"] in ("yes", "no")
    assert answer(*prompt, "--begin-with", "Well,")["text"].startswith("Well,")
    banned = plain["text"].strip()[:4]
    without = answer(*prompt, "--banned-strings", banned)
    assert banned.lower() not in without["text"].lower()
    assert without["suppressed"]
    assert (
        answer(*prompt, "--cfg-scale", 3, "--negative-prompt", "the dog", "--max-tokens", 8)["stats"][
            "prefill_tokens"
        ]
        > 3
    )
    reported = answer(*prompt, "--tokens", "--alternatives", 3)["tokens"]
    assert [token["id"] for token in reported] == plain["ids"]
    assert all(len(token["alternatives"]) == 3 for token in reported)
    names = {"id", "text", "raw_probability", "probability"}
    assert all(set(other) == names for token in reported for other in token["alternatives"])
    stop = plain["text"][3:6]
    assert answer(*prompt, "--stop-regex", re.escape(stop), "--keep-stop")["text"].endswith(stop)
    assert (
        "a pass" in run_command(*prompt, "--drafting", "ngram", "--no-adaptive-drafting")[1]
        or not drafted["stats"]["drafted_tokens"]
    )


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--drafting", "model"), "no draft model is chosen"),
        (("--drafting", "model", "--draft-model", "nowhere.gguf"), "nowhere.gguf"),
        (("--format", "regex", "--pattern", "(("), "expression"),
        (("--format", "json_schema", "--pattern", "{"), "JSON"),
        (("--grammar", 'root ::= "a'), "grammar"),
        (("--grammar-file", "nowhere.gbnf"), "nowhere.gbnf"),
        (("--json-schema", "{"), "JSON"),
        (("--json-schema", "{}", "--format", "json"), "--json-schema and --format both choose"),
        (("--grammar", "start: /a/", "--pattern", "a"), "--grammar and --pattern both choose"),
        (("--logit-bias", "no number"), "no number"),
        (("--pattern", "@nowhere.json", "--format", "json_schema"), "nowhere.json"),
        (("--order", "temperature", "warmth"), "warmth"),
        (("--stop-regex", "(("), "expression"),
    ],
)
def test_settings_that_cannot_be_are_one_sentence(run_command, tiny, flags, sentence):
    code, out, err = run_command("run", tiny, *REFERENCE, "--prompt", "a", *flags)
    assert code in (1, 2)
    assert out == ""
    assert sentence in err
    assert "Traceback" not in err


def test_run_a_message_from_a_pipe(answer, run_command, tiny, tmp_path, monkeypatch):
    flags = (*REFERENCE, "--max-tokens", 4, "--temperature", 0)
    file = tmp_path / "messages.json"
    file.write_text(json.dumps([{"role": "user", "content": "hello\nagain"}]))
    expected = answer("run", tiny, "--messages", file, *flags)["ids"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"hello\nagain\n")))
    assert answer("run", tiny, *flags)["ids"] == expected
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    code, out, err = run_command("run", tiny, *flags)
    assert (code, out) == (1, "")
    assert err.startswith("There is no prompt. Give one with --prompt")


def test_run_messages_and_seeds(answer, tiny, tmp_path):
    file = tmp_path / "messages.json"
    file.write_text(json.dumps([{"role": "user", "content": "the quick"}]))
    hot = ("--temperature", 1.5, "--top-k", 0, "--top-p", 1, "--min-p", 0, "--max-tokens", 12)
    first, again, other = (
        answer("run", tiny, *REFERENCE, "--messages", file, *hot, "--seed", seed) for seed in (0, 0, 1)
    )
    assert first["ids"] == again["ids"] != other["ids"]
    tokenizer, template = open_text(open_checkpoint(tiny))
    assert first["prompt_tokens"] == len(encode_chat(tokenizer, template, [Message("user", "the quick")])[1])


def test_run_stops(answer, tiny):
    prompt = ("run", tiny, *REFERENCE, "--prompt", "the quick", "--temperature", 0, "--max-tokens", 12)
    plain = answer(*prompt)
    middle = plain["text"][len(plain["text"]) // 2 :][:3]
    found = answer(*prompt, "--stop-strings", "no such text", middle)
    assert (found["reason"], found["trigger"]) == ("stop_string", middle)
    assert found["text"] == plain["text"][: plain["text"].find(middle)]
    found = answer(*prompt, "--stop-token-ids", plain["ids"][4])
    assert found["reason"] == "stop_token"
    assert found["ids"] == plain["ids"][: plain["ids"].index(plain["ids"][4])]


def test_every_setting_is_a_flag(run_command):
    code, out, _ = run_command("run", "--help")
    assert code == 0
    for cls in (LoadSettings, CacheSettings, SamplerSettings, StopSettings):
        for name in cls().to_json():
            assert f"--{name.replace('_', '-')}" in out


@pytest.mark.parametrize("command", ["perplexity", "bench"])
def test_measurements_take_the_settings_of_the_cache_but_its_length(run_command, command):
    code, out, _ = run_command(command, "--help")
    assert code == 0
    for name in {*LoadSettings().to_json(), *CacheSettings().to_json()} - {"backend", "gpus"}:
        assert (f"--{name.replace('_', '-')} " in out) == (name != "context_length"), name
    assert "--device " in out


# settings


def test_settings_are_listed_with_all_that_is_declared(answer, run_command):
    listed = {row["flag"]: row for group in answer("settings")["groups"] for row in group["settings"]}
    for cls in (*REPLY_SETTINGS, CacheSettings, LoadSettings):
        for field in dataclasses.fields(cls):
            row = listed.pop("--" + FLAG_NAMES.get((cls, field.name), field.name.replace("_", "-")))
            info = setting_info(field)
            assert (row["name"], row["label"], row["help"]) == (field.name, info.label, info.help)
            assert row["default"] == (
                list(field.default) if isinstance(field.default, tuple) else field.default
            )
    assert listed == {}
    code, out, err = run_command("settings")
    assert (code, err) == (0, "")
    assert "--top-p  [0.95; 0 to 1]\n    Top P: " in out
    assert "--stop-strings  [none; any]" in out
    code, out, err = run_command("settings", "--markdown")
    assert (code, err) == (0, "")
    assert "| Top P (`top_p`) | 0.95 | 0 to 1 | " in out
    assert "2^" in out


# logits, perplexity


def test_logits(answer, run_command, tiny, loaded):
    torch = pytest.importorskip("torch")
    ids = loaded.tokenizer.encode("over the lazy", add_bos=loaded.tokenizer.add_bos)
    with loaded.generator.cache.table.open(()) as lease:
        expected = torch.log_softmax(
            torch.from_numpy(loaded.generator.cache.run(lease, ids)[-1].copy()).double(), dim=0
        )
    found = answer("logits", tiny, *REFERENCE, "--prompt", "over the lazy", "--top", 5)
    assert list(found) == ["prompt_ids", "top"]
    assert found["prompt_ids"] == ids
    best = torch.topk(expected, 5)
    assert [row["id"] for row in found["top"]] == best.indices.tolist()
    assert [row["logprob"] for row in found["top"]] == pytest.approx(best.values.tolist(), abs=1e-5)
    assert [row["piece"] for row in found["top"]] == [
        loaded.tokenizer.piece(row["id"]) for row in found["top"]
    ]
    assert run_command("logits", tiny, *REFERENCE, "--ids", "5", "--top", 3)[1].count("\n") == 4


def test_logits_beyond_the_automatic_context(answer, run_command, tmp_path):
    """It ends where a model gets worse, here where its rope is scaled; the prompt may be longer."""
    scaling = {"type": "dynamic", "factor": 4.0}
    folder = write_folder(tmp_path / "m", dataclasses.replace(TINY, context_length=20, rope_scaling=scaling))
    ids = list(range(5, 45))
    expected = log_softmax(logits(load(folder), ids, context=40)[-1:])[0]
    given = (folder, *REFERENCE, "--ids", ",".join(map(str, ids)))
    for row in answer("logits", *given, "--top", 5)["top"]:
        assert row["logprob"] == pytest.approx(expected[row["id"]], abs=1e-4)
    assert "the context holds 20" in run_command("logits", *given, "--context-length", 20)[2]


@pytest.mark.parametrize("size", [16, 21])
def test_perplexity(answer, run_command, tiny, loaded, tmp_path, size):
    torch = pytest.importorskip("torch")
    text = "the quick brown fox jumps over the lazy dog. " * 12
    (tmp_path / "text.txt").write_text(text)
    tokenizer = loaded.tokenizer
    ids = tokenizer.encode(text, add_bos=tokenizer.add_bos)
    losses = []
    for start in range(0, len(ids) - size + 1, size):
        window = ids[start : start + size]
        if tokenizer.add_bos:
            window[0] = tokenizer.bos_token_id
        with loaded.generator.cache.table.open(()) as lease:
            rows = torch.from_numpy(
                loaded.generator.cache.run(lease, window, logit_rows=size).copy()
            ).double()
        nll = torch.nn.functional.cross_entropy(rows[:-1], torch.tensor(window[1:]), reduction="none")
        losses.append(nll[size // 2 :])
    found = answer("perplexity", tiny, *REFERENCE, "--file", tmp_path / "text.txt", "--context", size)
    scored = torch.cat(losses)
    assert list(found) == ["perplexity", "tokens", "windows"]
    assert (found["tokens"], found["windows"]) == (len(scored), len(losses))
    assert found["perplexity"] == pytest.approx(math.exp(float(scored.mean())), rel=1e-4)
    assert (
        "windows"
        in run_command("perplexity", tiny, *REFERENCE, "--file", tmp_path / "text.txt", "--context", size)[1]
    )


# bench


BENCH_KEYS = [
    "device", "where", "threads", "prefill_tokens_per_second", "decode_tokens_per_second",
    "weight_bytes_per_token", "read_bandwidth_bytes_per_second", "bandwidth_fraction", "peers",
]  # fmt: skip

BENCH_SIZES = "--prompt-tokens 40 --depth 10 --threads 1 --device reference"


@pytest.mark.slow
def test_bench(answer, run_command, tiny):
    sizes = f"{BENCH_SIZES} --new-tokens 4 --repeat 1".split()
    found = answer("bench", tiny, *sizes)
    assert list(found) == BENCH_KEYS
    assert (found["device"], found["threads"], found["peers"]) == ("reference", 1, [])
    read = found["decode_tokens_per_second"] * found["weight_bytes_per_token"]
    assert found["bandwidth_fraction"] == pytest.approx(read / found["read_bandwidth_bytes_per_second"])
    assert found["prefill_tokens_per_second"] > 0
    assert "of the read bandwidth" in run_command("bench", tiny, *sizes)[1]


class FakePeer:
    """Takes a second for a prefill and four for a decode."""

    name, version = "llama.cpp", "9.9"
    made: list[Any] = []

    def __init__(self, path: Path, threads: int, context_length: int) -> None:
        self.made.append((path, threads, context_length, self))
        self.runs: list[tuple[int, int, bool]] = []
        self.closed = False

    def run(self, ids: list[int], start: int, *, one_by_one: bool) -> float:
        self.runs.append((len(ids), start, one_by_one))
        return 4.0 if one_by_one else 1.0

    def close(self) -> None:
        self.closed = True


@pytest.mark.slow
def test_bench_beside_a_peer(answer, run_command, tiny, monkeypatch):
    monkeypatch.setattr(bench, "LlamaCpp", FakePeer)
    sizes = f"{BENCH_SIZES} --new-tokens 8 --repeat 2".split()
    found = answer("bench", tiny, *sizes, "--vs", "llama.cpp")
    path, threads, context, peer = FakePeer.made[-1]
    assert (path, threads, context, peer.closed) == (tiny, 1, 40, True)
    assert peer.runs == [(32, 0, False), *[(40, 0, False), (10, 0, False), (8, 10, True)] * 2]
    (row,) = found["peers"]
    assert (row["name"], row["version"]) == ("llama.cpp", "9.9")
    assert (row["prefill_tokens_per_second"], row["decode_tokens_per_second"]) == (40.0, 2.0)
    assert row["prefill_ratio"] == pytest.approx(found["prefill_tokens_per_second"] / 40.0)
    assert row["decode_ratio"] == pytest.approx(found["decode_tokens_per_second"] / 2.0)
    assert (
        "llama.cpp 9.9: prefill 40.0 tokens/s" in run_command("bench", tiny, *sizes, "--vs", "llama.cpp")[1]
    )


def test_the_peer_reads_gguf_only(run_command, tmp_path, monkeypatch):
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: object())
    code, _, err = run_command("bench", write_folder(tmp_path / "tiny"), "--vs", "llama.cpp")
    assert code == 1
    assert "llama.cpp reads only GGUF files" in err


def test_bench_without_the_peer(run_command, tiny, monkeypatch):
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: None)
    code, out, err = run_command("bench", tiny, "--vs", "llama.cpp", "--json")
    assert (code, out) == (1, "")
    assert "llama-cpp-python is not installed" in err


@pytest.mark.parametrize(
    "flags", [("--prompt-tokens", 0), ("--new-tokens", 0), ("--depth", -1), ("--repeat", 0)]
)
def test_bench_of_nothing(run_command, tiny, flags):
    code, _, err = run_command("bench", tiny, *flags)
    assert code == 1
    assert str(flags[0]) in err


# chat


def typed(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))


def test_chat(run_command, tiny, loaded, monkeypatch):
    typed(monkeypatch, "hello", "", "again")
    code, out, err = run_command(
        "chat", tiny, *REFERENCE, "--max-tokens", 5, "--system", "Be brief.", "--temperature", 0
    )
    assert (code, err) == (0, "")
    required, messages = (
        [f"{loaded.info.name}. Ctrl+C stops a reply, Ctrl+D leaves.\n"],
        [Message("system", "Be brief.")],
    )
    for question in ("hello", "again"):
        messages.append(Message("user", question))
        request = ChatRequest(tuple(messages), SamplerSettings(temperature=0.0), StopSettings(max_tokens=5))
        events = list(loaded.stream(request, threading.Event()))
        reply = "".join(event.text for event in events if isinstance(event, Text))
        messages.append(Message("assistant", reply))
        required.append(
            printable(reply)
            + ("\n[stopped at the token limit]\n" if events[-1].reason == "max_tokens" else "\n")
        )
    assert out == "".join(required)


@pytest.fixture
def ctrl_c():
    """Ctrl+C as in a terminal: a shell starts what runs in the background with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_stops_the_reply_and_not_the_chat(run_command, tiny, monkeypatch, ctrl_c):
    real = LocalChat.stream

    def stream(self: LocalChat, request: Any, stop: threading.Event) -> Any:
        for event in real(self, request, stop):
            signal.raise_signal(signal.SIGINT)
            yield event

    monkeypatch.setattr(LocalChat, "stream", stream)
    typed(monkeypatch, "hello", "again")
    code, out, _ = run_command("chat", tiny, *REFERENCE)
    assert code == 0
    assert out.count("[stopped by you]") == 2
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_question_that_does_not_fit_leaves_the_chat_usable(run_command, tiny, monkeypatch):
    flags = (*REFERENCE, "--context-length", 128, "--max-tokens", 3, "--seed", 1)
    typed(monkeypatch, "fox", "fox " * 500, "hello")
    code, out, err = run_command("chat", tiny, *flags)
    assert code == 0
    assert "too long" in err
    typed(monkeypatch, "fox", "hello")
    assert run_command("chat", tiny, *flags)[1] == out  # what was said before it is still known


def test_bans_that_leave_nothing_do_not_end_the_chat(run_command, tiny, monkeypatch):
    typed(monkeypatch, "hello", "again")
    code, _, err = run_command("chat", tiny, *REFERENCE, "--allowed-tokens", 50, "--banned-tokens", 50)
    assert code == 0
    assert err.count("banned or not allowed") == 2


# Trouble


def test_trouble_is_one_sentence(run_command, tiny, tmp_path):
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(20))
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xff")
    cases: list[tuple[object, ...]] = [
        ("info", tmp_path / "nothing.gguf"),
        ("info", tmp_path / "broken.gguf"),
        ("run", tiny, "--prompt", "a", "--temperature", "-1"),
        ("run", tiny, *REFERENCE, "--prompt", "a", "--context-length", "1000000"),
        ("run", tiny, *REFERENCE, "--ids", "99999999"),
        ("run", tiny, *REFERENCE, "--ids", "", "--cfg-scale", "2"),
        ("run", tiny, "--prompt", "a", "--continue-last"),
        ("run", tiny, "--messages", tmp_path / "nothing.json"),
        ("run", tiny, *REFERENCE, "--prompt", "a b c d e f g " * 50, "--context-length", "16"),
        ("tokenize", tiny, "--file", tmp_path / "bytes.txt"),
        ("tokenize", tiny, "--file", tmp_path / "nothing.txt"),
        ("perplexity", tiny, *REFERENCE, "--file", ROOT / "LICENSE", "--context", "3"),
        ("perplexity", tiny, *REFERENCE, "--file", tmp_path / "short.txt", "--context", "64"),
        ("logits", tiny, *REFERENCE, "--prompt", "a", "--top", "0"),
    ]
    (tmp_path / "short.txt").write_text("too short")
    for arguments in cases:
        for more in ((), ("--json",)):
            code, out, err = run_command(*arguments, *more)
            assert (code, out) == (1, ""), arguments
            assert err.count("\n") == 1, err
            assert err.endswith(".\n"), err


@pytest.mark.parametrize(
    "arguments",
    [(), ("fly",), ("run",), ("logits", "m"), ("run", "m", "--prompt", "a", "--ids", "1"),
    ("run", "m", "--ids", "a"), ("tokenize", "m"),
     ("run", "m", "--prompt", "a", "--temperature", "warm"), ("run", "m", "--prompt", "a", "--when-full",
     "explode")],
)  # fmt: skip
def test_wrong_usage(run_command, arguments):
    code, out, err = run_command(*arguments)
    assert (code, out) == (2, "")
    assert [": error: " in line for line in err.splitlines()] == [True, False]  # no pages of usage
    assert " --help" in err.splitlines()[1]


def test_ctrl_c_leaves_without_a_traceback(run_command, tiny, monkeypatch):
    def interrupted(path: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(text, "_open", interrupted)
    assert run_command("tokenize", tiny, "--text", "a") == (130, "", "")


def test_version(run_command):
    code, out, _ = run_command("--version")
    assert code == 0
    assert out.startswith("inglenook-engine 0.")


def test_every_door_explains_itself(run_command):
    names = [each.name for each in commands()]
    assert names == [
        "info",
        "run",
        "chat",
        "serve",
        "tokenize",
        "render",
        "logits",
        "perplexity",
        "bench",
        "selftest",
        "settings",
    ]
    for name in names:
        code, out, _ = run_command(name, "--help")
        assert code == 0
        assert bool(re.search(r"--json(?![\w-])", out)) == (name not in ("chat", "serve"))


@pytest.mark.slow
def test_a_closed_pipe_is_quiet(tiny, tmp_path):
    (tmp_path / "text.txt").write_text("the quick brown fox " * 20000)
    command = [sys.executable, "-m", "engine", "tokenize", str(tiny), "--file", str(tmp_path / "text.txt")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has such a device")
def test_a_full_disk_is_one_sentence(tiny, monkeypatch, capsys):
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(["tokenize", str(tiny), "--text", "a"]) == 1
    assert capsys.readouterr().err == "There is not enough disk space.\n"


@pytest.mark.slow
def test_output_is_utf_8_whatever_the_locale(tiny):
    command = [sys.executable, "-m", "engine", "tokenize", str(tiny), "--text", "漢字🦊", "--json"]
    environment = {"PYTHONIOENCODING": "ascii", "PATH": "", "PYTHONUTF8": "0"}
    found = subprocess.run(command, cwd=ROOT, capture_output=True, env=environment, check=True)
    assert json.loads(found.stdout.decode("utf-8"))["ids"] == open_text(open_checkpoint(tiny))[0].encode(
        "漢字🦊"
    )
