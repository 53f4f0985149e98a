"""A decoder's parts from its configuration: which norms a layer has, its matrices, its head."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.backends.reference.backend import ReferenceBackend
from engine.drain import drain
from engine.models.building.attention import FusedQkv, KeysAsValues, QueryAlone, SeparateQkv
from engine.models.building.decoder import Builder, block_of, build, is_layered
from engine.models.building.source import Loader, Survey
from engine.models.config import ModelConfig
from engine.models.config.hyper import Loops
from engine.models.layers.positions.rope import RopeConfig
from engine.models.names import HF
from engine.weights.tensor import FileTensor

WIDTH, VOCAB = 12, 10
AT = "model.layers.0."


def config(**changes: Any) -> ModelConfig:
    sizes: dict[str, Any] = {
        "architecture": "X", "name": "", "layers": 2, "width": WIDTH, "heads": 3, "kv_heads": 1,
        "head_dim": 4, "ffn_width": 20, "vocab_size": VOCAB, "context_length": 64, "norm_eps": 1e-6,
        "tied": True, "rope": RopeConfig(10_000.0, 4, False, (1.0, 1.0)), "attention_bias": False,
        "output_bias": False, "mlp_bias": False,
    }  # fmt: skip
    return ModelConfig(**{**sizes, **changes})


def tensor(name: str, *shape: int) -> FileTensor:
    """Numbers that all differ."""
    values = np.arange(np.prod(shape), dtype=np.float32) + 1
    return FileTensor(name, "F32", shape, values.view(np.uint8))


def loader(**shapes: tuple[int, ...]) -> Loader:
    found = {name.replace("__", "."): shape for name, shape in shapes.items()}
    return Loader({name: tensor(name, *shape) for name, shape in found.items()}, ReferenceBackend())


def surveyed() -> Survey:
    """A source that has everything."""
    return Survey({}, ReferenceBackend())


@pytest.mark.parametrize(
    ("placement", "before", "after", "ways"),
    [
        ("before", (True, True), False, (False, False, False)),
        ("after", (False, False), True, (False, False, False)),
        ("both", (True, True), True, (False, False, False)),
        ("kept", (True, True), False, (False, False, True)),
        ("after_sum", (False, False), True, (False, True, False)),
        ("parallel", (True, False), False, (True, False, False)),
        ("parallel_both", (True, True), False, (True, False, False)),
        ("", (False, False), False, (False, False, False)),
    ],
)
def test_norms_of_a_layer(
    placement: str, before: tuple[bool, bool], after: bool, ways: tuple[bool, bool, bool]
) -> None:
    block = block_of(surveyed(), config(placement=placement), HF)
    assert (block.attention_norm is not None, block.mlp_norm is not None) == before
    assert (block.attention_post is not None, block.mlp_post is not None) == (after, after)
    assert (block.parallel, block.norms_sum, block.norms_both) == ways
    assert block.attention is not None
    assert block.mlp is not None


def test_layers_that_lack_a_half() -> None:
    def halves(**changes: Any) -> tuple[bool, bool]:
        block = block_of(surveyed(), config(**changes), HF)
        assert (block.attention_norm is None) >= (block.attention is None)
        assert (block.mlp_norm is None) == (block.mlp is None)
        return block.attention is not None, block.mlp is not None

    here, other = frozenset({0}), frozenset({1})
    assert halves(mlp_layers=here) == (False, True)
    assert halves(bare_layers=here) == (True, False)
    assert halves(one_part=True) == (True, False)
    assert halves(one_part=True, mlp_layers=here) == (False, True)
    assert halves(mlp_layers=other, bare_layers=other) == (True, True)
    assert block_of(surveyed(), config(unnormed_layers=here), HF).attention_norm is None


def test_norms_are_made_as_the_configuration_says() -> None:
    source = loader(n__weight=(WIDTH,))
    stored = np.arange(WIDTH, dtype=np.float32) + 1

    def norm(name: str = "n", post: bool = False, last: bool = False, **changes: Any) -> Any:
        return Builder(source, config(**changes), HF).norm(name, WIDTH, post=post, last=last)

    usual = norm()
    assert (usual.weight.tolist(), usual.eps, usual.is_layer_norm) == (stored.tolist(), 1e-6, False)
    assert norm(post=True).eps == 1e-6
    assert (norm(post=True, post_norm_eps=0.5).eps, norm(post_norm_eps=0.5).eps) == (0.5, 1e-6)
    assert norm(norm_offset=1.0).weight.tolist() == (stored + 1).tolist()
    assert norm(norm_offset=1.0, last=True).weight.tolist() == (stored + 1).tolist()
    assert norm(norm_offset=1.0, last=True, offset_last=False).weight.tolist() == stored.tolist()
    for bare in (norm(norm_weights=False, norm="layer"), norm("", norm="layer")):
        assert (bare.weight.tolist(), bare.is_layer_norm, bare.bias) == ([1.0] * WIDTH, True, None)
    builder = Builder(source, config(eps_by_terms=True), HF)
    assert builder.of_terms(usual, 3).eps == pytest.approx(3e-6)
    assert Builder(source, config(), HF).of_terms(usual, 3) is usual


def test_a_matrix_that_is_a_piece_of_one_in_the_file() -> None:
    source = loader(both__weight=(6, WIDTH), own__weight=(3, WIDTH))
    names = replace(HF, pieces=(("gate", "both", 0, 2), ("up", "both", 1, 2)))
    builder = Builder(source, config(), names)
    whole = np.arange(6 * WIDTH, dtype=np.float32).reshape(6, WIDTH) + 1
    for name, rows in (("gate", whole[:3]), ("up", whole[3:]), ("own", whole[:3])):
        made: Any = builder.linear(name, 3, WIDTH, False)
        assert made.weight.values.tolist() == rows.tolist()
        assert source.linears[name] is made
    assert "both" not in source.linears


def test_what_makes_queries_keys_and_values() -> None:
    def inputs(changes: dict[str, Any] | None = None, names: Any = HF, **shapes: tuple[int, ...]) -> Any:
        source: Any = loader(**shapes) if shapes else surveyed()
        return Builder(source, config(**(changes or {})), names)._inputs(1, "", 12, 4)

    assert isinstance(inputs(), SeparateQkv)
    assert isinstance(inputs({"keys_as_values": frozenset({1})}), KeysAsValues)
    assert isinstance(inputs({"shared_kv": 1}), QueryAlone)
    fused = inputs(names=replace(HF, query_key_value="qkv"), qkv__weight=(20, WIDTH))
    assert isinstance(fused, FusedQkv)
    assert fused.widths == (12, 4, 4)
    names = replace(HF, query="q", key_value="kv")
    pair = inputs(names=names, q__weight=(12, WIDTH), kv__weight=(8, WIDTH))
    assert isinstance(pair, SeparateQkv)
    stored = np.arange(8 * WIDTH, dtype=np.float32).reshape(8, WIDTH) + 1
    for part, rows in ((pair.key, stored[:4]), (pair.value, stored[4:])):
        weight: Any = part.weight
        assert weight.values.tolist() == rows.tolist()


def no_layers(_builder: Builder) -> Generator[int, None, Any]:
    yield 0


def parts(source: Any, **changes: Any) -> Any:
    """A decoder without layers."""
    return drain(build(source, config(**changes), HF, no_layers))


def test_the_head_and_the_tokens_that_it_never_writes() -> None:
    shapes: dict[str, tuple[int, ...]] = {
        "model__embed_tokens__weight": (VOCAB, WIDTH), "model__norm__weight": (WIDTH,),
        "lm_head__weight": (VOCAB, WIDTH), "lm_head__bias": (VOCAB,),
    }  # fmt: skip
    tied = parts(loader(**shapes))
    assert tied.head.weight is tied.embed
    assert tied.head.bias is None
    apart = parts(loader(**shapes), tied=False, head_bias=True)
    assert apart.head.weight is not apart.embed
    assert apart.head.bias.tolist() == list(range(1, VOCAB + 1))
    for head_bias in (False, True):
        silent = parts(loader(**shapes), silent_tokens=(2, 5), head_bias=head_bias).head.bias
        least = np.finfo(np.float32).min
        usual = np.arange(VOCAB) + 1 if head_bias else np.zeros(VOCAB)
        assert silent.tolist() == [*usual[:2], least, least, least, *usual[5:]]
    assert parts(loader(**shapes), final_norm=False).norm is None
    more = parts(loader(**shapes | {"model__embed_tokens__weight": (VOCAB + 4, WIDTH)}), extra_embeddings=4)
    assert more.embed.values.shape == (VOCAB, WIDTH)


def test_decoders_of_the_usual_build() -> None:
    assert is_layered(config())
    assert not is_layered(config(cycles=Loops(2, normed=False)))
