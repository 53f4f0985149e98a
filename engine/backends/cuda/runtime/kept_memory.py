"""What torch keeps of a GPU's memory in this process. Asking makes no context and imports no torch."""

from __future__ import annotations

import sys


def kept_unused(index: int) -> int:
    """Bytes of a GPU that torch keeps for later use and nothing uses now; 0 where it has not begun to use
    GPUs.

    To the driver and to NVML they are taken; a model of this process can have them.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return max(0, int(torch.cuda.memory_reserved(index)) - int(torch.cuda.memory_allocated(index)))
