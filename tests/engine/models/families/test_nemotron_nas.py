"""Llama Nemotron's uneven layers, which transformers has no class for, against Llama's layers of transformers
put together: folder and GGUF file, in any cut, on both backends.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from engine.backends.base import Backend
from engine.backends.cpu.backend import CpuBackend
from engine.backends.reference.backend import ReferenceBackend
from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.load import read_config
from engine.weights import open_checkpoint
from tests.engine.models.architectures import ROPE, SMALL, ids
from tests.engine.models.gguf_form import GgufForm, write_gguf
from tests.engine.models.oracle import load, logits
from tests.tiny import write_tokenizer

TOKENS = ids(60)
PARTS: tuple[tuple[int, float], ...] = ((2, 4.0), (0, 8.0), (4, 8.0), (2, 0.0), (0, 0.0), (1, 12.0))
"""Of each layer: query heads for each key/value head (0: no attention), and ffn_mult (0: no such part)."""
BACKENDS: dict[str, Callable[[], Backend]] = {
    "reference": ReferenceBackend, "cpu": lambda: CpuBackend(threads=2),
}  # fmt: skip


class Nothing(torch.nn.Module):
    """Adds nothing to the residual stream."""

    def forward(self, hidden_states: torch.Tensor, **more: Any) -> Any:
        return (torch.zeros_like(hidden_states), None) if more else torch.zeros_like(hidden_states)


def inner(multiplier: float) -> int:
    """The makers' formula: two thirds of the multiple, in whole 256s."""
    return -(-int(2 * multiplier * 64 / 3) // 256) * 256


def oracle() -> Any:
    """Llama with the parts of each layer."""
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.models.llama.modeling_llama import LlamaAttention, LlamaMLP

    torch.manual_seed(4)
    usual = {**SMALL, "num_hidden_layers": len(PARTS), "attn_implementation": "eager"}
    model = LlamaForCausalLM(LlamaConfig(**usual))
    for number, (group, multiplier) in enumerate(PARTS):
        layer = model.model.layers[number]
        own = LlamaConfig(
            **usual | {"num_key_value_heads": 4 // max(1, group), "intermediate_size": inner(multiplier) or 1}
        )
        layer.self_attn = LlamaAttention(own, number) if group else Nothing()
        layer.mlp = LlamaMLP(own) if multiplier else Nothing()
    with torch.no_grad():
        for parameter in model.parameters():
            spread = 0.2 if parameter.ndim == 1 else 1.5 * parameter.shape[1] ** -0.5
            parameter.copy_((parameter.ndim == 1) + spread * torch.randn(parameter.shape))
    return model.eval()


def parameters(model: Any) -> dict[str, Any]:
    """All tensors but the norms of parts that are not there."""
    bare = {
        f"model.layers.{layer}.{name}.weight"
        for layer, halves in enumerate(PARTS)
        for half, name in zip(halves, ("input_layernorm", "post_attention_layernorm"), strict=True)
        if not half
    }
    found = {name: values.detach().numpy() for name, values in model.named_parameters() if name not in bare}
    return {name: np.ascontiguousarray(values) for name, values in found.items()}


def written(folder: Path, tensors: dict[str, Any], **more: Any) -> Path:
    folder.mkdir(exist_ok=True)
    blocks = [
        {
            "attention": {"n_heads_in_group": group or None, "no_op": not group},
            "ffn": {"ffn_mult": multiplier or None, "no_op": not multiplier},
        }
        for group, multiplier in PARTS
    ]
    config = {
        **{key: value for key, value in SMALL.items() if key not in ("num_key_value_heads",)},
        "architectures": ["DeciLMForCausalLM"], "num_hidden_layers": len(PARTS), "rms_norm_eps": 1e-6,
        "block_configs": blocks, "intermediate_size": None, ROPE: {"rope_type": "default", "rope_theta": 1e4},
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config | more), "utf-8")
    save_file(tensors, folder / "model.safetensors")
    write_tokenizer(folder)
    return folder


def lists(config: dict[str, Any]) -> dict[str, Any]:
    """A number for each layer, 0 where it lacks the part."""
    return {
        "attention.head_count": [4 if group else 0 for group, _ in PARTS],
        "attention.head_count_kv": [4 // group if group else 0 for group, _ in PARTS],
        "feed_forward_length": [inner(multiplier) for _, multiplier in PARTS],
        "attention.key_length": 16, "attention.value_length": 16,
    }  # fmt: skip


def interleaved(config: dict[str, Any], tensors: dict[str, Any]) -> dict[str, Any]:
    """The rows of each head's halves by turns."""
    return {
        name: values.reshape(-1, 2, 8, 64).swapaxes(1, 2).reshape(values.shape)
        if name.endswith(("q_proj.weight", "k_proj.weight"))
        else values
        for name, values in tensors.items()
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Any]:
    """A folder, a GGUF file, and the logits of both."""
    model, at = oracle(), tmp_path_factory.mktemp("nas")
    with torch.inference_mode():
        expected = model(torch.tensor([TOKENS]), use_cache=False).logits[0].numpy()
    tensors = parameters(model)
    folder = written(at / "m", tensors)
    config = json.loads((folder / "config.json").read_text("utf-8")) | {"num_key_value_heads": 4}
    file = write_gguf(at / "m.gguf", GgufForm("deci", keys=lists, change=interleaved), config, tensors)
    return folder, file, expected


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("form", ["folder", "gguf"])
def test_uneven_layers(made: tuple[Path, Path, Any], form: str, backend: str) -> None:
    folder, file, expected = made
    model = load(folder if form == "folder" else file, BACKENDS[backend]())
    for cuts in ((), (1, 7, 8, 21, *range(48, 60))):
        found = logits(model, TOKENS, cuts)
        assert expected.std() > 0.5
        assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()
    model.close()


def test_the_layers_that_lack_a_part(made: tuple[Path, Path, Any]) -> None:
    for path in made[:2]:
        config = read_config(open_checkpoint(path))
        assert (config.mlp_layers, config.bare_layers) == (frozenset({1, 4}), frozenset({3, 4}))
        assert [shape[0] for shape in config.kv_shapes] == [2, 1, 2, 4]


def test_decilm_7b_has_heads_by_layer(tmp_path: Path) -> None:
    own = {
        "block_configs": None, "num_key_value_heads_per_layer": [4, 4, 2, 1, 1, 1], "intermediate_size": 96,
    }  # fmt: skip
    config = read_config(open_checkpoint(written(tmp_path / "m", {"x": np.zeros(1, np.float32)}, **own)))
    assert [shape[0] for shape in config.kv_shapes] == [4, 4, 2, 1, 1, 1]
    assert config.ffn_of(3) == 96


def test_other_parts_are_refused(tmp_path: Path) -> None:
    block = {"attention": {"replace_with_linear": True}, "ffn": {"ffn_mult": 1.0}}
    tensors = {"x": np.zeros(1, np.float32)}
    with pytest.raises(UnsupportedModel, match="single matrix in place of some of its parts"):
        read_config(open_checkpoint(written(tmp_path / "a", tensors, block_configs=[block] * 6)))
    with pytest.raises(BadCheckpoint, match="block_configs is not a list of objects"):
        read_config(open_checkpoint(written(tmp_path / "b", tensors, block_configs=[3])))
    whole = {"attention": {"n_heads_in_group": 2}, "ffn": {"ffn_mult": 1.0}}
    with pytest.raises(BadCheckpoint, match="6 layers but states the heads of 2"):
        read_config(open_checkpoint(written(tmp_path / "c", tensors, block_configs=[whole] * 2)))
