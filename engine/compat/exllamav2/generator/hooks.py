"""The types of post-sampling hooks, for annotations: `Settings.post_sampling_hooks` must be empty."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.lazy_dataclass import dataclass


@dataclass
class ExLlamaV2PostSamplingResult:
    """What ExLlamaV2 passes to a hook."""

    sampled_token: Any = None
    sampled_prob: Any = None
    candidate_tokens: Any = None
    candidate_probs: Any = None
    logits: Any = None
    feed_filters: bool = True


ExLlamaV2PostSamplingHook = Callable[[ExLlamaV2PostSamplingResult], None]
