from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.simt.interpreter import Memory
from tests.simt.models.norms import normed
from tests.simt.models.packed_activations import write_packed


def sum_norm(memory: Memory, blocks: Any, constants: Any, *arguments: Any) -> None:
    z, zs, post, x, xs, total, ts, weight, bias, y, ys, packed, rs, width, inverse, scale, post_eps, eps = (
        arguments
    )
    for row in range(blocks[0]):
        added = memory.view(z + row * zs, np.float32, width)
        if constants["POST"]:
            added = normed(added, False, inverse, post_eps) * memory.view(post, np.float32, width)
        whole = memory.view(x + row * xs, np.float32, width) + np.float32(scale) * added
        memory.view(total + row * ts, np.float32, width)[:] = whole
        out = normed(whole, constants["CENTRED"], inverse, eps) * memory.view(weight, np.float32, width)
        if bias:
            out = out + memory.view(bias, np.float32, width)
        if y:
            memory.view(y + row * ys, np.float32, width)[:] = out
        write_packed(memory, packed + row * rs, constants["FORM"], out)


MODELS: dict[str, Callable[..., None]] = {"norm.sum_norm": sum_norm}
