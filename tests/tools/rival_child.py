"""A rival in its own process: it receives over stdin what to run, and reports over stdout how long it took.

    python tests/tools/rival_child.py KIND MODEL THREADS CONTEXT

Started by `tests.tools.rivals`. Each line in is a JSON object {"ids", "start", "one_by_one"}, or {"ids",
"sequences"} for the same ids one by one in so many sequences at once; each line out is {"seconds"}. The first
line out is {"name", "version"}, or {"error"} with what is missing. Only the rival's packages are imported, so
that each may be in a virtual environment of its own. With `start` tokens in the cache, `ids` are run after
them, all at once (prefill) or one by one (decode), and nothing is sampled but a greedy token where the rival
cannot do less.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

CHUNK = 512
"""Tokens that transformers reads at once; one piece of 2,048 is slower."""


class Engine(Protocol):
    """A rival with one model."""

    name: str
    version: str

    def run(self, ids: Sequence[int], start: int, *, one_by_one: bool) -> float:
        """Run `ids` after the first `start` tokens of what was run before; seconds."""
        ...


class Transformers:
    """Hugging Face transformers on the GGUF file, dequantised to float32 or bfloat16; eager, not compiled."""

    def __init__(self, path: Path, threads: int, dtype: str) -> None:
        import torch
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        torch.set_num_threads(threads)
        self._torch = torch
        self.name, self.version = f"transformers {dtype}", str(transformers.__version__)
        load: Any = transformers.AutoModelForCausalLM.from_pretrained
        self._model = load(str(path.parent), gguf_file=path.name, dtype=getattr(torch, dtype)).eval()
        self._cache: Any = None
        self._new_cache: Any = transformers.DynamicCache

    def run(self, ids: Sequence[int], start: int, *, one_by_one: bool) -> float:
        """See `Engine.run`."""
        torch = self._torch
        if start == 0:
            self._cache = self._new_cache(config=self._model.config)
        elif self._cache.get_seq_length() > start:
            self._cache.crop(start)
        step = 1 if one_by_one else CHUNK
        begun = time.perf_counter()
        with torch.inference_mode():
            for at in range(0, len(ids), step):
                piece = torch.tensor([list(ids[at : at + step])])
                self._model(input_ids=piece, cache=self._cache, use_cache=True, logits_to_keep=1)
        return time.perf_counter() - begun


class OpenVino:
    """OpenVINO GenAI on the GGUF file. By default it rounds activations to 8 bits in groups of 32, and to
    bfloat16 where the CPU supports that; `exact` uses float32 throughout. Decoding starts from its own
    prompt.
    """

    def __init__(self, path: Path, threads: int, exact: bool) -> None:
        openvino, openvino_genai, self._numpy = (
            importlib.import_module(name) for name in ("openvino", "openvino_genai", "numpy")
        )
        self.name, self.version = (
            "OpenVINO GenAI" + (" float32" if exact else ""),
            str(openvino_genai.__version__),
        )
        self._tensor = openvino.Tensor
        self._genai = openvino_genai
        properties = (
            {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"} if exact else {}
        )
        self._pipeline = openvino_genai.LLMPipeline(
            str(path), "CPU", INFERENCE_NUM_THREADS=threads, **properties
        )
        self._turn = 0

    def _generate(self, ids: Sequence[int], tokens: int) -> float:
        settings = self._genai.GenerationConfig()
        settings.max_new_tokens, settings.min_new_tokens, settings.ignore_eos, settings.do_sample = (
            tokens,
            tokens,
            True,
            False,
        )
        settings.apply_chat_template = False
        self._turn += 1
        # another first token each time: a prompt that it knows from before would be taken from its cache of
        # prefixes
        rows = self._numpy.array([[10 + self._turn, *ids[1:]]], dtype="int64")
        begun = time.perf_counter()
        self._pipeline.generate(
            self._genai.TokenizedInputs(self._tensor(rows), self._tensor(self._numpy.ones_like(rows))),
            settings,
        )
        return time.perf_counter() - begun

    def run(self, ids: Sequence[int], start: int, *, one_by_one: bool) -> float:
        """See `Engine.run`; decoding is a reply of that many tokens less one of a single token."""
        if not one_by_one:
            return self._generate(ids, 1)
        prompt = list(range(100, 100 + max(start, 8)))
        first = self._generate(prompt, 1)
        return max(1e-9, self._generate(prompt, len(ids) + 1) - first)


class BatchedLlamaCpp:
    """llama.cpp's low-level API with a context of `context` tokens for 16 sequences together, fp16 cache."""

    SEQUENCES = 16

    def __init__(self, path: Path, threads: int, context: int) -> None:
        import llama_cpp

        self.name, self.version, self._api = "llama.cpp", str(llama_cpp.__version__), llama_cpp
        llama_cpp.llama_backend_init()
        model = llama_cpp.llama_model_default_params()
        model.n_gpu_layers = 0
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), model)
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot load {path.name}")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = context, 512, 512, self.SEQUENCES
        params.n_threads = params.n_threads_batch = threads
        params.kv_unified = True
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        self._batch = llama_cpp.llama_batch_init(self.SEQUENCES, 0, 1)

    def run(self, ids: Sequence[int], start: int, *, one_by_one: bool) -> float:
        """As `run_batch` of one sequence from its beginning."""
        return self.run_batch(ids, 1)

    def run_batch(self, ids: Sequence[int], sequences: int) -> float:
        """Run `ids` one by one in each of `sequences` sequences at once, from their beginning; seconds."""
        api, batch = self._api, self._batch
        api.llama_memory_clear(api.llama_get_memory(self._context), True)
        begun = time.perf_counter()
        for position, token in enumerate(ids):
            batch.n_tokens = sequences
            for row in range(sequences):
                batch.token[row], batch.pos[row] = token, position
                batch.n_seq_id[row], batch.seq_id[row][0], batch.logits[row] = 1, row, True
            if api.llama_decode(self._context, batch):
                raise RuntimeError("llama.cpp could not run a batch")
            api.llama_get_logits_ith(self._context, sequences - 1)  # waits for the result
        return time.perf_counter() - begun


class IkLlamaCpp:
    """ik_llama.cpp's low-level API with an fp16 cache; `repacked` interleaves the rows of the weights while
    they are loaded. Its package keeps flash attention off without AVX-VNNI, where an assertion fails.
    """

    def __init__(self, path: Path, threads: int, context: int, repacked: bool) -> None:
        package, api = (
            importlib.import_module(name) for name in ("ik_llama_cpp", "ik_llama_cpp._ctypes_api")
        )
        llama = importlib.import_module("ik_llama_cpp.llama")
        self.name = "ik_llama.cpp" + (" repacked" if repacked else "")
        self.version, self._api = str(package.__version__), api
        api.llama_backend_init()
        model = api.llama_model_default_params()
        model.n_gpu_layers, model.repack_tensors = 0, repacked
        self._model = api.llama_model_load_from_file(str(path).encode(), model)
        if not self._model:
            raise RuntimeError(f"ik_llama.cpp cannot load {path.name}")
        params = api.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = context, CHUNK, CHUNK
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn = llama._cpu_has_avx_vnni()
        self._context = api.llama_init_from_model(self._model, params)
        self._batch = api.llama_batch_init(CHUNK, 0, 1)
        self._remove = ctypes.CDLL(str(Path(package.__file__).parent / "lib" / "libllama.so"))
        self._remove.llama_kv_cache_seq_rm.argtypes = [ctypes.c_void_p, *[ctypes.c_int32] * 3]

    def run(self, ids: Sequence[int], start: int, *, one_by_one: bool) -> float:
        """See `Engine.run`."""
        api, batch = self._api, self._batch
        self._remove.llama_kv_cache_seq_rm(self._context, 0, start, -1)
        step = 1 if one_by_one else CHUNK
        begun = time.perf_counter()
        for at in range(0, len(ids), step):
            piece = ids[at : at + step]
            batch.n_tokens = len(piece)
            for row, token in enumerate(piece):
                batch.token[row], batch.pos[row] = token, start + at + row
                batch.n_seq_id[row], batch.seq_id[row][0] = 1, 0
                batch.logits[row] = row + 1 == len(piece)
            if api.llama_decode(self._context, batch):
                raise RuntimeError("ik_llama.cpp could not run a batch")
            api.llama_get_logits_ith(self._context, len(piece) - 1)  # waits for the result
        return time.perf_counter() - begun


def open_engine(kind: str, path: Path, threads: int, context: int) -> Engine:
    """The rival of this kind. Raises what its package raises, or `RuntimeError` for llama.cpp, if it is not
    available.
    """
    if kind == "llama.cpp":
        sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
        from engine.cli.peers import LlamaCpp
        from engine.errors import BenchmarkError

        try:
            return LlamaCpp(path, threads, context)
        except BenchmarkError as error:
            raise RuntimeError(str(error)) from error
    if kind == "llama.cpp batched":
        return BatchedLlamaCpp(path, threads, context)
    if kind.startswith("openvino"):
        return OpenVino(path, threads, kind == "openvino float32")
    if kind.startswith("ik_llama.cpp"):
        return IkLlamaCpp(path, threads, context, kind.endswith(" repacked"))
    return Transformers(path, threads, kind.removeprefix("transformers "))


def main() -> None:
    """Answer requests until stdin ends."""
    kind, path, threads, context = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # output of the rival's library must not mix with answers

    def answer(**what: object) -> None:
        answers.write(json.dumps(what) + "\n")

    try:
        engine = open_engine(kind, path, threads, context)
    except (ImportError, RuntimeError, ValueError, OSError, KeyError) as error:
        answer(error=f"{type(error).__name__}: {error}".splitlines()[0][:200])
        return
    answer(name=engine.name, version=engine.version)
    for line in sys.stdin:
        asked = json.loads(line)
        if "sequences" in asked:
            assert isinstance(engine, BatchedLlamaCpp)
            answer(seconds=engine.run_batch(asked["ids"], asked["sequences"]))
        else:
            answer(seconds=engine.run(asked["ids"], asked["start"], one_by_one=asked["one_by_one"]))


if __name__ == "__main__":
    main()
