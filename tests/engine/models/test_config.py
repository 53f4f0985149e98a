"""What headers may say, and how a bad one is refused: the key, what was found, what was expected."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from engine.backends import make_backend
from engine.backends.reference.backend import ReferenceBackend
from engine.core import Loading
from engine.errors import BadCheckpoint, BadSetting, EngineError, NotEnoughMemory, UnsupportedModel
from engine.models import read_model
from engine.models.architectures import ARCHITECTURES, architecture_of
from engine.models.architectures.recurrent import mamba
from engine.models.architectures.windowed_mixtures import llama4
from engine.models.architectures.windowed_mixtures.afmoe import TRINITY
from engine.models.config.experts import Experts
from engine.models.config.recurrent import SelectiveScan
from engine.models.describe import cpu_only
from engine.models.headers.decoder import gguf_decoder
from engine.models.headers.keys import Keys
from engine.models.headers.rope import rope_from_gguf
from engine.settings import LoadSettings
from engine.vision.describe import describe
from engine.weights import FileTensor, open_checkpoint
from tests.engine.models.oracle import load
from tests.tiny import TINY, WIDE, tiny_config, write_folder, write_gguf

GGUF_CASES: dict[str, tuple[dict[str, Any], type[EngineError], str]] = {
    "missing layers": ({"llama__block_count": None}, BadCheckpoint,
    r"has no llama\.block_count; a whole number"),
    "layers text": ({"llama__block_count": "2"}, BadCheckpoint,
    r"llama\.block_count is '2', but a whole number"),
    "layers true": ({"llama__block_count": True}, BadCheckpoint, r"llama\.block_count is True"),
    "no layers": ({"llama__block_count": 0}, BadCheckpoint,
    r"llama\.block_count is 0, but a whole number from 1"),
    "wide": ({"llama__embedding_length": 1 << 31}, BadCheckpoint, r"embedding_length is 2147483648"),
    "heads each layer": ({"llama__attention__head_count": [6, 3]}, BadCheckpoint, r"head_count is \[6, 3\]"),
    "kv heads": ({"llama__attention__head_count_kv": 4}, BadCheckpoint, "6 heads and 4 key/value heads"),
    "eps": ({"llama__attention__layer_norm_rms_epsilon": -1.0}, BadCheckpoint, r"rms_epsilon is -1\.0"),
    "eps nan": ({"llama__attention__layer_norm_rms_epsilon": float("nan")}, BadCheckpoint,
    "rms_epsilon is nan"),
    "odd rope": ({"llama__rope__dimension_count": 31}, BadCheckpoint, "rotates 31 dimensions"),
    "long rope": ({"llama__rope__dimension_count": 34}, BadCheckpoint, "rotates 34 dimensions"),
    "value length": ({"llama__attention__value_length": 16}, UnsupportedModel,
    "keys and values differ in length"),
    "unknown scaling": ({"llama__rope__scaling__type": "spiral"}, UnsupportedModel, "'spiral'"),
    "experts": ({"llama__expert_count": 8}, BadCheckpoint, r"has no llama\.expert_used_count"),
    "more used than there": ({"llama__expert_count": 2, "llama__expert_used_count": 3}, BadCheckpoint,
    "uses 3 experts.* but has 2"),
    "shared experts": ({"llama__expert_shared_count": 1}, UnsupportedModel, r"llama\.expert_shared_count"),
    "soft-cap": ({"llama__attn_logit_softcapping": 50.0}, UnsupportedModel, r"attn_logit_softcapping"),
    "more layers": ({"llama__block_count": 3}, BadCheckpoint,
    r"lacks tensors.*blk\.2\.attn_q\.weight.* and 4 more"),
    "other ffn": ({"llama__feed_forward_length": 128}, BadCheckpoint,
    r"blk\.0\.ffn_down\.weight has the shape \(96, 160\)"),
}  # fmt: skip


@pytest.mark.parametrize(("keys", "error", "message"), GGUF_CASES.values(), ids=GGUF_CASES.keys())
def test_bad_gguf_metadata(
    tmp_path: Path, keys: dict[str, Any], error: type[EngineError], message: str
) -> None:
    path = write_gguf(tmp_path / "m.gguf", TINY, "F16", **keys)
    with pytest.raises(error, match=message):
        load(path)


HF_CASES: dict[str, tuple[dict[str, Any], type[EngineError], str]] = {
    "no architecture": ({"architectures": None, "model_type": "x"}, BadCheckpoint, "architectures is None"),
    "unknown architecture": ({"architectures": ["Rwkv5ForCausalLM"]}, UnsupportedModel,
    "'Rwkv5ForCausalLM'.*A later version may.*`inglenook-engine info --json` lists"),
    "another family": ({"architectures": ["GPT2LMHeadModel"]}, BadCheckpoint, "has no n_embd"),
    "no width": ({"hidden_size": None}, BadCheckpoint, "config.json has no hidden_size"),
    "layers 2.0": ({"num_hidden_layers": 2.0}, BadCheckpoint,
    r"num_hidden_layers is 2\.0, but a whole number"),
    "tied 1": ({"tie_word_embeddings": 1}, BadCheckpoint, "tie_word_embeddings is 1, but true or false"),
    "narrow": ({"hidden_size": 11, "head_dim": None}, BadCheckpoint,
    "head_dim is 1, but a whole number from 2"),
    "activation": ({"hidden_act": "snake"}, UnsupportedModel, "activation is 'snake'"),
    "quantised": ({"quantization_config": {"quant_method": "abc"}}, UnsupportedModel, "quantised by 'abc'"),
    "unknown scaling": ({"rope_scaling": {"type": "spiral", "factor": 4.0}}, UnsupportedModel, "'spiral'"),
    "longrope factors": (
        {"rope_scaling": {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}},
        BadCheckpoint, "short_factor",
    ),
    "scaling text": ({"rope_scaling": "linear"}, BadCheckpoint, "rope_scaling is 'linear', but an object"),
    "no factor": ({"rope_scaling": {"rope_type": "linear"}}, BadCheckpoint, "rope_scaling has no factor"),
    "factor 0": ({"rope_scaling": {"rope_type": "linear", "factor": 0}}, BadCheckpoint, "factor is 0"),
    "llama3 bounds": (
        {"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4}},
        BadCheckpoint, "high_freq_factor is 4",
    ),
    "biases": ({"attention_bias": True}, BadCheckpoint, r"lacks tensors.*self_attn\.q_proj\.bias"),
    "fewer tokens": ({"vocab_size": 300}, BadCheckpoint, r"embed_tokens\.weight has the shape \(307, 96\)"),
    "long value": ({"hidden_act": ["x" * 9000]}, BadCheckpoint, "hidden_act is"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "error", "message"), HF_CASES.values(), ids=HF_CASES.keys())
def test_bad_config_json(
    tmp_path: Path, changes: dict[str, Any], error: type[EngineError], message: str
) -> None:
    folder = write_folder(tmp_path / "m")
    (folder / "config.json").write_text(json.dumps(tiny_config(TINY) | changes))
    with pytest.raises(error, match=message) as caught:
        load(folder)
    assert len(str(caught.value)) < 1000


def test_missing_head_and_unknown_gguf_architecture(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", TINY.but(tied=True))
    (folder / "config.json").write_text(json.dumps(tiny_config(TINY)))  # says untied, but there is no head
    with pytest.raises(BadCheckpoint, match=r"lacks tensors.*lm_head\.weight"):
        load(folder)
    path = write_gguf(tmp_path / "m.gguf")
    path.write_bytes(path.read_bytes().replace(b"llama", b"rwkv5", 1))
    with pytest.raises(
        UnsupportedModel,
        match=r"m\.gguf has the architecture 'rwkv5'.*A later version may.*`inglenook-engine info --json`",
    ):
        describe(path)


def test_each_name_is_of_one_architecture_wherever_it_lies() -> None:
    for format in ("gguf", "safetensors"):
        named = [
            (name, each)
            for each in ARCHITECTURES
            for name in getattr(each, "gguf" if format == "gguf" else "hf")
        ]
        assert len({name for name, _each in named}) == len(named) > 100
        assert all(architecture_of(format, name) is each for name, each in named)
    assert all(architecture.gguf or architecture.hf for architecture in ARCHITECTURES)
    assert architecture_of("gguf", "LlamaForCausalLM") is architecture_of("safetensors", "llama") is None


def test_bad_rope_factors(tmp_path: Path) -> None:
    """One factor too few, and a negative one."""
    for values in ([1.0] * 15, [1.0] * 15 + [-1.0], [1.0] * 15 + [float("inf")]):
        raw = np.array(values, np.float32).view(np.uint8)
        tensor = FileTensor("rope_freqs.weight", "F32", (len(values),), raw)
        with pytest.raises(BadCheckpoint, match=r"rope_freqs\.weight"):
            rope_from_gguf(Keys({}, "x"), 32, {tensor.name: tensor}, interleaved=True)


def test_yarn_with_a_base_of_one() -> None:
    scaling = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.freq_base": 1.0}
    keys = Keys({**scaling, "rope.scaling.original_context_length": 64, "context_length": 256}, "x")
    with pytest.raises(BadCheckpoint, match="with yarn a larger one was expected"):
        rope_from_gguf(keys, 32, {}, interleaved=True)


@pytest.mark.parametrize(
    ("scaling", "length"),
    [
        ({"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 256}, 256),
        ({"rope_type": "yarn", "factor": 8.0}, 2048),
        ({"rope_type": "dynamic", "factor": 8.0}, 2048),
    ],
)
def test_scaled_rope_without_max_position_embeddings(
    tmp_path: Path, scaling: dict[str, Any], length: int
) -> None:
    """The length before scaling is the scaling's own, else the class's default for the absent key."""
    folder, ropes = write_folder(tmp_path / "m"), []
    config = tiny_config(TINY) | {"rope_scaling": scaling}
    del config["max_position_embeddings"]
    for own in ({}, {"max_position_embeddings": length}):
        (folder / "config.json").write_text(json.dumps(config | own))
        ropes.append(load(folder).config.rope)
    assert ropes[0] == ropes[1]


@pytest.mark.parametrize(("count", "why"), [(512, ""), (513, "mixtures of more than 512 experts")])
def test_experts_beyond_the_gpu_kernels(tmp_path: Path, count: int, why: str) -> None:
    config = load(write_folder(tmp_path / "m")).config
    experts = Experts(count, 2, 32, True, frozenset({0}))
    assert cpu_only(dataclasses.replace(config, experts=experts)) == why


def test_older_linear_scaling_key_of_gguf(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", llama__rope__scale_linear=4.0)
    rope = load(path).config.rope
    assert rope is not None
    assert rope.divisors == (4.0,) * 16
    path = write_gguf(tmp_path / "n.gguf", llama__attention__sliding_window=256)
    assert load(path).config.windows == (256, 256)


def test_attention_that_is_not_causal(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf", llama__attention__causal=False)
    config = load(file).config
    assert config.bidirectional
    assert config.headless
    file = write_gguf(tmp_path / "n.gguf", llama__attention__causal=False, llama__attention__sliding_window=9)
    with pytest.raises(UnsupportedModel, match=r"sets llama\.attention\.causal"):
        load(file)


@pytest.mark.parametrize("stated", [0, None])
def test_a_context_that_is_not_stated(tmp_path: Path, stated: int | None) -> None:
    """llama.cpp's files with 0 load there too; scaling begins with the same length."""
    yarn: dict[str, Any] = {"llama__rope__scaling__type": "yarn", "llama__rope__scaling__factor": 4.0}
    found = load(write_gguf(tmp_path / "m.gguf", llama__context_length=stated, **yarn)).config
    assert found == load(write_gguf(tmp_path / "n.gguf", llama__context_length=2048, **yarn)).config


def test_sizes_of_gguf_by_layer(tmp_path: Path) -> None:
    """A list with the same number for each layer is that number; other lists are refused."""
    one = load(write_gguf(tmp_path / "m.gguf")).config
    sizes = {"attention__head_count": one.heads, "attention__head_count_kv": one.kv_heads}
    sizes["feed_forward_length"] = one.ffn_width
    lists = {f"llama__{key}": [size] * one.layers for key, size in sizes.items()}
    assert load(write_gguf(tmp_path / "n.gguf", **lists)).config == one
    for key, wrong in lists.items():
        for other in (wrong[1:], [*wrong[1:], 2 * wrong[0]]):
            with pytest.raises(BadCheckpoint, match=key.rpartition("__")[2]):
                load(write_gguf(tmp_path / "o.gguf", **{key: other}))


def test_display_names(tmp_path: Path) -> None:
    for given, expected in {
        "HuggingFaceTB/SmolLM2": "SmolLM2",
        "/home/someone/x": "m",
        "./x": "m",
        "": "m",
    }.items():
        folder = write_folder(tmp_path / "m")
        (folder / "config.json").write_text(json.dumps(tiny_config(TINY) | {"_name_or_path": given}))
        assert describe(folder).name == expected


def _free_memory(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=count))


def test_not_enough_memory_says_how_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_gguf(tmp_path / "m.gguf", WIDE, "Q4_K")
    model = load(path)
    needed = model.resident_bytes
    cache_bytes = 4 * 256 * 2 * 4 * 2 * 2 * 64  # four pages, keys and values, fp32, two layers, two heads
    assert model.new_cache(512, "fp32").nbytes == cache_bytes
    _free_memory(monkeypatch, needed)
    load(path)
    _free_memory(monkeypatch, needed - 1)
    with pytest.raises(
        NotEnoughMemory,
        match=r"m\.gguf needs [\d.]+ MB of memory for its weights, but [\d.]+ MB are free; close other",
    ):
        load(path)
    _free_memory(monkeypatch, cache_bytes - 1)
    for dtype in ("fp32", "auto"):
        with pytest.raises(
            NotEnoughMemory, match=r"context of 512 tokens needs [\d.]+ [kM]B.*shorter context"
        ):
            model.new_cache(512, dtype)
    _free_memory(monkeypatch, cache_bytes)
    assert model.new_cache(512, "auto").page_count == 4


def test_a_system_without_memory_for_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(write_gguf(tmp_path / "m.gguf"))

    def refuse(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(model.backend, "new_cache", refuse)
    with pytest.raises(NotEnoughMemory, match="not enough memory for a context of 512 tokens"):
        model.new_cache(512)
    with pytest.raises(BadSetting, match="0 tokens"):
        model.new_cache(0)


def test_progress_of_loading(tmp_path: Path) -> None:
    class Preparing(ReferenceBackend):
        def prepare(self, forward: Any, cache_dtype: str) -> Any:
            yield Loading(f"{forward.__name__} {cache_dtype}", 0, 1)

    checkpoint = open_checkpoint(write_gguf(tmp_path / "m.gguf", TINY, "Q4_1", {"token_embd": "Q8_0"}))
    events = list(read_model(checkpoint, Preparing(), "fp16"))
    assert [(event.done, event.total) for event in events[:-1]] == [(0, 2), (1, 2), (2, 2)]
    assert events[-1] == Loading("forward fp16", 0, 1)


def test_kernels_are_compiled_while_the_weights_load(tmp_path: Path) -> None:
    order: list[str] = []

    class Early(ReferenceBackend):
        def prepare_early(self, forward: Any, cache_dtype: str, beside: Any) -> Any:
            try:
                order.append(f"begun for {cache_dtype} with {beside.args[0]} tokens")
                yield Loading("kernels", 0, 1)
                order.append("finished")
                yield Loading("kernels", 1, 1)
            finally:
                order.append("closed")

        def load_weight(self, tensor: Any) -> Any:
            order.append("weight")
            return super().load_weight(tensor)

    def loading() -> Any:
        checkpoint = open_checkpoint(write_gguf(tmp_path / "m.gguf", TINY, "Q4_1", {"token_embd": "Q8_0"}))
        return read_model(checkpoint, Early(), "fp16")

    events = list(loading())
    assert [(event.done, event.total) for event in events] == [(0, 2), (1, 2), (2, 2), (0, 1), (1, 1)]
    assert order[0] == f"begun for fp16 with {TINY.vocab_size} tokens"
    assert set(order[1:-2]) == {"weight"}
    assert order[-2:] == ["finished", "closed"]
    order.clear()
    given_up = loading()
    assert [next(given_up).done, next(given_up).done] == [0, 1]
    given_up.close()
    assert (order[0], order[-1]) == (f"begun for fp16 with {TINY.vocab_size} tokens", "closed")
    assert "finished" not in order


@pytest.mark.parametrize(("choice", "name"), [("reference", "reference"), ("cpu", "cpu"), ("auto", "cpu")])
def test_make_backend(choice: str, name: str) -> None:
    backend = make_backend(LoadSettings(backend=choice, threads=3))
    assert backend.name == name
    assert getattr(backend, "threads", 3) == 3


@pytest.mark.parametrize(
    ("read", "value"),
    [(lambda k: k.integer("x", 0, 9, 5), 5), (lambda k: k.number("x", 0, 9, 5), 5.0),
    (lambda k: k.flag("x", True), True),
     (lambda k: k.text("x", "a"), "a"), (lambda k: k.table("x"), None)],
)  # fmt: skip
def test_null_counts_as_absent(read: Callable[[Keys], Any], value: Any) -> None:
    assert read(Keys({"x": None}, "f")) == read(Keys({}, "f")) == value


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("Some-Model.Q4_1.gguf", "Some-Model.Q4_1"),
        ("big-00001-of-00001.gguf", "big"),
        ("v2-2024.gguf", "v2-2024"),
    ],
)
def test_a_gguf_model_is_named_after_its_file(tmp_path: Path, file: str, expected: str) -> None:
    write_gguf(tmp_path / file, TINY, "F32")
    assert describe(tmp_path / file).name == expected


def test_the_factor_of_attention_in_a_gguf_file_takes_the_place_of_yarns_own() -> None:
    """Equation 22 of arXiv 2309.00071 gives the factor that the makers leave out; theirs replaces it, as in
    transformers.
    """
    found = []
    for own in ({}, {"rope.scaling.yarn_attn_factor": 1.3}, {"rope.scaling.yarn_attn_factor": 1.0}):
        scaling = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, **own}
        keys = Keys({**scaling, "rope.scaling.original_context_length": 64, "context_length": 256}, "x")
        found.append(rope_from_gguf(keys, 32, {}, interleaved=True).magnitude)
    assert found == pytest.approx([1 + 0.1 * np.log(4), 1.3, 1.0])


def test_keys_that_a_gguf_file_need_not_have() -> None:
    """Their defaults are llama.cpp's: whole heads rotate, scaling begins with the model's context, and a
    mixture has the width of its experts.
    """
    sizes = {
        "block_count": 1, "embedding_length": 64, "attention.head_count": 4, "context_length": 256,
        "expert_feed_forward_length": 24, "attention.layer_norm_rms_epsilon": 1e-5,
    }  # fmt: skip
    table = {
        name: FileTensor(name, "F32", shape, np.full(np.prod(shape), 2, np.float32).view(np.uint8))
        for name, shape in {
            "token_embd.weight": (9, 64), "rope_factors_long.weight": (8,), "rope_factors_short.weight": (8,)
        }.items()
    }  # fmt: skip
    shape = gguf_decoder(Keys(sizes, "x"), table, "x", handled=("expert_count",))
    assert (shape["rope"].dim, shape["rope"].original_length, shape["ffn_width"]) == (16, 256, 24)
    mixture = sizes | {"expert_count": 8, "expert_used_count": 2, "expert_group_used_count": 2}
    experts = TRINITY.from_gguf(Keys(mixture, "x"), table).experts
    assert (experts.normalise, experts.groups, experts.used_groups) == (False, 1, 1)
    several = {"rope.scaling.factor": 2.0, "rope.scale_linear": 4.0}
    assert rope_from_gguf(Keys(several, "x"), 4, {}, interleaved=True).divisors == (2.0, 2.0)


def test_what_files_of_llama_4_and_mamba_leave_out() -> None:
    shape: dict[str, Any] = {
        "architectures": ["Llama4ForCausalLM"], "model_type": "llama4_text", "hidden_size": 256,
        "num_hidden_layers": 4, "num_attention_heads": 16, "vocab_size": 100,
    }  # fmt: skip
    found = llama4.from_hf(Keys(shape, "config.json"))
    assert (found.kv_heads, found.head_dim, found.ffn_width, found.context_length) == (8, 128, 16384, 131072)
    assert found.experts is not None
    assert (found.experts.count, found.experts.used, found.experts.width) == (16, 1, 8192)
    assert found.experts.layers == {0, 1, 2, 3}
    every_second = llama4.from_hf(Keys(shape | {"interleave_moe_layer_step": 2}, "config.json")).experts
    assert every_second is not None
    assert every_second.layers == {1, 3}
    own = llama4.from_hf(Keys(shape | {"num_key_value_heads": 4, "head_dim": 32}, "config.json"))
    assert (own.kv_heads, own.head_dim) == (4, 32)
    scan: dict[str, Any] = {
        "architectures": ["MambaForCausalLM"], "model_type": "mamba", "hidden_size": 100,
        "num_hidden_layers": 2, "vocab_size": 100, "state_size": 16,
    }  # fmt: skip
    for rank, expected in ((None, 7), ("auto", 7), (5, 5)):  # a sixteenth of the width, rounded up
        config = mamba.from_hf(Keys(scan | {"time_step_rank": rank}, "config.json"))
        assert isinstance(config.recurrent, SelectiveScan)
        assert config.recurrent.rank == expected
