"""Whole models on the CUDA backend, whose devices are fake ones, and how far their logits may be from the
exact ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.backends.cuda.backend import CudaBackend
from engine.models import Model, read_model
from engine.models.load import Prepare, survey
from engine.weights import open_checkpoint
from tests.engine.models.oracle import finish, load, logits
from tests.simt.fake import FakeDevice

Floats = npt.NDArray[np.float32]
CUTS = (1, 6, 14)
"""Steps of 1, 5, 8 and, last, of more than 8 rows: the ones that short steps and long ones go by."""
LENGTH = 26

SHARES = {"fp32": (1e-5, 1e-5), "bf16x2": (3e-5, 1.2e-2), "fp16": (1.5e-3, 2.5e-3), "mixed": (1.5e-3, 1.2e-2)}
"""How far logits may be off, as the root mean square of the error by that of the logits, in short steps and
in long ones, by how products take their input (`packed_activations`). A number of "halves" is off by up to
2^-12 of the largest near it, each product's output by about as much, and a model of one or two layers by a
few times that; long steps round weights to fp16, too. "pairs" are off by 2^-17, but long steps multiply in
bf16, whose numbers are off by up to 2^-9. "floats" are exact but for the order of sums. "mixed" is a model
with matrices of both.
"""


def on_gpu(
    path: Path, device: FakeDevice | Sequence[FakeDevice] = (), prepare: Prepare | None = None
) -> Model:
    """The model on one device, or with its layers shared by several."""
    devices = [device] if isinstance(device, FakeDevice) else list(device) or [FakeDevice()]
    return finish(
        read_model(open_checkpoint(path), CudaBackend(devices, even=len(devices) > 1), prepare=prepare)
    )


def share(found: Floats, exact: Floats) -> float:
    """The root mean square of the error, by that of the logits."""
    return float(np.sqrt(((found - exact) ** 2).mean() / (exact**2).mean()))


def assert_near(found: Floats, exact: Floats, form: str) -> None:
    """Both (`LENGTH`, V), `found` in steps that begin at `CUTS`."""
    assert exact.std() > 0.5
    short, long = SHARES[form]
    assert share(found[: CUTS[-1]], exact[: CUTS[-1]]) < short
    assert share(found[CUTS[-1] :], exact[CUTS[-1] :]) < long


def check(path: Path, ids: Sequence[int], form: str, exact: Any = None, **how: Any) -> Floats:
    """Logits on the device are near `exact` (without it: the reference's); its memory is what was
    foretold, and comes back.
    """
    exact = logits(load(path), ids[:LENGTH]) if exact is None else exact
    device = how.pop("device", None) or FakeDevice()
    foretold = survey(open_checkpoint(path), CudaBackend([device]), how.get("prepare")).bytes
    model = on_gpu(path, device, **how)
    # norms and biases come with the recording
    assert 0.9 * foretold < device.taken <= model.resident_bytes == foretold
    found = logits(model, ids[:LENGTH], CUTS)
    model.close()
    del model
    assert device.taken == 0
    assert_near(found, exact, form)
    return found
