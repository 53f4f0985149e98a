"""Passes over pictures' tokens on GPUs: random rows in place of embeddings, against transformers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.backends.base import Backend
from engine.backends.cuda.backend import CudaBackend
from tests.engine.models.oracle import load
from tests.engine.models.picture_passes import KINDS, Made, decode_ahead, made
from tests.simt.fake import FakeDevice
from tests.simt.whole import SHARES


def _replaced() -> Backend:
    """A GPU whose kernels do not run right, so that torch's operations take their place."""
    backend = CudaBackend([FakeDevice()])
    backend.replace("its kernels are wrong", "")
    return backend


BACKENDS: dict[str, Callable[[], Backend]] = {
    "one": lambda: CudaBackend([FakeDevice()]),
    "two": lambda: CudaBackend([FakeDevice(index=index) for index in range(2)], even=True),
    "torch": _replaced,
}


def error() -> float:
    """A fake device multiplies exactly in large batches, too."""
    return 3e-5 if FakeDevice.__module__ == "tests.simt.fake" else SHARES["bf16x2"][1]


@pytest.fixture(scope="module", params=KINDS)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    return made(request.param, tmp_path_factory.mktemp("pictures"))


@pytest.mark.slow_after(5)
@pytest.mark.parametrize("devices", BACKENDS)
def test_rows_of_pictures_take_the_place_of_embeddings(whole: Made, devices: str) -> None:
    model = load(whole.folder, BACKENDS[devices]())
    whole.check(model, error(), same_bits=devices != "torch")
    model.close()


@pytest.mark.slow_after(3)
def test_decoding_ahead_after_pictures(whole: Made) -> None:
    model = load(whole.folder, BACKENDS["one"]())
    assert decode_ahead(model, whole.kind)
    model.close()
