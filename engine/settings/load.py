"""How a model is brought into memory."""

from __future__ import annotations

from dataclasses import dataclass

from engine.fields import Settings, setting, within


@dataclass(frozen=True)
class LoadSettings(Settings):
    """How a model is brought into memory."""

    backend: str = setting(
        "auto",
        "Device",
        "What runs the model: automatic takes an NVIDIA GPU where there is one that the model fits on, "
        "else the processor; the reference is slow and exact.",
        choices=(
            ("auto", "Automatic"),
            ("cpu", "Processor (CPU)"),
            ("cuda", "GPU (CUDA)"),
            ("reference", "Reference (torch, exact and slow)"),
        ),
    )
    gpus: str = setting(
        "",
        "GPUs",
        "Numbers of the GPUs that share the model's layers, in this order; empty takes no more than are "
        "needed.",
        pattern=r"\s*(\d{1,2}\s*(,\s*\d{1,2}\s*)*)?",
        form="numbers of GPUs with commas between them, such as 0 or 0,1",
    )
    gpu_memory: int = setting(
        512,
        "GPU memory left free",
        "So much of each GPU's memory is left to the screen and to other programs.",
        **within(0, 1 << 20, step=64, slider_high=8192),
        unit="MiB",
        advanced=True,
    )
    threads: int = setting(
        0,
        "Threads",
        "CPU threads for the model; 0 takes one for each physical core.",
        **within(0, 256, step=1, slider_high=32),
        words=((0, "auto"),),
    )
    offload: bool = setting(
        False,
        "Offload to disk",
        "Let the CPU run models that are larger than the free memory: the weights that do not fit are kept "
        "in a temporary file and read again for each token, which is slow.",
        advanced=True,
    )
    prompt_bits: str = setting(
        "16",
        "Prompt precision",
        "Bits of the numbers that the CPU computes with while it reads a prompt; replies always take 16. "
        "With 8 it is read about 1.4 times as fast, and log-probabilities of the next token are off by "
        "about 0.02, not 0.001.",
        choices=(("16", "16 bits"), ("8", "8 bits (faster)")),
        advanced=True,
    )
    quantise: str = setting(
        "none",
        "Quantise while loading",
        "Store weights that the files hold unquantised (FP32, FP16, BF16) in fewer bits: less memory and "
        "more tokens a second, at some cost in quality.",
        choices=(("none", "No"), ("q8", "8 bits"), ("q6", "6 bits"), ("q4", "4 bits")),
        advanced=True,
    )
    quantise_head: str = setting(
        "same",
        "Quantise the head",
        "Another width for the head, the largest matrix of many models; quantised ones often keep it in "
        "FP16.",
        choices=(
            ("same", "As the other weights"),
            ("none", "No"),
            ("q8", "8 bits"),
            ("q6", "6 bits"),
            ("q4", "4 bits"),
        ),
        advanced=True,
    )
    chat_template: str = setting(
        "",
        "Chat template",
        "A Jinja template in the place of the model's own; empty takes the model's, or a "
        "general one where it has none.",
        advanced=True,
        multiline=True,
    )
