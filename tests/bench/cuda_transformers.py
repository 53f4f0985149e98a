"""`transformers` for comparison: a static cache, torch.compile, bf16, weights of the same shapes."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from tests.bench.cuda_kit import Plan, Shape
from tests.tiny import tiny_config


def transformers_seconds(shape: Shape, plan: Plan, device: str = "") -> dict[str, float]:
    """Seconds of "decode at D" (one token) and "prompt of N", as in `bench_cuda`; `device` as torch names it.
    What does not fit into the card's memory is left out.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    config = LlamaConfig(
        **{key: value for key, value in tiny_config(shape.sizes).items() if key != "architectures"}
    )
    found: dict[str, float] = {}
    try:
        with torch.device("meta"):
            model = LlamaForCausalLM(config)
        model = model.to(torch.bfloat16).to_empty(device=device).eval()
        with torch.inference_mode(), torch.device(device):
            for parameter in model.parameters():
                parameter.normal_(0, 0.02)
            model.model.rotary_emb = type(model.model.rotary_emb)(config)  # its tables were empty, too
        step = (
            torch.compile(model, mode="reduce-overhead", fullgraph=True)
            if device.startswith("cuda")
            else model
        )
        for depth in plan.depths:
            found[f"decode at {depth}"] = _decode(model, step, config, depth, plan, device, StaticCache)
        for tokens in plan.prompts:
            found[f"prompt of {tokens}"] = _prompt(model, tokens, plan, device)
    except torch.OutOfMemoryError:
        pass
    finally:
        model = step = None
        if device.startswith("cuda"):
            torch.cuda.empty_cache()
    return found


def _decode(model, step, config, depth: int, plan: Plan, device: str, static_cache) -> float:
    import torch

    length = depth + plan.tokens + 2
    with torch.inference_mode():
        cache = static_cache(config=config, max_cache_len=length)
        ids = torch.zeros(1, depth + 1, dtype=torch.long, device=device)
        for start in range(0, depth + 1, 4096):
            part = ids[:, start : start + 4096]
            places = torch.arange(start, start + part.shape[1], device=device)
            model(
                part,
                cache=cache,
                cache_position=places,
                position_ids=places[None],
                use_cache=True,
                logits_to_keep=1,
            )

        def tokens() -> None:
            # transformers 5 counts what it holds, and older ones go by the position alone
            for layer in cache.layers:
                if isinstance(getattr(layer, "cumulative_length", None), torch.Tensor):
                    layer.cumulative_length.fill_(depth + 1)
            place = torch.tensor([depth + 1], device=device)
            token = torch.zeros(1, 1, dtype=torch.long, device=device)
            for _ in range(plan.tokens):
                logits = step(
                    token, cache=cache, cache_position=place, position_ids=place[None], use_cache=True
                ).logits
                token = logits[:, -1:].argmax(-1)
                place = place + 1

        return _median(tokens, plan.repeat, device) / plan.tokens


def _prompt(model, tokens: int, plan: Plan, device: str) -> float:
    import torch

    ids = torch.zeros(1, tokens, dtype=torch.long, device=device)

    def once() -> None:
        with torch.inference_mode():
            model(ids, use_cache=True, logits_to_keep=1)

    return _median(once, plan.repeat, device)


def _median(work: Callable[[], None], repeat: int, device: str) -> float:
    import torch

    found = []
    for turn in range(repeat + 2):  # compiling is not measured
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        begun = time.perf_counter()
        work()
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        if turn > 1:
            found.append(time.perf_counter() - begun)
    return median(found)
