"""The parts of README.md that are generated from the source: models, commands.

python -m tests.readme      rewrites them
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path

from desktop.preflight import DEBIAN_PACKAGES
from engine import cli
from engine.backends.cpu.layouts.table import weight_layout_for
from engine.backends.gguf_blocks.quants import NVFP4_PAIRS
from engine.vision.families import FAMILIES
from engine.weights import FORMATS
from engine.weights.gguf.table import I2_S, IK_FORMATS, TWO_BIT_FORMATS
from engine.weights.packed.table import METHODS
from tests.engine.models.cases.encoders import ENCODERS
from tests.engine.models.cases.table import CASES

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
_MIXTURE = " mixture of experts"
_PICTURES = {
    "aya_vision": "Aya", "cohere_compass": "North", "command_vision": "Command A",
    "deepseek_ocr": "DeepSeek-OCR",
    "deepseek_ocr2": "2",
    "deepseek_vl": "VL", "dots_ocr": "dots.ocr", "exaone4_5": "EXAONE 4.5",
    "fast_vlm": "FastVLM",
    "gemma3": "Gemma 3", "gemma3n": "3n", "gemma4": "4",
    "glm4v": "GLM-4.1V", "glm_ocr": "OCR", "got_ocr2": "GOT-OCR2",
    "granite_docling": "Docling",
    "hunyuan_vl": "HunyuanOCR", "hyperclovax_vision": "HyperCLOVA X",
    "idefics2": "Idefics2", "idefics3": "SmolVLM", "internvl": "InternVL", "janus": "Janus",
    "kimi_vl": "Kimi-VL", "kimi_k2_5": "K2.5", "lfm2_vl": "LFM2-VL", "lfm3_vl": "3",
    "lightonocr": "LightOnOCR", "mllama": "Llama 3.2", "llama4": "4",
    "llava": "LLaVA, Moondream", "llava_next": "NeXT", "llava_onevision": "OneVision",
    "minicpm_ocr": "MiniCPM-OCR", "minicpm_v": "V", "minicpm_v4_6": "4.6", "minicpm_v4_7": "4.7",
    "molmo2": "Molmo 2",
    "ovis2": "Ovis2",
    "paddle_ocr": "PaddleOCR", "paligemma": "PaliGemma",
    "perception_lm": "PerceptionLM", "phi3_v": "Phi-3.5",
    "pixtral": "Pixtral, Mistral 3, 4, Large 4",
    "qianfan_ocr": "Qianfan", "qwen2_vl": "Qwen2-VL",
    "qwen2_5_vl": "2.5", "qwen2_5_omni": "Omni", "qwen3_vl": "3, 3.5, 3-Omni", "vip_llava": "ViP",
}  # fmt: skip
"""The models of each family of vision encoders."""


def commands() -> str:
    """The table of commands."""
    rows = ["| command | what it does | `--json` |", "|---|---|---|"]
    rows += [
        f"| `inglenook-engine {command.name}` | {command.help} | {'yes' if command.has_json else 'no'} |"
        for command in cli.commands()
    ]
    return "\n".join(rows)


def packages() -> str:
    """The command that installs what Qt needs."""
    return f"```sh\nsudo apt install {DEBIAN_PACKAGES}\n```"


def architectures() -> str:
    """The architectures compared with transformers."""
    named = dict.fromkeys(case.architecture for case in CASES)
    encoders = dict.fromkeys(case.architecture for case in ENCODERS if "," not in case.architecture)
    mixed = [name.removesuffix(_MIXTURE) for name in named if name.endswith(_MIXTURE)]
    plain = _families(name for name in named if not name.endswith(_MIXTURE))
    return _wrapped(
        f"Tested with `transformers`: {'; '.join(plain)}; MoE of "
        f"{', '.join(_families(mixed))}. "
        "With llama.cpp: RWKV-6, 7, SmallThinker, Refact, CodeShell, Jais, Maincoder, openPangu, "
        "PLaMo, 2, 3, PLM, OpenELM, Nanbeige 4.2, Ouro, Spark X2.5, Maple, Talkie, Kimi K3. "
        "With makers' code: Xing 4, K2 Horizon, LongCat-Flash-Lite, Ring-linear, Klear, TeleChat 2, 3, "
        "InternLM, Aquila 2, IQuest-Coder Loop, Gear, Baichuan 2, M1, Lille. "
        f"Embedding: {', '.join(encoders)}, Jina BERT, Nomic v2, Qwen 3. "
        f"Pictures: {', '.join(_PICTURES[family.name] for family in FAMILIES)}; others: text."
    )


def _families(names: Iterable[str]) -> list[str]:
    """The names, of which those that differ in their version alone are one: "OLMo 2, 3"."""
    found = dict[str, list[str]]()
    for name in names:
        base, _, version = name.rpartition(" ")
        found.setdefault(base if base and version.lstrip("VK")[:1].isdigit() else name, []).append(name)
    return [", ".join([own[0], *(name.rpartition(" ")[2] for name in own[1:])]) for own in found.values()]


def formats() -> str:
    """The tensor types, and how the CPU keeps them."""
    kept: dict[str, list[str]] = {}
    for format in (*FORMATS, *TWO_BIT_FORMATS):
        name = NVFP4_PAIRS.name if format.name == "NVFP4" else format.name
        assert name in weight_layout_for(name).types or format in TWO_BIT_FORMATS
        codes = format.name.startswith(("IQ1", "IQ2", "IQ3"))
        how = "unpacked to 3 bits a weight (IQ1, IQ2) or to 4" if codes else "as they are"
        kept.setdefault(how, []).append(format.name)
    rows = [f"- GGUF, {how}: {', '.join(names)}." for how, names in kept.items()]
    rows[0] = rows[0].replace("GGUF,", "GGUF, single or split, held in memory", 1)
    families = ("IQ2_K", "IQ6_K"), ("IQ2_KS", "IQ5_KS"), ("IQ1_KT", "IQ4_KT")
    named = [f"{first} to {last}" for first, last in families]
    inside = {f"IQ{i}_{a[4:]}" for a, b in families for i in range(int(a[2]), int(b[2]) + 1)}
    named += sorted({format.name for format in IK_FORMATS} - inside)
    assert inside <= {format.name for format in IK_FORMATS}
    rows.append(f"- GGUF of ik_llama.cpp: {', '.join(named)}, R4, {I2_S.name}.")
    rows.append(f"- Folders: floats, {', '.join(METHODS)}.")
    return "\n".join(_wrapped(row, "  ") for row in rows)


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 110, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


PARTS = {"architectures": architectures, "formats": formats, "commands": commands, "packages": packages}


def filled(text: str) -> str:
    """README.md with every generated part up to date."""
    for name, make in PARTS.items():
        begin, end = f"<!-- {name}: python -m tests.readme -->", f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        assert rest, f"README.md has no mark {begin}"
        assert after, f"README.md has no mark {end}"
        text = f"{before}{begin}\n{make()}\n{end}{after}"
    return text


if __name__ == "__main__":
    README.write_text(filled(README.read_text("utf-8")), "utf-8")
