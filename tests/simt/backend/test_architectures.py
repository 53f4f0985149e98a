"""Whole models on the CUDA backend, whose device is the fake one: every architecture that has kernels for
it (`placement.runnable`), in small batches and of many, in any cut.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from engine.backends.cuda.backend import CudaBackend
from tests.engine.models.architectures import Case, Floats, cached_logits, case_folders, ids
from tests.engine.models.cases.table import BY_NAME, CASES
from tests.engine.models.families import test_baichuan, test_gear, test_iquest_loop, test_maple, test_talkie
from tests.engine.models.oracle import load, logits
from tests.simt.fake import FakeDevice

Folder = Callable[[Case], Path]
IN_EVERY_RUN = (
    "Llama",
    "Gemma 3",
    "GPT-OSS",
    "Cohere, Command-R",
    "GPT-2",
    "LFM2",
    "Gemma 3n",
    "Gemma 4",
    "DeepSeek V2",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return case_folders(tmp_path_factory)


def near(found: Floats, expected: Floats, share: float) -> None:
    assert expected.std() > 0.5
    assert np.abs(found - expected).max() <= share * np.abs(expected).max()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(case.name, marks=[] if case.name in IN_EVERY_RUN else [pytest.mark.slow])
        for case in CASES
        if case.gpu
    ],
)
def test_model(folder: Folder, name: str) -> None:
    """fp32 weights and cache: what is left is the order of sums, and fp16 where prompts go through torch's
    products.
    """
    case = BY_NAME[name]
    model = load(folder(case), CudaBackend([FakeDevice()]))
    found = logits(model, ids(case.length), [1, 7, 8, 21, 22], context=case.length)
    model.close()
    near(found, cached_logits(name), 2 * case.tolerance)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "name"),
    [
        (test_maple, "m.gguf"),
        (test_talkie, "m.gguf"),
        (test_iquest_loop, "m"),
        (test_gear, "m"),
        (test_baichuan, "m"),
    ],
    ids=["Maple", "Talkie", "IQuest-Coder Loop", "Gear", "Baichuan M1"],
)
def test_family_that_transformers_lacks(family: ModuleType, name: str, tmp_path: Path) -> None:
    write = family.write_file if name.endswith(".gguf") else family.write_folder
    model = load(write(tmp_path / name), CudaBackend([FakeDevice()]))
    found = logits(model, family.TOKENS, [1, 7, 8, 21, 22], context=60)
    model.close()
    near(found, family.forward(), 2e-4)


@pytest.mark.parametrize("name", ["Llama", "GPT-OSS"])
def test_layers_on_two_devices(folder: Folder, name: str) -> None:
    """The same numbers, bit for bit, wherever layers lie."""
    case = BY_NAME[name]
    out = []
    for devices in ([FakeDevice()], [FakeDevice(), FakeDevice(index=1)]):
        model = load(folder(case), CudaBackend(devices, even=True))
        out.append(logits(model, ids(case.length), [1, 7, 8, 21, 22], context=case.length))
        assert all(device.done > 0 for device in devices)
        model.close()
    assert out[0].tobytes() == out[1].tobytes()
