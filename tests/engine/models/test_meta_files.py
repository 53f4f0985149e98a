"""Llama as Meta publishes it, in one file or in the parts of model parallelism, equals its twin."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from engine.errors import BadCheckpoint, EngineError, UnsupportedModel
from engine.hub.local.scan import model_paths
from engine.models.load import read_config
from engine.models.open_text import open_text
from engine.text.template.source import folder_template, is_meta
from engine.weights.checkpoint import open_checkpoint
from engine.weights.pytorch.meta import read_meta
from tests.engine.models.oracle import load, logits
from tests.tiny import LLAMA3_SCALING, Tiny, tiny_config, tiny_weights, write_folder

Floats = npt.NDArray[np.float32]
SHAPE = Tiny(width=128, heads=4, kv_heads=2, head_dim=32, ffn_width=192, vocab_size=308)
IDS = list(np.random.default_rng(9).integers(0, 307, 24))
NAMES = (
    ("model.embed_tokens", "tok_embeddings"), ("model.norm", "norm"), ("lm_head", "output"), ("model.", ""),
    ("self_attn.q_proj", "attention.wq"), ("self_attn.k_proj", "attention.wk"),
    ("self_attn.v_proj", "attention.wv"), ("self_attn.o_proj", "attention.wo"),
    ("mlp.gate_proj", "feed_forward.w1"), ("mlp.down_proj", "feed_forward.w2"),
    ("mlp.up_proj", "feed_forward.w3"), ("input_layernorm", "attention_norm"),
    ("post_attention_layernorm", "ffn_norm"),
)  # fmt: skip
PARAMS: dict[str, Any] = {
    "dim": 128, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "multiple_of": 32, "ffn_dim_multiplier": 1.3,
    "norm_eps": 1e-5, "vocab_size": -1,
}  # fmt: skip


def published(tiny: Tiny) -> dict[str, Floats]:
    """The weights by Meta's names, the rows of queries and keys in the order of interleaved rope."""
    out = {}
    for name, values in tiny_weights(tiny).items():
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            halves = values.reshape(-1, 2, tiny.head_dim // 2, tiny.width)
            values = np.ascontiguousarray(halves.transpose(0, 2, 1, 3)).reshape(values.shape)
        for theirs, own in NAMES:
            name = name.replace(theirs, own)
        out[name] = values
    return out


def part_of(name: str, values: Floats, part: int, parts: int, ranked: bool) -> Floats:
    """What one of `parts` files holds of a tensor, after fairscale's parallel layers."""
    if values.ndim == 1:
        return values
    if name.endswith(("wk.weight", "wv.weight")) and parts > SHAPE.kv_heads:
        return np.split(values, SHAPE.kv_heads)[part * SHAPE.kv_heads // parts]
    columns = name.endswith(("wo.weight", "w2.weight")) or (name.startswith("tok") and not ranked)
    return np.array_split(values, parts, axis=1 if columns else 0)[part]


def write_meta(folder: Path, params: dict[str, Any] = PARAMS, parts: int = 1, ranked: bool = False) -> Path:
    """Write params.json and the files of weights; `ranked`: parts of embeddings are rows, as in Llama 3."""
    folder.mkdir(parents=True)
    (folder / "params.json").write_text(json.dumps(params))
    tensors = published(SHAPE)
    for part in range(parts):
        held = {name: part_of(name, values, part, parts, ranked) for name, values in tensors.items()}
        stored = {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in held.items()}
        stored["rope.freqs"] = torch.ones(16)
        torch.save(stored, folder / f"consolidated.{part:02d}.pth")
    return folder


@pytest.mark.parametrize("ranked", [False, True], ids=["by columns", "by rows"])
@pytest.mark.parametrize("parts", [1, 2, 4])
def test_logits(tmp_path: Path, parts: int, ranked: bool) -> None:
    """The twin's logits bit for bit, in parts, too, where several may have the same heads of keys."""
    folder = write_meta(tmp_path / "own", parts=parts, ranked=ranked)
    found = logits(load(folder), IDS)
    np.testing.assert_array_equal(found, logits(load(write_folder(tmp_path / "twin", SHAPE)), IDS))


LLAMA3 = {"vocab_size": 128256, "rope_theta": 500000.0}
SCALED = {**LLAMA3, "use_scaled_rope": True}


@pytest.mark.parametrize(
    ("params", "vocabulary", "expected"),
    [
        ({"norm_eps": 1e-6}, 307, {"max_position_embeddings": 2048, "rms_norm_eps": 1e-6}),
        ({}, 307, {"max_position_embeddings": 4096}),
        ({"rope_theta": 1e6}, 307, {"max_position_embeddings": 16384, "rope_theta": 1e6}),
        (LLAMA3, 100_003, {"max_position_embeddings": 8192, "rope_theta": 500000.0}),
        (SCALED, 100_003, {"factor": 32.0, "tie_word_embeddings": True}),
        ({**SCALED, "dim": 3072, "n_heads": 24}, 100_003, {"factor": 32.0, "tie_word_embeddings": True}),
        ({**SCALED, "dim": 4096, "n_heads": 32}, 100_003, {"factor": 8.0}),
        ({**SCALED, "rope_scaling_factor": 16}, 100_003, {"factor": 16.0, "tie_word_embeddings": True}),
    ],
)
def test_params(tmp_path: Path, params: dict[str, Any], vocabulary: int, expected: dict[str, Any]) -> None:
    """params.json is the twin's config.json: versions of Llama are told by their settings."""
    all_params = PARAMS | params
    width, heads = all_params["dim"], all_params["n_heads"]
    one = torch.zeros(1)
    tensors = {
        "tok_embeddings.weight": one.expand(vocabulary, width),
        "output.weight": one.expand(vocabulary, width),
        "layers.0.attention.wo.weight": one.expand(width, width),
        "layers.0.feed_forward.w1.weight": one.expand(192, width),
    }
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "params.json").write_text(json.dumps(all_params))
    torch.save(tensors, tmp_path / "m" / "consolidated.00.pth")
    config, _tensors, _files = read_meta(tmp_path / "m")
    twin = tiny_config(SHAPE.but(vocab_size=vocabulary, width=width, heads=heads, head_dim=width // heads))
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": expected.get("rope_theta", 10000.0)}
    if "factor" in expected:
        rope = LLAMA3_SCALING | {"factor": expected["factor"], "rope_theta": 500000.0}
        rope["original_max_position_embeddings"] = 8192
        twin["max_position_embeddings"] = 131072
    twin |= {"rope_parameters": rope, **{name: value for name, value in expected.items() if name in twin}}
    assert config == {name: twin.get(name) for name in config}


def test_the_folder_is_found_and_a_file_of_it_opens_it(tmp_path: Path) -> None:
    """Meta's repositories have the same model in both forms; the twin alone is listed."""
    own = write_meta(tmp_path / "own", parts=2)
    twin = write_folder(tmp_path / "twin", SHAPE)
    write_meta(twin / "original")
    assert list(model_paths(tmp_path, Event())) == [own, twin]
    checkpoint = open_checkpoint(own / "consolidated.01.pth")
    assert checkpoint.path == own
    assert [file.name for file in checkpoint.files] == ["consolidated.00.pth", "consolidated.01.pth"]
    assert read_config(checkpoint).layers == 2


def test_the_first_models_of_mistral(tmp_path: Path) -> None:
    """One file of PyTorch with Mistral's settings, which have the feed-forward's width."""
    params = PARAMS | {"hidden_dim": 192, "vocab_size": 308, "head_dim": 32, "sliding_window": 4096}
    folder = write_meta(tmp_path / "own", params)
    config = read_config(open_checkpoint(folder))
    assert config.rope is not None
    np.testing.assert_allclose(
        logits(load(folder), IDS), logits(load(write_folder(tmp_path / "twin", SHAPE)), IDS), atol=1e-4
    )


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ("first missing", BadCheckpoint, r"own: its consolidated\.\*\.pth files \(1\) are not all parts"),
        ("last missing", BadCheckpoint, r"own: its consolidated\.\*\.pth files \(1\) are not all parts"),
        ("other names", BadCheckpoint, r"files \(2\) are not all parts"),
        ("other shapes", BadCheckpoint, r"tensor layers\.0\.attention\.wk\.weight .* have different shapes"),
        ("experts", UnsupportedModel, "its author's own format"),
        ("pictures", UnsupportedModel, "its author's own format"),
        ("no width", BadCheckpoint, "does not give dim"),
        ("a number", BadCheckpoint, r"files \(2\) are not all parts"),
    ],
)
def test_refused(tmp_path: Path, change: str, kind: type[EngineError], words: str) -> None:
    """By one sentence, before anything is read."""
    folder = write_meta(tmp_path / "own", parts=2)
    params = {"experts": {"moe_args": {"num_experts": 8}}, "pictures": {"vision_chunk_size": 448}}
    (folder / "params.json").write_text(json.dumps(PARAMS | params.get(change, {})))
    second = folder / "consolidated.01.pth"
    if change == "first missing":
        (folder / "consolidated.00.pth").unlink()
    elif change == "last missing":
        second.unlink()
    elif change == "no width":
        (folder / "params.json").write_text('{"n_heads": 4}')
    elif change == "a number":
        for file in (folder / "consolidated.00.pth", second):
            tensors = torch.load(file)
            tensors["layers.0.feed_forward.w1.weight"] = torch.tensor(1.0)
            torch.save(tensors, file)
    elif change.startswith("other"):
        tensors = torch.load(second)
        key = tensors.pop("layers.0.attention.wk.weight")
        if change == "other shapes":
            tensors["layers.0.attention.wk.weight"] = key[:8].clone()
        torch.save(tensors, second)
    with pytest.raises(kind, match=words):
        open_checkpoint(folder)


def test_more_heads_than_columns_are_refused(tmp_path: Path) -> None:
    folder = write_meta(tmp_path / "own", PARAMS | {"n_heads": 256, "n_kv_heads": 256}, parts=2)
    with pytest.raises(EngineError, match="head"):
        read_config(open_checkpoint(folder))


def test_vocabulary_of_llama_3(tmp_path: Path) -> None:
    """A list of ranks is cut as Llama 3's, whose control tokens follow, and whose chat format they tell."""
    ranks = [bytes([value]) for value in range(256)] + [b"he", b"ll", b"hell", b"hello", b" hello"]
    lines = [f"{base64.b64encode(data).decode()} {rank}" for rank, data in enumerate(ranks)]
    folder = write_meta(tmp_path / "own", PARAMS | LLAMA3)
    (folder / "tokenizer.model").write_text("\n".join(lines))
    tokenizer, template = open_text(open_checkpoint(folder))
    assert tokenizer.encode("hello hello") == [259, 260]
    assert tokenizer.encode("12345") == [*b"12345"]
    names = {tokenizer.piece(id): id for id in tokenizer.special_ids}
    begin = len(ranks)
    assert (names["<|begin_of_text|>"], names["<|eot_id|>"]) == (begin, begin + 9)
    assert tokenizer.add_bos
    assert {begin + 1, begin + 9} <= set(tokenizer.stop_token_ids)
    text = template.render([{"role": "user", "content": "hi"}], add_generation_prompt=True)
    assert text.startswith("<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>")
    assert text.endswith("<|start_header_id|>assistant<|end_header_id|>\n\n")


def test_template_of_llama_2(tmp_path: Path) -> None:
    """Meta's own format for the folders whose names tell that the model chats; none for others."""
    folder = write_meta(tmp_path / "llama-2-7b-chat")
    source = folder_template(folder)
    assert folder_template(write_meta(tmp_path / "llama-2-7b")) is None
    from jinja2 import Template

    assert source is not None
    roles = ("system", "user", "assistant", "user")
    texts = ("Be kind.", " Hi ", "Hello!", "Bye")
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
    assert Template(source).render(messages=messages, bos_token="<s>", eos_token="</s>") == (
        "<s> [INST] <<SYS>>\nBe kind.\n<</SYS>>\n\nHi [/INST] Hello! </s><s> [INST] Bye [/INST]"
    )
    (folder / "consolidated.safetensors").touch()  # then Mistral's file counts, for text and weights alike
    assert not is_meta(folder)
    assert folder_template(folder) is None
