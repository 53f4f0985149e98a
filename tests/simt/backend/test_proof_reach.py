"""No kernel that a model needs stays without a case that runs it, and the proof of all stays small:
counted, for models of real sizes.
"""

from __future__ import annotations

from functools import partial
from typing import cast

import pytest

from engine.backends.cuda.codegen.registry import all_kernels
from engine.backends.cuda.lowering.estimate import dry_pass, weight_spec
from engine.backends.cuda.runtime.device import Device
from engine.models.proof.cases import cases
from tests.simt.fake import FakeDevice
from tests.simt.proof_reach import Large, needed, reach
from tests.simt.real_models import REAL, all_of, mixed

Q4_K_M = mixed("Q4_K", embed="Q6_K", lm_head="Q6_K", v_proj="Q6_K", down_proj="Q6_K")
GPT_OSS = mixed("BF16", experts="MXFP4")

LAUNCHES, MULTIPLICATIONS = 1500, 10**10
"""A launch takes a GPU some 10 microseconds, and the slowest processor beside one does 5 x 10^9
multiplications a second or more: of the five seconds, half are left for making random numbers and sending
them.
"""
IN_EVERY_RUN = (0, 5, 8)

LARGE: tuple[Large, ...] = (
    Large("SmolLM2 135M", all_of("Q4_0")),
    Large("SmolLM2 135M", all_of("Q8_0"), capability=75, sm_count=40),
    Large("SmolLM2 135M", all_of("BF16")),
    Large("Llama 3.1 8B", Q4_K_M),
    Large("Llama 3.1 8B", Q4_K_M, sm_count=20),
    Large("Llama 3.1 8B", Q4_K_M, adapted=("q_proj", "v_proj")),
    Large("Llama 3.1 8B", Q4_K_M, "q8", adapted=("proj",)),
    Large("Llama 3.1 8B", Q4_K_M, "q8", capability=75),
    Large("Llama 3.1 8B", all_of("Q4_0"), "q4"),
    Large("Llama 3.1 8B", all_of("Q2_K"), "q6", sm_count=24),
    Large("Llama 3.1 8B", all_of("BF16"), "fp32"),
    Large("Llama 3.1 8B", all_of("F16"), "fp8"),
    Large("Llama 3.1 8B", all_of("F32")),
    Large("Llama 3.1 8B", mixed("FP8_128")),
    Large("Llama 3.1 8B", mixed("FP8_32")),
    Large("Llama 3.1 8B", all_of("FP8_128"), sm_count=20),
    Large("Llama 3.1 8B", all_of("FP8_32"), sm_count=20),
    Large("Llama 3.1 8B", all_of("NVFP4_64")),
    Large("Llama 3.1 8B", all_of("NVFP4_64"), sm_count=20),
    Large("Qwen 3 30B A3B", mixed("NVFP4_64")),
    Large("Qwen 3 30B A3B", mixed("IQ2_S")),
    Large("Llama 3.1 8B", all_of("GROUPED4_128")),
    Large("Llama 3.1 8B", all_of("GROUPED8_32_F32")),
    Large("Llama 3.1 8B", all_of("PERMUTED+GROUPED5_32+GROUPED4_32")),
    Large("Llama 3.3 70B", all_of("Q4_0"), "q4", capability=75),
    Large("Llama 3.3 70B", all_of("F32"), config={"hidden_size": 16384, "num_attention_heads": 128}),
    Large("Llama 3.3 70B", all_of("Q4_K"), config={"hidden_size": 16384, "num_attention_heads": 128}),
    Large("Mistral 7B", all_of("Q4_K"), "q8"),
    Large("Mixtral 8x7B", mixed("IQ3_S", w2="Q4_K", lm_head="Q6_K")),
    Large("Qwen 2.5 0.5B", mixed("Q5_0", embed="Q8_0", down_proj="Q4_K")),
    Large("Qwen 3 8B", all_of("BF16"), "fp8", adapted=("o_proj",), config={"head_dim": 80}),
    Large("Qwen 3 8B", all_of("Q6_K"), config={"head_dim": 64}),
    Large("Qwen 3 30B A3B", all_of("Q4_K")),
    Large("Qwen 3 30B A3B", all_of("PERMUTED+GROUPED4_128"), config={"num_experts": 64}),
    Large("Qwen 3 30B A3B", all_of("FP8_128"), config={"num_experts": 256}),
    Large("Qwen 3 30B A3B", all_of("FP8_32"), config={"num_experts": 512}),
    Large("Qwen 3 30B A3B", all_of("F16"), config={"norm_topk_prob": False}),
    Large("Qwen 3 30B A3B", all_of("F32"), config={"num_experts": 64, "norm_topk_prob": False}),
    Large("Gemma 2B", all_of("Q4_0")),
    Large("Gemma 2 9B", all_of("BF16"), config={"hidden_size": 8192}),
    Large("Gemma 2 9B", all_of("Q8_0"), config={"hidden_size": 8192}),
    Large("Gemma 2 9B", all_of("F32"), config={"hidden_size": 8192}),
    *(Large("Gemma 3 4B", all_of(kind), capability=86) for kind in ("Q4_0", "BF16", "F32")),
    Large("Gemma 3 4B", all_of("BF16"), capability=75),
    Large("GPT-OSS 20B", GPT_OSS),
    Large("GPT-OSS 20B", GPT_OSS, capability=75),
    Large("GPT-OSS 20B", all_of("BF16")),
    Large("Phi 3.5 mini", all_of("Q4_K")),
    *(Large("SmolLM3 3B", all_of(kind)) for kind in ("Q4_0", "Q2_K")),
    Large("OLMo 2 7B", all_of("Q4_K"), adapted=("proj",)),
    *(Large("Granite 3.3 8B", all_of(kind)) for kind in ("Q4_K", "BF16", "F32")),
    Large("GLM-4 9B", all_of("Q4_K")),
    *(Large("Command-R 35B", all_of(kind)) for kind in ("Q4_K", "F32")),
    Large("Command-R+ 104B", all_of("Q4_K")),
    Large("Command-R7B", all_of("F16"), config={"num_attention_heads": 64}),
    Large("Command-R7B", all_of("BF16"), config={"num_attention_heads": 16}),
    *(
        Large("StarCoder2 3B", all_of(kind), config={"hidden_act": activation})
        for kind in ("Q4_0", "BF16", "F32") for activation in ("gelu_pytorch_tanh", "gelu", "relu", "relu2")
    ),
    *(Large("GPT-2", all_of(kind)) for kind in ("F16", "BF16", "F32")),
    Large("InternLM 2 7B", all_of("Q4_K")),
    Large("StableLM 2 1.6B", all_of("Q8_0")),
    Large("StableLM 2 12B", all_of("Q4_K"), config={"hidden_size": 5120}),
    Large("MiniCPM 2B", all_of("Q4_0")),
    Large("Gemma 3n E2B", all_of("Q4_K")),
    Large("Gemma 4 E2B", Q4_K_M),
    Large("Gemma 4 26B A4B", all_of("Q4_K"), "q6"),
    Large("GLM-4.7-Flash", all_of("BF16")),
    Large("Falcon Mamba 7B", all_of("Q4_K")),
    Large("Kimi Linear 48B", all_of("Q4_K")),
    Large("DeepSeek V3.2", all_of("FP8_128")),
    Large("MiniMax-M3", all_of("Q4_K")),
    Large("MiniCPM 3 4B", all_of("Q4_0"), "q4"),
    Large("MPT 7B", all_of("F16"), "fp32"),
    Large("Falcon RW 1B", all_of("F16")),
    Large("Phi-3.5-MoE", all_of("Q4_K")),
    Large("Qwen 3.5 2B", all_of("Q4_K")),
    Large("LFM2 1.2B", all_of("Q4_0")),
    Large("Granite 4 H Micro", all_of("Q4_K"), "q8"),
    Large("Inkling", all_of("Q4_K")),
    Large("Inkling 2", mixed("BF16", w13="NVFP4_64", w2_="NVFP4_64")),
    Large("Inkling 2 Mini", all_of("Q4_K")),
    Large("ZAYA1 8B", mixed("BF16", conv_qk="F32")),
    Large("DeepSeek V4", mixed("Q4_K", attn_hc="F32", ffn_hc="F32", hc_head="F32", tid2eid="F32")),
    Large("GLM-5 next", mixed("Q4_K", hc_="F32")),
    Large("RWKV-7 1.5B", all_of("Q4_K")),
    Large("RWKV-4 7B", all_of("Q4_K")),
)  # fmt: skip
"""Every weight layout, and every kernel that is compiled for all
(`engine.backends.cuda.codegen.registry`).
"""


def words(large: Large) -> str:
    """For test ids."""
    return f"{large.name} {LARGE.index(large)}"


@pytest.mark.parametrize(
    "large",
    [
        pytest.param(large, marks=[] if i in IN_EVERY_RUN else [pytest.mark.slow], id=words(large))
        for i, large in enumerate(LARGE)
    ],
)
def test_every_kernel_that_a_model_needs_has_a_case_that_runs_it(
    large: Large, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = reach(large, monkeypatch)
    assert found.left == set()
    assert found.launches <= LAUNCHES
    assert found.multiplications <= MULTIPLICATIONS
    assert len(found.besides) <= 12  # each has to be loaded, or compiled


@pytest.mark.slow
def test_every_kernel_that_is_compiled_for_all_is_one_that_cases_run() -> None:
    """The test above holds for what some model of the table needs: it has models for all kernels, but for
    those that `selftest` runs.
    """
    missing = {kernel.name for kernel in all_kernels()}
    for large in LARGE:
        missing -= {kernel.name for kernel in needed(large)}
    for case in reversed(list(cases())):
        if not missing:
            break
        weights = [weight_spec(tensor, 90) for tensor in case.tensors()]
        forward = partial(lambda case, weights, ops: case.forward(ops, weights), case, weights)
        lowered = dry_pass(forward, case.cache, cast(Device, FakeDevice()))
        missing -= {kernel.name for kernel in lowered.kernels(0)}
    assert missing == set()
    assert {large.name for large in LARGE} == set(REAL)
