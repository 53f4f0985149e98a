"""The sizes and kinds of layers that headers state, what the absence of a key means, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.headers import decoder
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import refuse_other
from engine.weights import FileTensor

CONFIG = {
    "architectures": ["OwlForCausalLM"], "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 3,
    "intermediate_size": 96, "vocab_size": 10,
}  # fmt: skip
HEADER = {
    "embedding_length": 64, "attention.head_count": 4, "block_count": 3, "feed_forward_length": 96,
    "context_length": 128, "attention.layer_norm_rms_epsilon": 1e-5, "attention.layer_norm_epsilon": 1e-4,
}  # fmt: skip
Tensors = dict[str, tuple[int, ...]]


def config(**more: Any) -> Keys:
    return Keys({**CONFIG, **more}, "config.json")


def tensors(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, FileTensor]:
    return {
        name: FileTensor(name, "F32", shape, np.zeros(4 * int(np.prod(shape)), np.uint8))
        for name, shape in shapes.items()
    }


def shape(
    more: Tensors | None = None, handled: tuple[str, ...] = (), layer_norm: bool = False, **keys: Any
) -> Any:
    table = tensors({"token_embd.weight": (10, 64), **(more or {})})
    return decoder.gguf_shape(
        Keys({**HEADER, **keys}, "x"), table, "owl", layer_norm=layer_norm, handled=handled
    )


def test_a_folder_that_states_little() -> None:
    found = decoder.hf_decoder(config(), bias=False)
    rope = found.pop("rope")
    assert (rope.base, rope.dim, rope.interleaved) == (10000.0, 16, False)
    assert found == {
        "architecture": "OwlForCausalLM", "name": "", "layers": 3, "width": 64, "heads": 4, "kv_heads": 4,
        "head_dim": 16, "ffn_width": 96, "vocab_size": 10, "context_length": 2048, "norm_eps": 1e-6,
        "tied": False, "activation": "silu", "attention_bias": False, "output_bias": False, "mlp_bias": False,
    }  # fmt: skip


def test_what_a_folder_states_stands_above_the_defaults_of_its_class() -> None:
    usual: dict[str, Any] = {
        "num_key_value_heads": 1, "head_dim": 32, "max_position_embeddings": 512, "tie_word_embeddings": True,
        "eps": 1e-3,
    }  # fmt: skip
    read = {"bias": True, "mlp_bias": True, "activation": "gelu", "share": 0.5, "interleaved": True}
    sizes = ("kv_heads", "head_dim", "context_length", "tied", "norm_eps", "activation")
    found = decoder.hf_decoder(config(), **read, base=70.0, norm_eps="eps", **usual)
    assert [found[name] for name in sizes] == [1, 32, 512, True, 1e-3, "gelu"]
    assert (found["rope"].base, found["rope"].dim, found["rope"].interleaved) == (70.0, 16, True)
    assert (found["attention_bias"], found["output_bias"], found["mlp_bias"]) == (True, True, True)
    own = config(
        num_key_value_heads=2, head_dim=8, max_position_embeddings=256, tie_word_embeddings=False, eps=1e-4,
        hidden_act="relu2", rope_theta=80.0,
    )  # fmt: skip
    found = decoder.hf_decoder(own, **read, base=70.0, norm_eps="eps", **usual)
    assert [found[name] for name in sizes] == [2, 8, 256, False, 1e-4, "relu2"]
    assert found["rope"].base == 80.0


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("hidden_size", 1), ("num_attention_heads", 1), ("num_hidden_layers", 1), ("intermediate_size", 1),
        ("vocab_size", 1), ("max_position_embeddings", 1), ("num_key_value_heads", 1), ("head_dim", 2),
    ],
)  # fmt: skip
def test_the_least_sizes_of_a_folder(name: str, least: int) -> None:
    assert decoder.hf_shape(config(**{"head_dim": 16, name: least}))
    with pytest.raises(BadCheckpoint, match=f"{name} is {least - 1}, but a whole number from {least}"):
        decoder.hf_shape(config(**{"head_dim": 16, name: least - 1}))


def test_activations() -> None:
    for name in ("hidden_act", "act"):
        with pytest.raises(UnsupportedModel, match="activation is 'elu'; only silu"):
            decoder.hf_activation(config(**{name: "elu"}), name)
        assert decoder.hf_activation(config(**{name: "gelu_new"}), name) == "gelu_tanh"
        decoder.refuse_other_than_silu(config(**{name: "swish"}), name)
        with pytest.raises(UnsupportedModel, match=f"sets {name} to 'gelu'; only silu"):
            decoder.refuse_other_than_silu(config(**{name: "gelu"}), name)
    refuse_other(config(a=None), "a", 2)
    refuse_other(config(a=2), "a", 2)
    with pytest.raises(UnsupportedModel, match="sets a to 0, which"):
        refuse_other(config(a=0), "a", 2)


def test_sizes_of_a_header() -> None:
    assert shape() == {
        "architecture": "owl", "name": "", "layers": 3, "width": 64, "heads": 4, "kv_heads": 4,
        "head_dim": 16, "ffn_width": 96, "vocab_size": 10, "context_length": 128, "norm_eps": 1e-5,
        "tied": True,
    }  # fmt: skip
    assert shape(layer_norm=True)["norm_eps"] == 1e-4
    assert shape({"output.weight": (10, 64)})["tied"] is False
    own = shape(**{"attention.head_count_kv": 2, "attention.key_length": 8, "attention.value_length": 8})
    assert (own["kv_heads"], own["head_dim"]) == (2, 8)
    longer = {"attention.value_length": 32}
    assert shape(handled=("attention.value_length",), **longer)["head_dim"] == 16
    with pytest.raises(UnsupportedModel, match="keys and values differ in length"):
        shape(**longer)
    found = decoder.gguf_decoder(
        Keys(HEADER, "x"), tensors({"token_embd.weight": (10, 64)}), "owl", interleaved=True
    )
    assert (found["rope"].dim, found["rope"].interleaved) == (16, True)


def test_the_table_of_embeddings_says_how_many_tokens_there_are() -> None:
    with pytest.raises(BadCheckpoint, match=r"The file has no tensor token_embd\.weight"):
        decoder.gguf_vocab({})
    with pytest.raises(BadCheckpoint, match=r"has the shape \(10,\) for token_embd\.weight"):
        decoder.gguf_vocab(tensors({"token_embd.weight": (10,)}))


@pytest.mark.parametrize(
    ("config_", "windows"),
    [
        ({}, (9, 9, 0, 9, 9)), ({"sliding_window": None}, ()), ({"sliding_window": 0}, ()),
        ({"sliding_window": 7}, (7, 7, 0, 7, 7)), ({"sliding_window_pattern": 2}, (9, 0, 9, 0, 9)),
        ({"sliding_window_pattern": 0}, (9,) * 5), ({"sliding_window_pattern": 1}, (0,) * 5),
        ({"layer_types": ["sliding_attention", *["full_attention"] * 4], "sliding_window_pattern": 2},
         (9, 0, 0, 0, 0)),
    ],
)  # fmt: skip
def test_windows_of_a_folder(config_: dict[str, Any], windows: tuple[int, ...]) -> None:
    assert decoder.hf_sliding(config(**config_), 5, 9, 3) == windows


def test_one_window_for_all_layers() -> None:
    assert decoder.hf_windows(config(sliding_window=7), 3) == (7, 7, 7)
    assert decoder.hf_windows(config(w=7), 3, "w") == (7, 7, 7)
    assert decoder.hf_windows(config(sliding_window=None), 3) == decoder.hf_windows(config(), 3) == ()
    assert decoder.hf_windows(config(sliding_window=1), 1) == (1,)


def test_windows_of_a_header() -> None:
    def read(pattern: Any = None, window: int = 9, step: int = 3, full_first: bool = False) -> Any:
        keys = Keys({"attention.sliding_window_pattern": pattern}, "x")
        return decoder.gguf_windows(keys, 5, window, step, full_first=full_first)

    assert read() == (9, 9, 0, 9, 9)
    assert read(full_first=True) == (0, 9, 9, 0, 9)
    assert read(2) == (9, 0, 9, 0, 9)
    assert read(0) == read(step=0) == (9,) * 5
    assert read([True, False, True, True, False]) == (9, 0, 9, 9, 0)
    assert read(window=0) == ()


def test_kinds_of_layers() -> None:
    kinds = ["sliding_attention", "full_attention"]
    assert decoder.layer_kinds(config(layer_types=kinds), 2) == tuple(kinds)
    assert decoder.layer_kinds(config(layer_types=[*kinds, "mamba"]), 2) == tuple(kinds)
    assert decoder.layer_kinds(config(), 2) is None
    assert decoder.hf_layer_types(config(kinds=["a", "b"]), 2, ("a", "b"), "kinds") == ("a", "b")
    for wrong in (kinds[:1], "ab"):
        with pytest.raises(BadCheckpoint, match="layer_types is not a list of 2 kinds of layers"):
            decoder.layer_kinds(config(layer_types=wrong), 2)
    with pytest.raises(UnsupportedModel, match="layers of the kind 'mamba'"):
        decoder.layer_kinds(config(layer_types=["full_attention", "mamba"]), 2)


@pytest.mark.parametrize(("values", "keys", "field"), [(16, 16, 0), (8, 16, 8), (9, 16, 9)])
def test_values_shorter_than_keys(values: int, keys: int, field: int) -> None:
    assert decoder.shorter_values(values, keys) == {"value_dim": field}


@pytest.mark.parametrize(("values", "keys"), [(7, 16), (17, 16)])
def test_values_of_other_lengths(values: int, keys: int) -> None:
    with pytest.raises(UnsupportedModel, match="keys and values differ in length"):
        decoder.shorter_values(values, keys)


def test_numbers_for_each_layer() -> None:
    assert decoder.each_layer(config(n=5), "n", 1, 9, 3) == (5, 5, 5)
    assert decoder.each_layer(config(n=[1, 2, 3, 4]), "n", 1, 9, 3) == (1, 2, 3)
    with pytest.raises(BadCheckpoint, match="has 3 layers but states n of 2"):
        decoder.each_layer(config(n=[1, 2]), "n", 1, 9, 3)
    for low, value in ((1, 10), (1, 0), (1, [1, 0, 3])):
        with pytest.raises(BadCheckpoint, match="from 1 to 9"):
            decoder.each_layer(config(n=value), "n", low, 9, 3)


def test_layers_without_heads_are_recurrent() -> None:
    name = "attention.head_count_kv"
    keys, recurrent = decoder.recurrent_by_heads(Keys({name: [0, 2, 0, 2]}, "x"))
    assert (keys.raw(name), recurrent) == (2, {0, 2})
    keys, recurrent = decoder.recurrent_by_heads(Keys({name: [0, 0]}, "x"))
    assert (keys.raw(name), recurrent) == (None, {0, 1})
    keys, recurrent = decoder.recurrent_by_heads(Keys({name: 2}, "x"))
    assert (keys.raw(name), recurrent) == (2, frozenset())
    with pytest.raises(BadCheckpoint, match="have 1 to 2 key/value heads; one number"):
        decoder.recurrent_by_heads(Keys({name: [0, 2, 1]}, "x"))
    table = tensors({"blk.0.ssm_in.weight": (1, 1), "blk.2.ssm_in.weight": (1, 1), "blk.1.ssm_in.bias": (1,)})
    assert decoder.gguf_layers_with(table, "ssm_in", 3) == {0, 2}


@pytest.mark.parametrize(
    ("stated", "name"),
    [
        ("maker/owl", "owl"), ("maker/owl/", "owl"), ("owl", ""), ("", ""), ("/maker/owl", ""),
        ("./owl", ""), ("~/owl", ""), ("a/b/owl", ""),
    ],
)  # fmt: skip
def test_the_name_of_a_repository(stated: str, name: str) -> None:
    assert decoder.hf_name(config(_name_or_path=stated)) == name


@pytest.mark.parametrize("names", [None, [], "Owl", [1]])
def test_a_folder_without_a_class(names: Any) -> None:
    with pytest.raises(BadCheckpoint, match=r"architectures is .* but a list with the model's class name"):
        decoder.hf_architecture({"architectures": names})
