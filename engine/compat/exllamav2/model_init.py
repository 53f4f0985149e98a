"""Command line options for scripts: which model to load, and how."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from engine.compat.exllamav2.config import ExLlamaV2Config
from engine.compat.exllamav2.model import ExLlamaV2
from engine.compat.exllamav2.tokenizer import ExLlamaV2Tokenizer

_SWITCHES = (
    ("-tp", "--tensor_parallel", "let all GPUs share the layers"),
    ("-nfa", "--no_flash_attn", "accepted; there is no Flash Attention to turn off"),
    ("-nxf", "--no_xformers", "accepted; there is no xformers to turn off"),
    ("-nsdpa", "--no_sdpa", "accepted; there is no torch attention to turn off"),
    ("-ng", "--no_graphs", "accepted; results are the same with and without graphs"),
    ("-lm", "--low_mem", "read prompts in passes of at most 1024 tokens"),
    ("-lq4", "--load_q4", "store unquantised weights in 4 bits"),
    ("-fst", "--fast_safetensors", "accepted; it did nothing in ExLlamaV2 either"),
    ("-ic", "--ignore_compatibility", "accepted; no model's options are overridden"),
)
_VALUES = (
    ("-m", "--model_dir", str, "the model's folder or GGUF file"),
    ("-gs", "--gpu_split", str, "auto, or a size for each GPU that shares the layers, with commas between"),
    ("-l", "--length", int, "the longest sequence in tokens"),
    ("-rs", "--rope_scale", float, "divide positions by this"),
    ("-ra", "--rope_alpha", float, "NTK-aware scaling of positions"),
    ("-ry", "--rope_yarn", float, "the factor of yarn over the model's own context"),
    ("-ept", "--experts_per_token", int, "how many experts each token uses"),
    ("-chunk", "--chunk_size", int, "the most tokens of a prompt that one pass reads"),
)


def add_args(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    for short, long, kind, text in _VALUES:
        parser.add_argument(short, long, type=kind, help=text)
    for short, long, text in _SWITCHES:
        parser.add_argument(short, long, action="store_true", help=text)


def print_options(args: argparse.Namespace) -> None:
    """Print the model and the options that were given."""
    given = [
        long[2:] if value is True else f"{long[2:]}: {value}"
        for long in (*(row[1] for row in _VALUES[1:]), *(row[1] for row in _SWITCHES))
        if (value := getattr(args, long[2:])) not in (None, False)
    ]
    print(f" -- Model: {args.model_dir}")
    print(f" -- Options: {given}")


def check_args(args: argparse.Namespace) -> None:
    """End the program with a sentence where there is no model. `init` says what else is wrong."""
    if not args.model_dir:
        sys.exit("No model was named: give its folder or GGUF file after -m.")
    if not Path(args.model_dir).expanduser().exists():
        sys.exit(f"{args.model_dir} does not exist: give the model's folder or GGUF file after -m.")


def init(
    args: argparse.Namespace,
    quiet: bool = False,
    allow_auto_split: bool = False,
    skip_load: bool = False,
    benchmark: bool = False,
    max_batch_size: int | None = None,
    max_input_len: int | None = None,
    max_output_len: int | None = None,
    progress: bool = False,
) -> tuple[ExLlamaV2, ExLlamaV2Tokenizer]:
    """The model and its tokenizer. With `skip_load` or -gs auto the model is not loaded yet.

    `args` are those of `add_args`; what a script's own namespace lacks counts as not given. Raises ValueError
    for -gs auto without `allow_auto_split`, and what loading a model raises.
    """
    args = _completed(args)
    config = ExLlamaV2Config(args.model_dir)
    if args.rope_yarn:
        if config.alt_rope_method != "yarn":
            config.yarn_rope_original_max_position_embeddings = config.max_seq_len
        config.alt_rope_method, config.yarn_rope_factor = "yarn", args.rope_yarn
    config.max_seq_len = args.length or config.max_seq_len
    config.scale_pos_emb = args.rope_scale or config.scale_pos_emb
    config.scale_alpha_value = args.rope_alpha or config.scale_alpha_value
    config.num_experts_per_token = args.experts_per_token or config.num_experts_per_token
    for name in ("no_flash_attn", "no_xformers", "no_sdpa", "no_graphs"):
        setattr(config, name, bool(getattr(args, name)))
    config.max_batch_size = max_batch_size or config.max_batch_size
    config.max_output_len = max_output_len
    config.max_input_len = max_input_len or config.max_input_len
    config.load_in_q4 = bool(args.load_q4)
    if args.low_mem:
        config.set_low_mem()
    config.max_input_len = args.chunk_size or config.max_input_len
    config.arch_compat_overrides(quiet, warn_only=bool(args.ignore_compatibility))
    model = ExLlamaV2(config)
    if not skip_load:
        post_init_load(model, args, quiet, allow_auto_split, benchmark, progress)
    if not quiet:
        print(" -- Loading tokenizer...")
    return model, ExLlamaV2Tokenizer(config)


def post_init_load(
    model: ExLlamaV2,
    args: argparse.Namespace,
    quiet: bool = False,
    allow_auto_split: bool = False,
    benchmark: bool = False,
    progress: bool = False,
) -> None:
    """Load the model, unless -gs is auto. Raises as `init`."""
    args = _completed(args)
    by_hand = args.gpu_split not in (None, "auto")
    split = [float(size) for size in args.gpu_split.split(",")] if by_hand else None
    if args.tensor_parallel:
        model.load_tp(split, progress=progress)
        return
    if args.gpu_split == "auto":
        if not allow_auto_split:
            raise ValueError("gpu_split is auto, which this script does not support; leave -gs out")
        return
    if not quiet and not progress:
        print(" -- Loading model...")
    began = time.perf_counter()
    model.load(split, progress=progress)
    if benchmark and not quiet:
        print(f" -- Loaded model in {time.perf_counter() - began:.4f} seconds")


def _completed(args: Any) -> argparse.Namespace:
    """The options, None where `args`, which older scripts put together by hand, lacks one."""
    names = [row[1][2:] for row in (*_VALUES, *_SWITCHES)]
    return argparse.Namespace(**{name: getattr(args, name, None) for name in names})
