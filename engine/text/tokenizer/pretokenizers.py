"""How byte-level BPE text is split into words before merging, for each value of `tokenizer.ggml.pre`.

A GGUF file names the rule but does not contain it. The rules are those of the models' own
tokenizer.json files, as llama.cpp's vocabulary table lists them; `PRETOKENIZERS` holds a name only if
its rule is known for certain.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.lazy_dataclass import dataclass

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _TAIL
_QWEN2 = _ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _TAIL
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
    + _CASED_TAIL
)
_GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ENDINGS}?|[^\r\n"
    rf"\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ENDINGS}?|\p{{N}}{{1,3}}" + _CASED_TAIL
)
# Cased letters, as DeepSeek's tokenizer.json lists them; written as escapes because NFC would change the
# ranges. llama.cpp splits white space before U+3000 differently: its regular expressions see all non-ASCII
# white space as U+000B, so U+3000 does not match as a sign. The model was trained with the rule of its
# tokenizer.json, which is the one below.
_DEEPSEEK_LETTERS = (
    r"\s?["
    "A-Za-z\xb5\xc0-\xd6\xd8-\xf6\xf8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376"
    "\u0377\u037b-\u037d\u037f"
    "\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-"
    "\u10c5\u13a0-\u13f5\u13f8-\u13fd"
    "\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-"
    "\u1f45\u1f48-\u1f4d\u1f50-\u1f57"
    "\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-"
    "\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec"
    "\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-"
    "\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3"
    "\ua640-\ua66d\ua680-\ua69b"
    "\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-"
    "\uff5a\U00010400-\U0001044f"
    "\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-"
    "\U000118df\U0001e900-\U0001e943"
    "]+"
)
_DEEPSEEK_SIGNS = r"\s?[!-/:-~" "\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"
_DEEPSEEK_ASIAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_DEEPSEEK_LLM = (r"[\r\n]", _DEEPSEEK_LETTERS, _DEEPSEEK_SIGNS, r"\s+$", _DEEPSEEK_ASIAN, r"\p{N}+")
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_ASIAN, r"\p{N}")
_DEEPSEEK_V3 = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
_QWEN35 = (
    _ENDINGS
    + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_JAIS2 = (
    _LLAMA3.removesuffix(r"|\s+(?!\S)|\s+")
    + "".join(rf"|\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4, "1,2"))
    + r"|\s{1}"
)
_BAILING = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n"
    r"]|\s+(?!\S)|\s+"
)
_SEED = _ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
_EXAONE_MOE = (
    _ENDINGS
    + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n"
    r"]|\s+(?!\S)|\s+"
)
_KIMI = "|".join(
    (
        r"[\p{Han}]+",
        _GPT4O.split(r"|\p{N}", 1)[0].replace(r"\p{M}]", r"\p{M}&&[^\p{Han}]]"),
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
_BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_SIGN_WORD = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
_SPARK = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    _SIGN_WORD + r"| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+",
    r"\p{N}",
)
# Groups of three digits, counted from the right. As the authors write them, each group looks for the end of
# the number, in time that grows with the square of its length; here, only the first one does.
_QUICKER = {
    r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))": r"(?<=\p{N})\p{N}{3}|\p{N}{1,3}(?=(?:\p{N}{3})*+(?!\p{N}))",
    r"\d{1,3}(?=(?:\d{3})*\b)": r"(?<=\d)\G\d{3}|(?<!\d)\d{1,3}(?=(?:\d{3})*+\b)",
    r"(?=(\d{3})+(?!\d))": (r"(?<=\d)\G\d{3}(?=\d)|\d{3}(?=\d)(?=(?:\d{3})++(?!\d))|(?=(?:\d{3})++(?!\d))"),
}
_THREES, _THREES_TO_WORD_END, _BEFORE_THREES = _QUICKER.values()
_AFMOE = (
    _THREES,
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf"
    "\u0e00-\u0e7f\u0e80-\u0eff\u1780-\u17ff"
    "\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+",
    _DEEPSEEK_V3[2],
)
_YOUTU = (
    "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-"
    "\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+"
    "|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    _GPT4O.replace(r"\p{N}{1,3}", r"\p{N}"),
)
_CHAMELEON = (
    "<sentinel:[0-9]+>",
    "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
    r"([\t\n]|    |  )",
    r"\p{N}",
    r"[\p{P}!-/:-@\[-`{-~]",
    _GPT2,
)


@dataclass(frozen=True, slots=True)
class Pretokenizer:
    """One rule: `patterns` are applied one after the other, and each match becomes a word.

    `nfc` composes the text first. `ignore_merges` keeps a word that is a token as it is. `add_bos` is the
    default for files that do not specify it.
    """

    patterns: tuple[str, ...]
    nfc: bool = False
    ignore_merges: bool = False
    add_bos: bool = False

    def to_json(self) -> dict[str, Any]:
        """The "pre_tokenizer" entry of a tokenizer.json."""
        splits: list[dict[str, Any]] = [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
            for pattern in self.patterns
        ]
        byte_level = {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": False,
        }
        return {"type": "Sequence", "pretokenizers": [*splits, byte_level]}


_DIGITS = Pretokenizer((r"\p{N}", _GPT2))
_WORDS = Pretokenizer((_GPT2,))
_WORDS_NFC = Pretokenizer((_GPT2,), nfc=True)
_LLAMA = Pretokenizer((_LLAMA3,), ignore_merges=True, add_bos=True)
_CL100K = Pretokenizer((_LLAMA3,))
_QWEN = Pretokenizer((_QWEN2,))
_O200K = Pretokenizer((_GPT4O,))
_V3 = Pretokenizer(_DEEPSEEK_V3)
_AYA = Pretokenizer((_THREES_TO_WORD_END, _GPT4O))
_BLOOMS = Pretokenizer((_BLOOM,))
_ANTS = Pretokenizer((_BAILING,))

_NAMES: Mapping[Pretokenizer, str] = {
    Pretokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")): "default",
    _WORDS: "gpt-2 phi-2 gigachat a.x-4.0 mellum exaone4 jais trillion granite-docling jina-es jina-de "
    "jina-v1-en jina-v2-es jina-v2-de jina-v2-code roberta-bpe modern-bert",
    _WORDS_NFC: "mpt olmo",
    _DIGITS: "smollm starcoder refact codeshell exaone minerva-7b mellum2",
    Pretokenizer((r"\p{N}", _GPT2), nfc=True): "command-r",
    _LLAMA: "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
    _CL100K: "chatglm-bpe dbrx smaug-bpe",
    Pretokenizer((_LLAMA3,), ignore_merges=True): "glm4 glm5",
    Pretokenizer((_JAIS2,)): "jais-2",
    Pretokenizer((_QWEN2,), nfc=True): "qwen2 f2llmv2 deepseek-r1-qwen",
    _QWEN: "stablelm2 megrez kormo hunyuan solar-open grok-2",
    Pretokenizer((_QWEN35,), nfc=True): "qwen35",
    Pretokenizer((_QWEN2.removeprefix(_ENDINGS + "|"),)): "ufakzeka",
    Pretokenizer((r"[^\n]+|[\n]+", _QWEN2)): "laguna",
    Pretokenizer((r"\p{N}{1,3}", _QWEN2.replace(r"|\p{N}|", r"|\p{N}+|")), ignore_merges=True): "minicpm5",
    Pretokenizer((_TEKKEN,), ignore_merges=True, add_bos=True): "tekken",
    _O200K: "gpt-4o llama4 kanana2 talkie minimax-m2",
    Pretokenizer((_GPT4O,), ignore_merges=True): "granite-embed-multi-97m",
    _AYA: "tiny_aya cohere2moe",
    Pretokenizer((_KIMI,)): "kimi-k2",
    Pretokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]")): "falcon",
    Pretokenizer(_DEEPSEEK_LLM): "deepseek-llm",
    Pretokenizer(_DEEPSEEK_CODER): "deepseek-coder",
    _V3: "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
    Pretokenizer(_SPARK): "spark2_5",
    Pretokenizer(_YOUTU, ignore_merges=True): "youtu",
    Pretokenizer(_AFMOE): "afmoe",
    _BLOOMS: "bloom gpt3-finnish poro-chat",
    Pretokenizer((_BLOOM, r"\p{N}")): "viking",
    _ANTS: "bailingmoe bailingmoe2 llada-moe",
    Pretokenizer((_SEED,)): "seed-coder",
    Pretokenizer((_EXAONE_MOE,)): "exaone-moe",
    Pretokenizer((r"\p{N}+", _BEFORE_THREES)): "superbpe",
    Pretokenizer(_CHAMELEON, add_bos=True): "chameleon",
}

PRETOKENIZERS: Mapping[str, Pretokenizer] = {
    name: rule for rule, names in _NAMES.items() for name in names.split()
}
"""The rule for every supported value of `tokenizer.ggml.pre` of byte-level BPE."""


def quicken(step: Any) -> None:
    """Replace, in a "pre_tokenizer" entry, patterns that are slow with long numbers by equivalent ones."""
    if not isinstance(step, dict):
        return
    for inner in step.get("pretokenizers") or ():
        quicken(inner)
    pattern = step.get("pattern")
    isolated = step.get("behavior") == "Isolated" and not step.get("invert")
    if isolated and isinstance(pattern, dict) and pattern.get("Regex") in _QUICKER:
        step["pattern"] = {**pattern, "Regex": _QUICKER[pattern["Regex"]]}
