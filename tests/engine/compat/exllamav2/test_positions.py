"""The attributes that scale positions do what they say; those of other parts of loading, too."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from engine.compat.exllamav2 import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Config
from engine.compat.exllamav2.config_facts import FileScaling, file_scaling
from engine.errors import BadCheckpoint, BadSetting, NotSupportedYet
from engine.models.headers.overrides import Overrides
from engine.models.layers.positions.rope import rotary_table, yarn_divisors, yarn_magnitude
from engine.models.load import read_config
from engine.weights.checkpoint import open_checkpoint
from tests.tiny import LLAMA3_SCALING, TINY, write_folder, write_gguf

LINEAR = {"rope_type": "linear", "factor": 2.0}
DIM = TINY.head_dim


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return write_gguf(tmp_path_factory.mktemp("plain") / "tiny.gguf")


def rope_of(path, **attributes):
    """The rope and the context of a model with these attributes set."""
    config = ExLlamaV2Config(str(path))
    for name, value in attributes.items():
        setattr(config, name, value)
    model = ExLlamaV2(config)
    checkpoint = model._checkpoint()
    try:
        found = read_config(checkpoint)
    finally:
        checkpoint.close()
    assert model.context_length() == found.context_length
    return found.rope, found.context_length


@pytest.mark.parametrize("kind", ["gguf", "folder"])
def test_linear_and_ntk(kind, plain, tmp_path):
    path = plain if kind == "gguf" else write_folder(tmp_path / "m", TINY)
    before, context = rope_of(path)
    assert (set(before.divisors), before.base, context) == ({1.0}, 10000.0, 1024)
    scaled, context = rope_of(path, scale_pos_emb=4.0)
    assert (set(scaled.divisors), context) == ({4.0}, 4096)
    assert np.allclose(rotary_table(scaled, 9).cos[8], rotary_table(before, 9).cos[2])
    raised, context = rope_of(path, scale_alpha_value=2.5)
    assert raised.base == pytest.approx(10000.0 * 2.5 ** (DIM / (DIM - 2)))
    assert (set(raised.divisors), context) == ({1.0}, 2560)


def test_the_file_s_own_linear_factor_is_the_attribute(tmp_path):
    path = write_folder(tmp_path / "m", TINY.but(rope_scaling=LINEAR))
    assert ExLlamaV2Config(path).scale_pos_emb == 2.0
    same, context = rope_of(path)
    assert (set(same.divisors), context) == ({2.0}, 1024)
    other, context = rope_of(path, scale_pos_emb=6.0)
    assert (set(other.divisors), context) == ({6.0}, 3072)


def test_ntk_under_llama3_scaling(tmp_path):
    """The frequencies are raised before those of long waves are divided."""
    path = write_folder(tmp_path / "m", TINY.but(rope_scaling=LLAMA3_SCALING))
    assert ExLlamaV2Config(path).alt_rope_method == "llama3"
    before, _ = rope_of(path)
    after, _ = rope_of(path, scale_alpha_value=4.0)
    direct, _ = rope_of(
        write_folder(
            tmp_path / "n",
            TINY.but(rope_scaling=LLAMA3_SCALING, rope_theta=10000.0 * 4.0 ** (DIM / (DIM - 2))),
        )
    )
    assert after.divisors == pytest.approx(direct.divisors)
    assert after.divisors != before.divisors


@pytest.mark.parametrize("kind", ["gguf", "folder"])
def test_yarn(kind, plain, tmp_path):
    path = plain if kind == "gguf" else write_folder(tmp_path / "m", TINY)
    wish = {"alt_rope_method": "yarn", "yarn_rope_factor": 4.0}
    assert rope_of(path, **wish)[1] == 1024  # only for sequences longer than the model's own
    found, context = rope_of(path, max_seq_len=4096, **wish)
    assert context == 4096
    assert found.divisors == pytest.approx(yarn_divisors(10000.0, DIM, 4.0, 1024, 32.0, 1.0))
    assert found.magnitude == pytest.approx(yarn_magnitude(4.0))
    both, _ = rope_of(path, max_seq_len=4096, scale_pos_emb=2.0, **wish)
    assert both.divisors == pytest.approx([2 * value for value in found.divisors])


def test_a_loaded_model_computes_with_them(plain, tmp_path):
    """Position 2 p of a model with twice the scale is position p."""
    results = {}
    for scale in (1.0, 2.0):
        config = ExLlamaV2Config(str(plain))
        config.scale_pos_emb = scale
        config.max_seq_len = 1500
        model = ExLlamaV2(config)
        cache = ExLlamaV2Cache(model, lazy=True)
        steps = []
        model.load_autosplit(cache, callback=lambda done, total, steps=steps: steps.append((done, total)))
        assert steps
        assert steps[-1][0] <= steps[-1][1]
        assert cache.paged.context_length == cache.max_seq_len == (1024 if scale == 1 else 1500)
        results[scale] = model.forward(torch.arange(40, 60)[None], cache)
        cache.close()
        model.unload()
    assert not torch.allclose(results[1.0], results[2.0], atol=1e-2)
    direct = write_folder(tmp_path / "m", TINY.but(rope_scaling=LINEAR))
    model = ExLlamaV2(ExLlamaV2Config(direct))
    steps = list(model.load_gen(callback_gen=lambda done, total: [("step", done)]))
    assert {name for name, _ in steps} == {"step"}
    folder = ExLlamaV2(ExLlamaV2Config(write_folder(tmp_path / "n", TINY)))
    folder.config.scale_pos_emb = 2.0
    folder.load_tp(expect_cache_tokens=64)
    ids = torch.arange(40, 60)[None]
    assert torch.allclose(folder.forward(ids), model.forward(ids), atol=1e-4)
    for each in (model, folder):
        each.unload()


@pytest.mark.parametrize("factor", ["4", True, -2.0])
def test_a_factor_in_the_files_that_is_none_is_refused(factor):
    config = {"rope_scaling": {"rope_type": "yarn", "factor": factor}, "max_position_embeddings": 512}
    with pytest.raises(BadCheckpoint, match=f"scale positions by {factor!r}"):
        file_scaling(Folder(config))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, FileScaling()), ({"rope_scaling": {"type": "linear", "factor": 4}}, FileScaling(4.0)),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 4}}, FileScaling()),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4}, "max_position_embeddings": 512},
         FileScaling(1.0, "yarn", 4.0, 512)),
        ({"rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 256},
          "max_position_embeddings": 512}, FileScaling(1.0, "yarn", 4.0, 256)),
        ({"text_config": {"rope_scaling": {"type": "su", "factor": 2}}, "max_position_embeddings": 64},
         FileScaling(1.0, "su", 2.0, 64)),
        ({"rope_scaling": {"type": "longrope"}}, FileScaling(method="su")),
    ],
)  # fmt: skip
def test_the_scaling_in_a_configuration(config, expected):
    assert file_scaling(Folder(config)) == expected


class Folder:
    """A checkpoint of which only the configuration counts."""

    format = "safetensors"

    def __init__(self, config):
        self.metadata = {"config": config}


def test_the_file_s_own_yarn_is_the_attributes(tmp_path):
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    config = ExLlamaV2Config(str(write_folder(tmp_path / "m", TINY.but(rope_scaling=yarn))))
    assert (config.alt_rope_method, config.scale_pos_emb) == ("yarn", 1.0)
    assert (config.yarn_rope_factor, config.yarn_rope_original_max_position_embeddings) == (4.0, 64)


def test_a_model_is_quantised_by_its_bits(tmp_path):
    for type_name, quantised in (("F16", False), ("F32", False), ("Q8_0", True), ("Q4_1", True)):
        file = write_gguf(tmp_path / f"{type_name}.gguf", TINY, type_name)
        assert ExLlamaV2(ExLlamaV2Config(str(file))).is_quant() is quantised


def test_what_cannot_be_is_refused(plain, tmp_path):
    with pytest.raises(BadSetting, match="stretch of positions"):
        rope_of(plain, scale_pos_emb=-1.0)
    with pytest.raises(BadSetting, match="alt_rope_method is 'su'"):
        rope_of(plain, alt_rope_method="su")
    llama3 = write_folder(tmp_path / "m", TINY.but(rope_scaling=LLAMA3_SCALING))
    with pytest.raises(BadSetting, match="cannot be removed"):
        rope_of(llama3, alt_rope_method=None)
    with pytest.raises(BadSetting, match="yarn factor"):
        Overrides(yarn=0.5, yarn_original=10)
    with pytest.raises(NotSupportedYet, match="`lazy`"):
        ExLlamaV2(ExLlamaV2Config(plain)).load(lazy=True)
    with pytest.raises(NotSupportedYet, match="cannot be combined"):
        ExLlamaV2(ExLlamaV2Config(plain)).load(progress=True, callback=print)
    with pytest.raises(BadSetting, match="leaves no GPU"):
        ExLlamaV2(ExLlamaV2Config(plain)).load(gpu_split=[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        every = ExLlamaV2(ExLlamaV2Config(plain))
        every.load([])  # as scripts do that found one GPU
        every.unload()


@pytest.mark.parametrize("config_key", ["num_experts_per_tok", "experts_per_token"])
def test_experts_for_each_token(config_key):
    class Folder:
        format = "safetensors"
        metadata = {"config": {config_key: 2, "text_config": {config_key: 2}}}

    changed = Overrides(experts=3).on(Folder())
    assert changed.metadata["config"][config_key] == 3
    assert changed.metadata["config"]["text_config"][config_key] == 3
    assert Overrides().on(changed) is changed


def test_experts_of_a_gguf_file(plain):
    checkpoint = open_checkpoint(plain)
    with pytest.raises(BadSetting, match="no experts"):
        Overrides(experts=3).on(checkpoint)
    checkpoint.close()


def test_progress_is_printed(plain, capsys):
    model = ExLlamaV2(ExLlamaV2Config(plain))
    model.load(progress=True)
    assert "Loading tiny.gguf: " in capsys.readouterr().err
    model.unload()
