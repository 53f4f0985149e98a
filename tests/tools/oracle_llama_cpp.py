"""Records the results of llama.cpp for a model, exact and quantised: the oracle of
`tests/engine/test_starter_oracle.py`.

    python -m tests.tools.oracle_llama_cpp MODEL.gguf tests/golden/starter.json

Needs the `bench` extra. The exact oracle is an F32 GGUF of the dequantised weights with an F32 cache; the
rival is the original file with llama.cpp's own cache, whose CPU path rounds activations to 8 bits. Both give
the logits after every token of the prompt and of the oracle's greedy continuation, so that both see the same
text. A model without a chat template gets the text prompts only. `gemma3.json` was recorded likewise.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import jinja2.sandbox
import llama_cpp
import numpy as np

from tests.tools.twins import write_twin

GOLDEN = Path(__file__).parent.parent / "golden"
CONTINUATION = 32
KEPT = (0, 8, 16, 24, 32)
"""Positions after the prompt's end whose ten likeliest tokens are kept."""


def log_softmax(logits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Over the last axis, float64."""
    x = logits.astype(np.float64)
    x -= x.max(-1, keepdims=True)
    return np.asarray(x - np.log(np.exp(x).sum(-1, keepdims=True)))


def open_llama(path: Path, exact: bool) -> llama_cpp.Llama:
    """llama.cpp with all logits, on one thread, since several threads spin while they wait. The exact oracle
    has an F32 cache.
    """
    types = {"type_k": llama_cpp.GGML_TYPE_F32, "type_v": llama_cpp.GGML_TYPE_F32} if exact else {}
    return llama_cpp.Llama(
        str(path),
        n_ctx=1024,
        n_batch=1024,
        logits_all=True,
        n_threads=1,
        n_threads_batch=1,
        verbose=False,
        **types,
    )


def prompt_ids(llama: llama_cpp.Llama, prompt: dict[str, Any]) -> list[int]:
    """Ids of a text prompt (without special tokens), or of messages in the model's template."""
    add_bos = llama.metadata.get("tokenizer.ggml.add_bos_token", "false") == "true"
    if "text" in prompt:
        return list(llama.tokenize(prompt["text"].encode(), add_bos=add_bos, special=False))
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(llama.metadata["tokenizer.chat_template"])
    text = template.render(messages=prompt["messages"], add_generation_prompt=True)
    return list(llama.tokenize(text.encode(), add_bos=False, special=True))


def greedy(llama: llama_cpp.Llama, ids: list[int]) -> list[int]:
    """The greedy continuation of the oracle."""
    llama.reset()
    llama.eval(ids)
    out = []
    for _ in range(CONTINUATION):
        out.append(int(llama.scores[llama.n_tokens - 1].argmax()))
        llama.eval(out[-1:])
    return out


def rows_after_prompt(llama: llama_cpp.Llama, ids: list[int]) -> np.ndarray[Any, Any]:
    """Log-probabilities (33, V) after the prompt and after each token of the continuation."""
    llama.reset()
    llama.eval(ids)
    return log_softmax(llama.scores[len(ids) - CONTINUATION - 1 : len(ids)])


def perplexity(llama: llama_cpp.Llama, text: str, context: int = 512) -> float:
    """Perplexity as llama.cpp computes it: full windows, each with BOS if the model needs it, scored in the
    second half.
    """
    begin = (
        [llama.token_bos()] if llama.metadata.get("tokenizer.ggml.add_bos_token", "false") == "true" else []
    )
    ids = list(llama.tokenize(text.encode(), add_bos=False, special=False))
    losses = []
    for start in range(0, len(ids) - context + 1, context):
        window = begin + ids[start + len(begin) : start + context]
        llama.reset()
        llama.eval(window)
        rows = log_softmax(llama.scores[context // 2 : context - 1])
        losses.append(-rows[np.arange(len(rows)), window[context // 2 + 1 :]])
    return float(np.exp(np.concatenate(losses).mean()))


def record(model: Path) -> dict[str, Any]:
    """Everything that the test compares."""
    prompts = json.loads((GOLDEN / "prompts.json").read_text())
    text = (GOLDEN / "text_50k.txt").read_text()
    entries: list[dict[str, Any]] = []
    divergences, agreements, differences = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        exact_path = Path(folder) / "f32.gguf"
        write_twin(model, exact_path)
        exact, rival = open_llama(exact_path, True), open_llama(model, False)
        for prompt in prompts:
            if "text" not in prompt and "tokenizer.chat_template" not in exact.metadata:
                continue
            ids = prompt_ids(exact, prompt)
            following = greedy(exact, ids)
            rows, rival_rows = (rows_after_prompt(m, ids + following) for m in (exact, rival))
            order = np.argsort(-rows, axis=1)[:, :10]
            top = np.take_along_axis(rows, order, 1)
            divergences.append((np.exp(rows) * (rows - rival_rows)).sum(1))
            agreements.append(rows.argmax(1) == rival_rows.argmax(1))
            differences.append(np.abs(top - np.take_along_axis(rival_rows, order, 1)))
            entries.append(
                {
                    "name": prompt["name"],
                    "ids": ids,
                    "greedy": following,
                    "gaps": [round(float(a - b), 5) for a, b in top[:CONTINUATION, :2]],
                    "top": {
                        str(i): [[int(t), round(float(p), 5)] for t, p in zip(order[i], top[i], strict=True)]
                        for i in KEPT
                    },
                }
            )
        return {
            "source": f"llama-cpp-python {llama_cpp.__version__}, weights dequantised to F32, F32 cache",
            "perplexity": perplexity(exact, text),
            "quantised": {
                "mean_kl": float(np.concatenate(divergences).mean()),
                "greedy_agreement": float(np.concatenate(agreements).mean()),
                "top10_difference": float(np.concatenate(differences).mean()),
                "perplexity": perplexity(rival, text),
            },
            "prompts": entries,
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("output", type=Path)
    arguments = parser.parse_args()
    result = record(arguments.model)
    arguments.output.write_text(json.dumps(result, ensure_ascii=False, separators=(",", ":")) + "\n")
    print(json.dumps({"exact": {"perplexity": result["perplexity"]}, "quantised": result["quantised"]}))


if __name__ == "__main__":
    main()
