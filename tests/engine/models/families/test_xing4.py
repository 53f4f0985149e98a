"""Xing 4, which transformers has no class for: folders and GGUF files against DeepSeek V3's layers in
transformers, joined by hyper-connections written out in PyTorch.
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
from transformers import AutoConfig, AutoModelForCausalLM

from engine.backends.cpu.backend import CpuBackend
from engine.errors import UnsupportedModel
from engine.models.load import read_config
from engine.weights import open_checkpoint
from tests.engine.models.architectures import ROPE, ids
from tests.engine.models.cases.latent_attention import SPARSE, YARN, absorbed, absorbed_keys
from tests.engine.models.gguf_form import GgufForm, write_gguf
from tests.engine.models.oracle import load, logits
from tests.tiny import write_tokenizer

TOKENS, STREAMS, ROUNDS, EPS = ids(40), 4, 20, 1e-6
CUTS = [1, 7, 8, 21, 39]
SETTINGS = {**SPARSE, ROPE: YARN, "n_group": 1, "topk_group": 1, "norm_topk_prob": True}
CONFIG: dict[str, Any] = {
    **{key: value for key, value in SETTINGS.items() if key != ROPE},
    "architectures": ["Xing4_0ForCausalLM"], "model_type": "xing4_0", "rope_theta": YARN["rope_theta"],
    "rope_scaling": {"type": "yarn", **{key: YARN[key] for key in YARN if not key.startswith("rope_")}},
    "hc_mult": STREAMS, "hc_sinkhorn_iters": ROUNDS, "hc_eps": EPS, "mhc_h_res_clamp_min": -30,
    "mhc_h_res_clamp_max": 30, "norm_topk_prob": True, "scoring_func": "sigmoid", "rms_norm_eps": 1e-6,
    "topk_method": "noaux_tc", "tie_word_embeddings": False, "hidden_act": "silu",
}  # fmt: skip
Tensors = dict[str, Any]


def joints(layers: int) -> Tensors:
    """What joins the halves of each layer to the streams; some logits of what mixes them are beyond 30."""
    generator, found = torch.Generator().manual_seed(5), {}
    rows = (2 + STREAMS) * STREAMS
    for layer in range(layers):
        for half in ("attn_hc", "ffn_hc"):
            at = f"model.layers.{layer}.{half}.hc_"
            base = torch.randn(rows, generator=generator)
            base[-2:] = torch.tensor([45.0, 35.0])  # the same when limited
            found[at + "fn"] = torch.randn(rows, STREAMS * 64, generator=generator) * 0.15
            found[at + "base"] = base
            found[at + "scale"] = 0.5 + torch.rand(3, generator=generator)
    return found


def oracle() -> tuple[Any, Tensors]:
    """The model of transformers whose layers are joined, and the joints."""
    torch.manual_seed(3)
    config = AutoConfig.for_model("deepseek_v3", **SETTINGS)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    with torch.no_grad():
        for name, each in (*model.named_parameters(), *model.named_buffers()):
            if "inv_freq" in name:
                continue
            random = torch.randn(each.shape)
            near_one, small = "norm" in name, "correction" in name
            each.copy_(
                1 + 0.2 * random if near_one else random * (0.3 if small else 1.5 / each.shape[-1] ** 0.5)
            )
    return model, joints(config.num_hidden_layers)


def weighed(own: Callable[[str], torch.Tensor], streams: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The sum (T, E) that a half reads, the weights (T, N) of its result, the streams (T, N, E) mixed."""
    flat = torch.nn.functional.rms_norm(streams.flatten(1), (STREAMS * 64,), None, 1e-6)
    scale, base = own("scale"), own("base")
    pre, post, mixed = (flat @ own("fn").T).split([STREAMS, STREAMS, STREAMS**2], 1)
    first, second, rest = base.split([STREAMS, STREAMS, STREAMS**2])
    read = (pre * scale[0] + first).sigmoid()
    matrix = (mixed * scale[1 + 1] + rest).clamp(-30, 30).view(-1, STREAMS, STREAMS)
    matrix = (matrix - matrix.amax(-1, keepdim=True)).exp()
    for _ in range(ROUNDS):
        matrix = matrix / (matrix.sum(-1, keepdim=True) + EPS)
        matrix = matrix / (matrix.sum(-2, keepdim=True) + EPS)
    written = 2 * (post * scale[1] + second).sigmoid()
    return (read[..., None] * streams).sum(1), written, matrix @ streams


def expected(model: Any, joined: Tensors) -> Any:
    inner, count = model.model, len(TOKENS)
    with torch.inference_mode():
        x = inner.embed_tokens(torch.tensor(TOKENS))
        streams = x[:, None].repeat(1, STREAMS, 1)
        places = torch.arange(count)[None]
        mask = torch.full((count, count), torch.finfo(torch.float32).min).triu(1)[None, None]
        rope = inner.rotary_emb(x[None], places)
        for number, layer in enumerate(inner.layers):
            at = f"model.layers.{number}."
            for half in ("attn_hc", "ffn_hc"):
                read, post, mixed = weighed(lambda name, at=at + half: joined[f"{at}.hc_{name}"], streams)
                if half == "attn_hc":
                    normed = layer.input_layernorm(read)[None]
                    made = layer.self_attn(normed, position_embeddings=rope, attention_mask=mask)[0][0]
                else:
                    made = layer.mlp(layer.post_attention_layernorm(read)[None])[0]
                streams = post[..., None] * made[:, None] + mixed
        return model.lm_head(inner.norm(streams.mean(1))).numpy()


def tensors_of(model: Any) -> Tensors:
    """In the folder each expert has matrices of its own."""
    found: Tensors = {}
    for name, values in model.state_dict().items():
        if name.endswith("experts.gate_up_proj"):
            for expert, both in enumerate(values):
                for part, half in zip(("gate", "up"), both.chunk(2), strict=True):
                    found[name.replace("gate_up_proj", f"{expert}.{part}_proj.weight")] = half
        elif name.endswith("experts.down_proj"):
            for expert, down in enumerate(values):
                found[name.replace("down_proj", f"{expert}.down_proj.weight")] = down
        else:
            found[name] = values
    return {name: values.contiguous().numpy() for name, values in found.items()}


def write_folder(folder: Path, model: Any, joined: Tensors, **changed: Any) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG | changed), "utf-8")
    own = {name: values.numpy() for name, values in joined.items()}
    save_file(tensors_of(model) | own, folder / "model.safetensors")
    write_tokenizer(folder)
    return folder


def write_file(path: Path, model: Any, joined: Tensors) -> Path:
    """As the converter of llama.cpp's branch for it writes it."""

    def keys(config: dict[str, Any]) -> dict[str, Any]:
        own = {"count": STREAMS, "sinkhorn_iterations": ROUNDS, "epsilon": EPS}
        return absorbed_keys(config) | {f"hyper_connection.{name}": value for name, value in own.items()}

    form = GgufForm("xing4_0", keys=keys, change=absorbed, alike=("deepseek2",))
    more: Tensors = {}
    for name, values in joined.items():
        layer, half, end = name.removeprefix("model.layers.").split(".")
        half = half.removesuffix("_hc")
        more[f"blk.{layer}.hc_{half}_{end.removeprefix('hc_')}.weight"] = values.numpy()
    return write_gguf(
        path, form, SETTINGS | {"model_type": "deepseek_v3", "rms_norm_eps": 1e-6}, tensors_of(model), more
    )


def assert_near(found: Any, exact: Any, share: float) -> None:
    assert exact.std() > 0.3
    assert np.abs(found - exact).max() <= share * np.abs(exact).max()


def test_folder_and_gguf_file_agree_with_the_formulas(tmp_path: Path) -> None:
    model, joined = oracle()
    exact = expected(model, joined)
    folder = write_folder(tmp_path / "m", model, joined)
    assert_near(logits(load(folder), TOKENS, CUTS), exact, 1e-4)
    assert_near(logits(load(write_file(tmp_path / "m.gguf", model, joined)), TOKENS, CUTS), exact, 1e-4)
    for changed in ({"hc_sinkhorn_iters": 1}, {"mhc_h_res_clamp_max": 90, "mhc_h_res_clamp_min": -90}):
        other = write_folder(tmp_path / next(iter(changed)), model, joined, **changed)
        assert np.abs(logits(load(other), TOKENS) - exact).max() > 1e-3 * np.abs(exact).max()


@pytest.mark.slow
def test_cpu_agrees_with_the_formulas(tmp_path: Path) -> None:
    model, joined = oracle()
    loaded = load(write_folder(tmp_path / "m", model, joined), CpuBackend(threads=2))
    found = logits(loaded, TOKENS, CUTS)
    loaded.close()
    assert_near(found, expected(model, joined), 3e-4)


def test_other_limits_are_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", *oracle(), mhc_h_res_clamp_min=-10)
    with pytest.raises(UnsupportedModel, match="sets mhc_h_res_clamp_min to -10"):
        read_config(open_checkpoint(folder))
