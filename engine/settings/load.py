"""How a model is brought into memory."""

from __future__ import annotations

from engine.fields import Settings, setting, within
from engine.lazy_dataclass import dataclass


@dataclass(frozen=True)
class LoadSettings(Settings):
    """How a model is brought into memory."""

    backend: str = setting(
        "auto",
        "Device",
        "The device that runs the model. Automatic uses an NVIDIA GPU if the model fits on one, "
        "otherwise the processor. The reference device is exact but slow.",
        choices=(
            ("auto", "Automatic"),
            ("cpu", "Processor (CPU)"),
            ("cuda", "GPU (CUDA)"),
            ("reference", "Reference (PyTorch, exact but slow)"),
        ),
    )
    gpus: str = setting(
        "",
        "GPUs",
        "The numbers of the GPUs that share the model's layers, in this order. If empty, no more "
        "GPUs are used than needed.",
        pattern=r"\s*(\d{1,2}\s*(,\s*\d{1,2}\s*)*)?",
        form="GPU numbers separated by commas, such as 0 or 0,1",
    )
    gpu_memory: int = setting(
        512,
        "GPU memory left free",
        "The amount of memory on each GPU that is left for the display and other programs.",
        **within(0, 1 << 20, step=64, slider_high=8192),
        unit="MiB",
        advanced=True,
    )
    threads: int = setting(
        0,
        "Threads",
        "The number of CPU threads for the model. With 0 it is one per physical core.",
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
        "The number of bits that the CPU computes with while it reads a prompt. Replies always use "
        "16. With 8, prompts are read up to 1.4 times as fast, but the log-probabilities of the next "
        "token are off by about 0.1 instead of 0.002 with small models.",
        choices=(("16", "16 bits"), ("8", "8 bits (faster)")),
        advanced=True,
    )
    picture_tokens: int = setting(
        0,
        "Tokens per picture",
        "The most tokens that a picture takes, with models that keep a picture's proportions. With more, "
        "they see finer detail, such as the small print of a scanned page, but reading takes more memory and "
        "much more time. With 0 it is 1,280 (Gemma 4: 280), or 4,096 with models for reading pages.",
        **within(0, 16384, step=64, slider_high=4096),
        words=((0, "auto"),),
        advanced=True,
    )
    quantise: str = setting(
        "none",
        "Quantise while loading",
        "Store unquantised weights (FP32, FP16, BF16) in fewer bits. This uses less memory and is "
        "faster, at some cost in quality.",
        choices=(("none", "No"), ("q8", "8 bits"), ("q6", "6 bits"), ("q4", "4 bits")),
        advanced=True,
    )
    quantise_head: str = setting(
        "same",
        "Quantise the output head",
        "A separate width for the output head, the largest matrix of many models. Quantised models "
        "often keep it in FP16.",
        choices=(
            ("same", "Same as the other weights"),
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
        "A Jinja template to use instead of the model's own. If empty, the model's template is used, "
        "or a general one if it has none.",
        advanced=True,
        multiline=True,
    )
