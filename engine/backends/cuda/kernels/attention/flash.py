"""Whether torch's flash attention supports a model's heads."""

from __future__ import annotations

from engine.backends.base import AttentionShape
from engine.backends.cuda.runtime.device import Device

FLASH_CAPABILITY, FLASH_DIM = 80, 256
"""What torch's flash attention needs: compute capability 8.0, and at most this head size."""


def takes_flash(capability: int, shape: AttentionShape) -> bool:
    """Whether flash attention supports this shape at this compute capability (times ten), if torch has it."""
    special = shape.latent or shape.slopes
    return (
        not special
        and capability >= FLASH_CAPABILITY
        and shape.head_dim <= FLASH_DIM
        and shape.head_dim % 8 == 0
    )


def has_flash(device: Device, shape: AttentionShape) -> bool:
    """Whether torch's flash attention takes heads of this shape in fp16 here; not every build has it.

    Head sizes that are not a multiple of 8 do not count: torch would copy all keys and values to wider ones.
    """
    if not takes_flash(device.capability, shape):
        return False
    if device.torch_device.type != "cuda":
        return True
    import torch

    with device.torch_work():
        q, k = (
            torch.empty((1, heads, 2, shape.head_dim), dtype=torch.float16, device=device.torch_device)
            for heads in (shape.heads, shape.kv_heads)
        )
        params = torch.backends.cuda.SDPAParams(q, k, k, None, 0.0, True, shape.heads > shape.kv_heads)
        return bool(torch.backends.cuda.can_use_flash_attention(params))
