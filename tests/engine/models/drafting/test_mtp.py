"""Heads for multi-token prediction against a float32 reference, in folders and GGUF files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from engine.backends.base import Backend
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cuda.backend import CudaBackend
from engine.backends.reference.backend import ReferenceBackend
from engine.chat import finished, open_chat
from engine.errors import BadSetting
from engine.models.drafting.mtp import read_head
from engine.models.memory.fit import head_of
from engine.models.paged import PagedCache
from engine.settings import CacheSettings, LoadSettings
from engine.vision.describe import describe
from engine.weights import open_checkpoint
from tests.engine.models.architectures import ids
from tests.engine.models.drafting.mtp_files import (
    KINDS,
    expected_head,
    outer_tensors,
    write_file,
    write_folder,
)
from tests.engine.models.oracle import finish, load
from tests.simt.fake import FakeDevice

TOKENS = ids(40)
BACKENDS: dict[str, Callable[[], Backend]] = {
    "reference": ReferenceBackend, "cpu": lambda: CpuBackend(threads=2),
    "cuda": lambda: CudaBackend([FakeDevice()]),
}  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp("head") / "model"
            write_folder(KINDS[name], made[name], outer_tensors(KINDS[name]))
        return made[name]

    return get


@pytest.mark.slow_after(4)
@pytest.mark.parametrize("backend", BACKENDS)  # the last of them is a fake GPU
@pytest.mark.parametrize("form", ["folder", "gguf"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_head(kind: str, form: str, backend: str, folders: Callable[[str], Path], tmp_path: Path) -> None:
    path = folders(kind)
    if form == "gguf":
        path = write_file(KINDS[kind], path, tmp_path / "model.gguf")
    info = describe(path)
    assert info.mtp
    head = head_of(info)
    assert head is not None
    # a layer of keys and values, and fewer weights than the model has
    assert (head.resident_bytes, len(head.kv_shapes)) == (info.mtp_bytes, 1)
    assert 0 < info.mtp_bytes < info.resident_bytes
    with ExitStack() as closing:
        main = load(path, BACKENDS[backend]())
        closing.callback(main.close)
        settings = CacheSettings(context_length=256, dtype="fp32")
        cache = PagedCache(main, settings)
        closing.callback(cache.close)
        runs = []
        for keep in (False, True):  # what leaves a pass does not change it
            cache.keep_hidden(keep)
            with cache.table.open((), key=f"{keep}") as lease:
                runs.append(cache.run(lease, TOKENS, len(TOKENS)).copy())
        np.testing.assert_array_equal(*runs)
        assert main.kept is not None
        states = main.kept[: len(TOKENS)]
        head = finish(read_head(open_checkpoint(path), main))
        own = PagedCache(head, settings)
        closing.callback(own.close)
        found, kept = [], []
        with own.table.open(()) as lease:
            for first, last in ((0, 11), (11, 12), (12, len(TOKENS) - 1)):
                head.given[: last - first] = states[first:last]
                found.append(own.run(lease, TOKENS[first + 1 : last + 1], last - first).copy())
                assert head.kept is not None
                kept.append(head.kept[: last - first].copy())
    expected, hidden = expected_head(KINDS[kind], outer_tensors(KINDS[kind]), TOKENS)
    assert np.abs(np.concatenate(found) - expected).max() <= 1e-4 * np.abs(expected).max()
    assert np.abs(np.concatenate(kept) - hidden).max() <= 1e-4 * np.abs(hidden).max()


@pytest.mark.parametrize(
    "quantise", ["q8", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("none", "q4"))]
)
def test_what_leaves_a_pass_does_not_change_it(quantise: str, folders: Callable[[str], Path]) -> None:
    """Also where the norm's rows would be packed for the head's product at once."""
    settings = LoadSettings(backend="cpu", threads=2, quantise=quantise, quantise_head="same")
    chat = finished(open_chat(folders("GLM-4.5 to 4.7"), settings, CacheSettings(context_length=256)))
    try:
        cache, found = chat.generator.cache, {}
        for keep in (False, True):
            cache.keep_hidden(keep)
            for rows in (1, 3, 8, 16, 17, 30):
                with cache.table.open((), key=f"{keep}{rows}") as lease:
                    found[keep, rows] = cache.run(lease, TOKENS[:rows], rows).copy()
        for rows in (1, 3, 8, 16, 17, 30):
            np.testing.assert_array_equal(found[True, rows], found[False, rows])
    finally:
        chat.close()


@pytest.mark.parametrize("damage", ["missing", "shape"])
def test_a_file_with_another_kind_of_head_is_a_model_without_one(
    damage: str, folders: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(folders("Qwen 3.5"), folder)
    tensors = load_file(folder / "model.safetensors")
    if damage == "missing":
        del tensors["mtp.layers.0.self_attn.q_proj.weight"]
    else:
        tensors["mtp.fc.weight"] = tensors["mtp.fc.weight"][:, :64].copy()
    save_file(tensors, folder / "model.safetensors")
    assert not describe(folder).mtp
    assert head_of(describe(folder)) is None
    main = load(folder)
    with pytest.raises(BadSetting, match="no head for multi-token prediction"):
        finish(read_head(open_checkpoint(folder), main))
    main.close()


@pytest.mark.parametrize("kind", ["DeepSeek V3", "GLM-4.5 to 4.7"])  # whose names transformers reads
def test_the_reference_is_what_transformers_makes_of_a_head(
    kind: str, folders: Callable[[str], Path]
) -> None:
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.cache_utils import MtpCache
    from transformers.modeling_layers import MtpModel

    main = AutoModelForCausalLM.from_pretrained(folders(kind), dtype=torch.float32).eval()
    # the names of the published models, whose layers have these numbers, stand in its class
    main._keys_to_ignore_on_load_unexpected = [rf"model\.layers\.{KINDS[kind].layers}\..*"]
    head = MtpModel.from_pretrained(main).eval()
    tokens = torch.tensor([TOKENS])
    with torch.inference_mode():
        states = main(tokens, output_hidden_states=True, use_cache=False).hidden_states[-1][:, :-1]
        found = head.forward_layer(
            0, states, torch.arange(1, len(TOKENS))[None], MtpCache(config=main.config.get_mtp_config()),
            input_ids=tokens[:, 1:],
        )  # fmt: skip
        logits = main.lm_head(found)[0].numpy()
    expected, hidden = expected_head(KINDS[kind], outer_tensors(KINDS[kind]), TOKENS)
    assert np.abs(logits - expected).max() <= 1e-5 * np.abs(expected).max()
    assert np.abs(found[0].numpy() - hidden).max() <= 1e-5 * np.abs(hidden).max()
