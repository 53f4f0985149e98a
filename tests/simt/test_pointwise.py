from __future__ import annotations

import numpy as np
import pytest

from engine.backends.cuda.pointwise import add_kernel
from tests.simt.agree import At, both


@pytest.mark.parametrize(("width", "rows"), [(1, 1), (257, 3)])
def test_add(width: int, rows: int) -> None:
    rng = np.random.default_rng(width)
    stride = (width + 15) // 16 * 16
    x, o = (rng.standard_normal((rows, stride)).astype(np.float32) for _ in range(2))
    arguments = [At(0), 4 * stride, At(1), 4 * stride, At(2), 4 * stride, width, 0.5]
    (*_, found), (*_, expected) = both(add_kernel(), (-(-width // 256), rows, 1), arguments, [x, o, np.zeros_like(x)])
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert (found[:, width:] == 0).all()
