"""Loading holds little besides the weights, releases everything, and does not disturb a running chat before
the headers are checked.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from engine.backends.cpu import program as cpu_program
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.codegen.simd import LANES
from engine.backends.cpu.weight import CpuWeight
from engine.backends.graph.buffers import Buffer
from engine.backends.trim import give_memory_back
from engine.chat import LocalChat, finished, open_chat
from engine.core import PAGE_TOKENS, ChatRequest, Done, Message, ModelInfo
from engine.errors import (
    BadCheckpoint,
    BadSetting,
    BadTemplate,
    Cancelled,
    EngineError,
    ModelNotFound,
    NotEnoughMemory,
    UnsupportedModel,
)
from engine.models.load import read_config, survey
from engine.models.memory.fit import TOKEN_BYTES, work_space
from engine.models.paged import PagedCache
from engine.settings import CacheSettings, LoadSettings, SamplerSettings, StopSettings
from engine.vision.describe import describe
from engine.weights.checkpoint import open_checkpoint
from engine.weights.file import ModelFile
from engine.weights.packed.fp8 import wrap_fp8
from engine.weights.tensor import FileTensor, find_format
from engine.weights.transform.transposed import Transposed
from tests.engine.models.architectures import write_checkpoint
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.oracle import load
from tests.synthetic import llama_entries, write_large_gguf, write_sharded
from tests.tiny import TINY, Tiny, tiny_config, write_folder, write_gguf

REFERENCE = LoadSettings(backend="reference")
MIB = 1 << 20
LARGE = Tiny(layers=6, width=1024, heads=8, kv_heads=2, head_dim=128, ffn_width=4096, vocab_size=307)
"""100 MB as Q8_0."""


@pytest.fixture
def dry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are not compiled; passes are recorded but never run."""
    monkeypatch.setattr(CpuBackend, "prepare", lambda *_: iter(()))
    monkeypatch.setattr(cpu_program, "choose_read_ahead", lambda *_: None)
    pool = SimpleNamespace(close=lambda: None, end=lambda: None)
    monkeypatch.setattr(
        cpu_program, "KERNELS", SimpleNamespace(compile=lambda _: iter(()), address=lambda _: 0, pool={})
    )

    def assemble(_functions: object, _threads: int, scratch: int) -> SimpleNamespace:
        pool.scratch = scratch
        return pool

    monkeypatch.setattr(cpu_program, "ThreadPool", assemble)


def resident() -> int:
    """The resident bytes of this process."""
    give_memory_back()
    return int(psutil.Process(os.getpid()).memory_info().rss)


CASES = [
    "Llama",
    "Mixtral",
    "GPT-OSS",
    "Gemma 3",
    "Phi-3, Phi-4",
    "GPT-2",
    "OLMo 2",
    "Cohere, Command-R",
    "StarCoder2",
]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("dry")
def test_the_work_space_is_that_of_the_recorded_pass(tmp_path: Path, name: str) -> None:
    """Row by row and constant by constant, from headers alone."""
    path = write_checkpoint(BY_NAME[name], tmp_path / "m")
    said = describe(path).work
    model = load(path, CpuBackend())
    cache = PagedCache(model, CacheSettings())
    program: Any = cache.program
    assert program.max_rows == min(said.rows, cache.context_length)
    everywhere = {
        thing.place
        for each in program._operations
        for thing in each.writes
        if isinstance(thing, Buffer) and not thing.on_logit_rows
    }
    rows = -(-program.max_rows // LANES) * LANES  # what an arena has room for
    assert rows * said.row == sum(program._arena[place].nbytes for place in everywhere)
    constants = {id(each): each.nbytes for each in program._constants if isinstance(each, np.ndarray)}
    kept = (
        sum(constants.values())
        + CpuBackend().threads * program._pool.scratch
        + program._captured.arrays[0].nbytes
    )
    vocabulary = TOKEN_BYTES * model.config.vocab_size
    logits = (
        sum(array.nbytes for place, array in enumerate(program._arena) if place not in everywhere) // rows
    )
    assert said.fixed == pytest.approx(kept + logits + vocabulary, rel=0.02)
    tables = [table.cos for table in (model.rope_tables.main, model.rope_tables.local) if table is not None]
    assert all(len(table) <= max(cache.context_length, PAGE_TOKENS) for table in tables)
    assert said.position * (len(tables[0]) if tables else 1) == sum(2 * table.nbytes for table in tables)
    cache.close()
    model.close()


def vector_shapes(part: Any) -> list[Any]:
    """The shapes of all vectors of a decoder, in order."""
    if isinstance(part, np.ndarray):
        return [part.shape]
    if isinstance(part, tuple):
        return [vector_shapes(each) for each in part]
    if not dataclasses.is_dataclass(part):
        return []
    return [vector_shapes(getattr(part, each.name)) for each in dataclasses.fields(part)]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("dry")
def test_a_survey_has_the_shapes_of_the_loaded_model(tmp_path: Path, name: str) -> None:
    path = write_checkpoint(BY_NAME[name], tmp_path / "m")
    seen = survey(open_checkpoint(path), CpuBackend())
    model = load(path, CpuBackend())
    assert vector_shapes(seen.parts) == vector_shapes(model.parts)
    model.close()


@pytest.mark.slow
@pytest.mark.usefixtures("dry")
@pytest.mark.parametrize("experts", [0, 8])
def test_bytes_read_per_token(tmp_path: Path, experts: int) -> None:
    """All weights once, except one row of the embedding table, and only the experts used."""
    tiny = LARGE.but(layers=2, width=256, ffn_width=512)
    path = write_large_gguf(tmp_path / "m.gguf", tiny, "q8_0", experts)
    info, packed = describe(path), {}
    for name, tensor in open_checkpoint(path).tensors.items():
        rows = [tensor.part(i) for i in range(tensor.shape[0])] if len(tensor.shape) == 3 else [tensor]
        packed[name] = (
            sum(CpuBackend().weight_spec(each).nbytes for each in rows)
            if len(tensor.shape) > 1
            else tensor.nbytes
        )
    assert info.resident_bytes == sum(packed.values())
    unused = sum(size for name, size in packed.items() if "_exps" in name) * 6 // 8
    table = packed["token_embd.weight"]
    assert info.read_bytes == info.resident_bytes - table + table // tiny.vocab_size - unused
    assert (unused > 0) == (experts > 0)
    model = load(path, CpuBackend())
    assert (model.resident_bytes, model.weight_bytes_per_token) == (info.resident_bytes, info.read_bytes)
    model.close()


def hollow(path: Path, kind: str, rows: int, columns: int = 2048) -> FileTensor:
    """A matrix of zeros in a sparse file."""
    format = find_format(kind)
    assert format is not None
    with path.open("wb") as file:
        file.truncate(format.nbytes((rows, columns)))
    return FileTensor("w", kind, (rows, columns), ModelFile(path))


def scaled(path: Path, rows: int, columns: int = 2048) -> Any:
    """The same for fp8 with scales of blocks."""
    weight = hollow(path, "F8_E4M3", rows, columns)
    scale = FileTensor(
        "w.weight_scale_inv", "F32", (rows // 128, columns // 128), np.zeros(rows * columns // 4096, np.uint8)
    )
    return wrap_fp8({"w.weight": weight, "w.weight_scale_inv": scale}, {"weight_block_size": [128, 128]})[
        "w.weight"
    ]


MATRICES: dict[str, Any] = {
    **{
        kind: lambda path, rows, kind=kind: hollow(path, kind, rows)
        for kind in ("F32", "BF16", "Q8_0", "Q4_K", "IQ2_XXS", "F64")
    },
    "transposed": lambda path, rows: Transposed(hollow(path, "F32", 2048, rows)),
    "ordered": lambda path, rows: hollow(path, "F16", rows).take(np.arange(rows)[::-1]),
    "fp8": scaled,
}


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("kind", MATRICES)
def test_memory_of_packing_does_not_grow_with_the_matrix(tmp_path: Path, kind: str) -> None:
    """The packed matrix has its own pages, which are not counted here."""
    peaks = []
    for rows in (2048, 8192):
        tensor = MATRICES[kind](tmp_path / f"{rows}", rows)
        tracemalloc.start()
        weight = CpuWeight(tensor)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert weight.nbytes > rows * 2048 // 4
    assert max(peaks) < 48 * MIB
    assert peaks[1] < 1.5 * peaks[0] + 4 * MIB


@pytest.mark.slow
@pytest.mark.usefixtures("dry")
def test_memory_is_released_when_loading_is_stopped_and_when_the_chat_closes(tmp_path: Path) -> None:
    path = write_large_gguf(tmp_path / "large.gguf", LARGE, "q8_0")
    # all imports
    finished(open_chat(write_gguf(tmp_path / "tiny.gguf"), cache=CacheSettings(memory=1))).close()
    before, threads = resident(), threading.active_count()
    stop = threading.Event()
    loading = open_chat(path, cache=CacheSettings(memory=1), stop=stop)
    while (progress := next(loading)).done < LARGE.layers - 1:
        pass
    assert progress.stage == "Loading the weights"
    assert resident() > before + 60 * MIB
    stop.set()
    with pytest.raises(Cancelled):
        next(loading)
    assert resident() < before + 10 * MIB
    assert threading.active_count() == threads
    for _ in range(2):
        chat = finished(open_chat(path, cache=CacheSettings(memory=1)))
        assert resident() > before + 90 * MIB
        chat.close()
        assert resident() < before + 15 * MIB  # though the chat is still known here
        assert threading.active_count() == threads


@pytest.mark.usefixtures("dry")
def test_the_old_model_is_closed_before_the_new_one_loads(tmp_path: Path) -> None:
    path = write_large_gguf(tmp_path / "large.gguf", LARGE, "q8_0")
    before = resident()
    chat = finished(open_chat(path, cache=CacheSettings(memory=1)))
    one = resident() - before
    loading, most = open_chat(path, cache=CacheSettings(memory=1), replaces=chat), 0
    while True:
        try:
            next(loading)
        except StopIteration as end:
            second: LocalChat = end.value
            break
        most = max(most, resident() - before)
    assert most < 1.25 * one
    second.close()


class Present:
    """A running chat, as the window passes it on."""

    def __init__(self, chat: LocalChat, resident_bytes: int = 0) -> None:
        self.chat, self.closed = chat, False
        self.info: ModelInfo | None = chat.info
        if resident_bytes:
            self.info = dataclasses.replace(chat.info, resident_bytes=resident_bytes, cache_bytes=0)

    def close(self) -> None:
        self.closed = True

    def reply(self) -> str:
        """Check that it still replies."""
        request = ChatRequest(
            (Message("user", "Hello"),), SamplerSettings(temperature=0.0), StopSettings(max_tokens=3)
        )
        *_, done = self.chat.stream(request, threading.Event())
        assert isinstance(done, Done)
        return done.reason


@pytest.fixture
def present(tmp_path: Path) -> Iterator[Present]:
    chat = finished(
        open_chat(write_gguf(tmp_path / "present.gguf"), REFERENCE, CacheSettings(context_length=512))
    )
    yield Present(chat)
    chat.close()


def _truncated(folder: Path) -> Path:
    path = write_gguf(folder / "m.gguf")
    path.write_bytes(path.read_bytes()[:-100])
    return path


def _no_tokenizer(folder: Path) -> Path:
    path = write_folder(folder / "m")
    (path / "tokenizer.json").unlink()
    return path


def _broken_tokenizer(folder: Path) -> Path:
    path = write_folder(folder / "m")
    (path / "tokenizer.json").write_text('{"model": {"type": "BPE", "vocab": {}}}', "utf-8")
    return path


BAD: dict[str, tuple[Any, type[EngineError]]] = {
    "nothing there": (lambda folder: folder / "m.gguf", ModelNotFound),
    "cut short": (_truncated, BadCheckpoint),
    "another architecture": (
        lambda folder: write_folder(folder / "m", architecture="Rwkv5ForCausalLM"),
        UnsupportedModel,
    ),
    "a layer too many": (lambda folder: write_gguf(folder / "m.gguf", llama__block_count=3), BadCheckpoint),
    "no tokenizer": (_no_tokenizer, EngineError),
    "a broken tokenizer": (_broken_tokenizer, EngineError),
    "a template that is none": (
        lambda folder: write_gguf(folder / "m.gguf", tokenizer__chat_template="{% for %}"),
        BadTemplate,
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_headers_leave_the_running_chat(tmp_path: Path, present: Present, what: str) -> None:
    make, error = BAD[what]
    with pytest.raises(error):
        finished(open_chat(make(tmp_path), REFERENCE, CacheSettings(), replaces=present))
    assert not present.closed
    assert present.reply()


def test_too_little_memory_leaves_the_running_chat(
    tmp_path: Path, present: Present, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_gguf(tmp_path / "m.gguf", TINY.but(context_length=1 << 20))
    info, free = describe(path), 10 * MIB
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=free))
    with pytest.raises(
        NotEnoughMemory,
        match=r"m\.gguf leaves too little memory after loading its weights\. A context of "
        r"1,048,576 tokens needs",
    ):
        finished(open_chat(path, REFERENCE, CacheSettings(context_length=1 << 20), replaces=present))
    free = 1000
    with pytest.raises(NotEnoughMemory, match=r"m\.gguf needs [\d.]+ [kM]B of memory for its weights"):
        finished(open_chat(path, REFERENCE, CacheSettings(context_length=512), replaces=present))
    with pytest.raises(BadSetting):
        finished(open_chat(path, REFERENCE, CacheSettings(context_length=1 << 21), replaces=present))
    assert not present.closed
    assert present.reply()
    assert info.resident_bytes > 1000


def test_the_memory_of_the_running_model_counts_as_free(
    tmp_path: Path, present: Present, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is closed right before the first weight is read, not earlier."""
    path = write_gguf(tmp_path / "m.gguf")
    leaving = Present(present.chat, 64 * MIB)
    free = 1000

    def available() -> SimpleNamespace:
        return SimpleNamespace(available=free + (64 * MIB if leaving.closed else 0))

    monkeypatch.setattr(psutil, "virtual_memory", available)
    loading, stages = open_chat(path, REFERENCE, CacheSettings(context_length=512), replaces=leaving), []
    while True:
        try:
            stages.append((next(loading).stage, leaving.closed))
        except StopIteration as end:
            end.value.close()
            break
    assert stages[0] == ("Reading the model's headers", False)
    assert stages[1] == ("Loading the weights", True)


def test_stopping_before_the_weights_leaves_the_running_chat(tmp_path: Path, present: Present) -> None:
    stop = threading.Event()
    loading = open_chat(write_gguf(tmp_path / "m.gguf"), REFERENCE, CacheSettings(), stop, present)
    assert next(loading).stage == "Reading the model's headers"
    stop.set()
    with pytest.raises(Cancelled):
        next(loading)
    assert not present.closed


def test_a_hundred_shards(tmp_path: Path) -> None:
    tiny = TINY.but(layers=60)
    path = write_sharded(tmp_path / "m", tiny_config(tiny), llama_entries(tiny, "BF16"), 100)
    started = time.process_time()
    info = describe(path)
    assert time.process_time() - started < 5
    assert info.layers == 60


def test_eighteen_thousand_tensors() -> None:
    """A mixture of 128 experts in 47 layers, each matrix of an expert a tensor of its own."""
    width, inner, layers, count, used = 64, 32, 47, 128, 8
    config = {
        "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": width, "intermediate_size": 96,
        "moe_intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 32, "num_experts": count, "num_experts_per_tok": used,
        "norm_topk_prob": True, "vocab_size": 100, "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
        "rope_theta": 1e6, "tie_word_embeddings": False, "hidden_act": "silu",
    }  # fmt: skip
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens": (100, width),
        "lm_head": (100, width),
        "model.norm": (width,),
    }
    for layer in range(layers):
        at = f"model.layers.{layer}."
        shapes |= {
            at + "self_attn.q_proj": (64, width),
            at + "self_attn.k_proj": (32, width),
            at + "self_attn.v_proj": (32, width),
        }
        shapes |= {
            at + "self_attn.o_proj": (width, 64),
            at + "self_attn.q_norm": (32,),
            at + "self_attn.k_norm": (32,),
        }
        shapes |= {
            at + "input_layernorm": (width,),
            at + "post_attention_layernorm": (width,),
            at + "mlp.gate": (count, width),
        }
        for expert in range(count):
            of = f"{at}mlp.experts.{expert}."
            shapes |= {
                of + "gate_proj": (inner, width),
                of + "up_proj": (inner, width),
                of + "down_proj": (width, inner),
            }
    nothing = np.zeros(0, np.uint8)
    tensors = {
        name + ".weight": FileTensor(name + ".weight", "F16", shape, nothing)
        for name, shape in shapes.items()
    }
    assert len(tensors) > 18_000
    metadata = {"config": config, "generation_config": {}}
    checkpoint: Any = SimpleNamespace(
        path=Path("m"), format="safetensors", metadata=metadata, tensors=tensors
    )
    started = time.process_time()
    seen = survey(checkpoint, CpuBackend())
    assert time.process_time() - started < 3
    matrices = sum(2 * int(np.prod(shape)) for name, shape in shapes.items() if "experts" in name)
    assert seen.expert_bytes == matrices
    assert seen.parts is not None
    started = time.process_time()
    space = work_space(read_config(checkpoint), CpuBackend(), seen.parts)
    assert time.process_time() - started < 3
    assert space.row > used * width * 4  # rows are spread over their experts


def test_a_tensor_beyond_four_gigabytes(tmp_path: Path) -> None:
    """A sparse file of 5 GB: only the requested part is read."""
    import gguf

    path, rows = tmp_path / "m.gguf", 300_000
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor_info("hole", (rows, 4096), np.dtype(np.float32), rows * 4096 * 4)
    writer.add_tensor_info("end", (3, 64), np.dtype(np.float32), 3 * 64 * 4)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    head = -(-path.stat().st_size // 32) * 32
    values = np.random.default_rng(1).standard_normal((3, 64)).astype(np.float32)
    with path.open("r+b") as file:
        file.truncate(head + rows * 4096 * 4 + values.nbytes)
        file.seek(head + 290_000 * 4096 * 4)
        file.write(np.arange(4096, dtype=np.float32).tobytes())
        file.seek(head + rows * 4096 * 4)
        file.write(values.tobytes())
    tensors = open_checkpoint(path).tensors
    assert rows * 4096 * 4 > 1 << 32
    peaks = []
    for _ in range(3):  # threads of other tests may take memory during one of them
        tracemalloc.start()
        np.testing.assert_array_equal(tensors["end"].dequantise(), values)
        assert tensors["hole"].rows(290_000, 290_001).dequantise()[0, -1] == 4095
        assert not tensors["hole"].rows(290_001, 290_002).dequantise().any()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert min(peaks) < 2 * MIB
