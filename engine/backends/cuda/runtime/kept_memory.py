"""GPU memory that torch caches in this process. Querying it creates no context and does not import torch."""

from __future__ import annotations

import sys


def kept_unused(index: int) -> int:
    """Bytes of a GPU that torch has cached but does not use; 0 if torch has not initialised CUDA.

    The driver and NVML count them as used, but a model of this process can use them.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return max(0, int(torch.cuda.memory_reserved(index)) - int(torch.cuda.memory_allocated(index)))
