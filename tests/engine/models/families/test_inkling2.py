"""What folders of Inkling 2 and its Mini say, the layers as they run, and the names that adapters have."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.backends.states import ConvolutionShape
from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.architectures.windowed_mixtures.inkling2 import from_hf, from_hf_looped
from engine.models.base import read_bytes
from engine.models.config import ModelConfig
from engine.models.config.relative import ClippedHeads
from engine.models.describe import cpu_only
from engine.models.headers.keys import Keys
from tests.engine.models.architectures import cached_logits, ids, transformers_model, write_checkpoint
from tests.engine.models.cases.inkling2 import INKLING_2, LOOPED
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.oracle import load, logits


def read(**keys: Any) -> ModelConfig:
    return from_hf(Keys({**INKLING_2, "architectures": ["Inkling2ForCausalLM"]} | keys, "config.json"))


def looped(**keys: Any) -> ModelConfig:
    return from_hf_looped(
        Keys({**LOOPED, "architectures": ["Inkling2LoopForCausalLM"]} | keys, "config.json")
    )


def attention(config: ModelConfig) -> ClippedHeads:
    assert isinstance(config.recurrent, ClippedHeads)
    return config.recurrent


def test_layers_with_windows_have_their_own_heads() -> None:
    config = read()
    shapes = [config.shape(layer) for layer in range(5)]
    found = [(shape.heads, shape.kv_heads, shape.head_dim, shape.window) for shape in shapes]
    sliding, full = (6, 3, 16, 7), (4, 2, 24, 0)
    assert found == [sliding, full, full, sliding, sliding]
    kind = attention(config)
    assert (kind.extents, kind.dynamic, kind.tempered) == ((7, 19, 19, 7, 7), {1, 2}, {1, 2})
    assert (kind.clip, kind.profile_clip, kind.caps, kind.block) == (4.0, 1.5, (1.5, 2.0), 2)
    assert (config.logit_cap, cpu_only(config)) == (12.0, "")


def test_taps_of_rows_need_copies() -> None:
    """One for each of four taps, in the layers without a window."""
    parts = [
        ConvolutionShape(width, 4)
        for layer in range(5)
        for width in ((4 * 48, 4 * 48, 64, 64) if layer in (1, 2) else (48, 48, 64, 64))
    ]
    assert list(read().state_shapes) == parts


def test_every_run_of_a_layer_has_a_cache_and_states_of_its_own() -> None:
    config = looped()
    kind = attention(config)
    assert kind.order == (0, 1, 2, 3, 2, 3, 2, 3, 4, 5)
    assert (config.layers, config.cached_layers) == (10, tuple(range(10)))
    assert (kind.first, kind.last, kind.passes, kind.gate_rank) == (2, 4, 3, 8)
    assert [config.first_state_part(run) for run in range(10)] == list(range(0, 40, 4))
    assert config.windows == (7, 0) * 5
    once = looped(loop_num_passes=1)
    assert (once.layers, attention(once).order) == (6, tuple(range(6)))


def test_a_step_reads_layers_as_often_as_they_run(tmp_path: Path) -> None:
    model = load(write_checkpoint(BY_NAME["Inkling 2 Mini"], tmp_path / "m"))
    head = model.parts.head.weight.nbytes
    own = head // 307  # and a row of the table of embeddings, which is as large
    read = read_bytes(model.config, 1_000_000, 0, model.parts)
    assert read == head + (1_000_000 - 2 * head + own) * 10 // 6


def test_the_makers_say_how_often_layers_run_in_a_table() -> None:
    own = {"core_start": 2, "core_end": 6, "num_passes": 2, "gate_rank": 16}
    kind = attention(looped(loop_config=own))
    assert kind.order == (0, 1, 2, 3, 4, 5, 2, 3, 4, 5)
    assert (kind.first, kind.last, kind.passes, kind.gate_rank) == (2, 6, 2, 16)


def test_defaults() -> None:
    config = from_hf(Keys({"architectures": ["Inkling2ForCausalLM"]}, "config.json"))
    kind, experts = attention(config), config.experts
    assert (config.layers, config.width, config.vocab_size, config.context_length) == (
        48, 4608, 201_024, 1 << 20
    )  # fmt: skip
    assert config.silent_tokens == (200_058, 201_024)
    assert config.windows[:7] == (1024,) * 5 + (0, 1024)
    assert (config.shape(0).heads, config.shape(0).kv_heads, config.shape(5).kv_heads) == (48, 8, 8)
    assert (kind.rank, kind.taps, kind.floor, kind.growth, kind.block) == (16, 4, 128_000, 0.1, 6)
    assert (kind.caps, kind.profile_clip, kind.passes) == ((4.0, 25.0), 8.0, 1)
    assert kind.clip == pytest.approx(22.627416997969522)
    assert experts is not None
    assert (experts.count, experts.used, experts.width, experts.scale) == (384, 8, 2304, 8.0)


def test_defaults_of_the_mini() -> None:
    config = from_hf_looped(Keys({"architectures": ["Inkling2LoopForCausalLM"]}, "config.json"))
    kind, experts = attention(config), config.experts
    assert (config.layers, config.width, config.heads, config.queries_of(0)) == (48, 2304, 24, 24)
    assert kind.order == (*range(6), *[*range(6, 18)] * 3, *range(18, 24))
    assert (kind.floor, kind.gate_rank) == (8192, 64)
    assert experts is not None
    assert (experts.count, experts.width) == (128, 1152)


@pytest.mark.parametrize(
    ("keys", "error", "words"),
    [
        ({"scoring_func": "softmax"}, UnsupportedModel, "sets scoring_func to 'softmax'"),
        ({"layer_types": ["hybrid", "linear", *["hybrid"] * 4]}, UnsupportedModel, "of the kind 'linear'"),
        ({"loop_layer_index_start": 3}, BadCheckpoint, "from 3 to 4 run several times; multiples of 2"),
        ({"loop_layer_index_end": 1}, BadCheckpoint, "loop_layer_index_end is 1"),
        ({"loop_layer_index_start": 0}, BadCheckpoint, "loop_layer_index_start is 0"),
        ({"loop_num_passes": 0}, BadCheckpoint, "loop_num_passes is 0"),
        ({"qk_l2_clip_threshold": 0}, BadCheckpoint, "qk_l2_clip_threshold is 0"),
        ({"n_layers_per_attn_res_block": 0}, BadCheckpoint, "n_layers_per_attn_res_block is 0"),
        ({"num_experts_per_tok": 7}, BadCheckpoint, "num_experts_per_tok is 7"),
        ({"loop_config": 5}, BadCheckpoint, "loop_config"),
    ],
)
def test_what_is_refused(keys: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        looped(**keys)


def test_tokens_that_only_fill_up_the_vocabulary_are_never_written(tmp_path: Path) -> None:
    folder = write_checkpoint(BY_NAME["Inkling 2"], tmp_path / "m")
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"unpadded_vocab_size": 300}), "utf-8")
    found = logits(load(folder), ids(60))
    expected = cached_logits("Inkling 2")
    np.testing.assert_allclose(found[:, :300], expected[:, :300], atol=1e-4 * np.abs(expected).max())
    assert found[:, 300:].max() < -11.9  # a soft cap of 12 follows


@pytest.mark.parametrize("name", ["Inkling 2", "Inkling 2, with pictures", "Inkling 2 Mini"])
def test_adapters_name_modules_as_transformers_does(tmp_path: Path, name: str) -> None:
    model = load(write_checkpoint(BY_NAME[name], tmp_path / "m"))
    modules = {
        module: each.weight.shape
        for module, each in transformers_model(BY_NAME[name]).named_modules()
        if isinstance(each, torch.nn.Linear) and "vision" not in module
    }
    assert len(modules) > 30
    for module, shape in modules.items():
        slot = model.slots[module]
        assert (slot.rows, slot.columns) == tuple(shape), module


def packed(folder: Path, path: Path, four: bool) -> Path:
    """The folder with its experts as the makers publish them: in NVFP4 of which each expert has a number, or
    in MXFP8.
    """
    draws = torch.Generator().manual_seed(5)
    tensors = load_file(folder / "model.safetensors")
    for name in [name for name in tensors if name.endswith(("w13_weight", "w2_weight"))]:
        count, rows, columns = tensors[name].shape
        if four:
            shape = count, rows, columns // 2
            tensors[name] = torch.randint(0, 256, shape, generator=draws).to(torch.uint8)
            scales = 0.5 + torch.rand(count, rows, columns // 16, generator=draws)
            tensors[name + "_scale"] = scales.to(torch.float8_e4m3fn)
            tensors[name + "_amax"] = 10 + 20 * torch.rand(count, generator=draws)
            tensors[name + "_outer_scale_denominator"] = torch.tensor(300.0)
        else:
            numbers = 4 * torch.randn(count, rows, columns, generator=draws)
            tensors[name] = numbers.to(torch.float8_e4m3fn)
            shape = count, rows, columns // 32
            tensors[name + "_scale"] = torch.randint(122, 126, shape, generator=draws).to(torch.uint8)
    shutil.copytree(folder, path)
    save_file(tensors, path / "model.safetensors", {"format": "pt"})
    return path


@pytest.mark.slow
@pytest.mark.parametrize("four", [True, False], ids=["NVFP4", "MXFP8"])
def test_experts_as_the_makers_pack_them(tmp_path: Path, four: bool) -> None:
    from transformers import AutoModelForCausalLM

    whole = write_checkpoint(BY_NAME["Inkling 2 Mini"], tmp_path / "m")
    folder = packed(whole, tmp_path / "packed", four)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    with torch.inference_mode():
        expected = model(torch.tensor([ids(60)]), use_cache=False).logits[0].numpy()
    found = logits(load(folder), ids(60))
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()
    assert np.abs(cached_logits("Inkling 2 Mini") - expected).max() > 0.1 * np.abs(expected).max()
