"""How byte-level BPE text is cut into words before merging, for each name that `tokenizer.ggml.pre` can have.

A GGUF file names the cutting rule and does not hold it. The rules are those of the models' own tokenizer.json files, as
llama.cpp's vocabulary table lists them; a name is in `PRETOKENIZERS` only when its rule is known for certain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _TAIL
_QWEN2 = _ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _TAIL
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_TEKKEN = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}" + _CASED_TAIL
_GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ENDINGS}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ENDINGS}?|\p{{N}}{{1,3}}"
    + _CASED_TAIL
)
# Cased letters, as DeepSeek's tokenizer.json lists them; written as escapes because composing them (NFC) would change the ranges.
_DEEPSEEK_LETTERS = (
    r"\s?["
    "A-Za-z\xb5\xc0-\xd6\xd8-\xf6\xf8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f"
    "\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd"
    "\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57"
    "\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec"
    "\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b"
    "\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f"
    "\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
    "]+"
)
_DEEPSEEK_SIGNS = r"\s?[!-/:-~" "\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"
_DEEPSEEK_ASIAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_DEEPSEEK_LLM = (r"[\r\n]", _DEEPSEEK_LETTERS, _DEEPSEEK_SIGNS, r"\s+$", _DEEPSEEK_ASIAN, r"\p{N}+")
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_ASIAN, r"\p{N}")
_DEEPSEEK_V3 = (
    r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)


@dataclass(frozen=True, slots=True)
class Pretokenizer:
    """One cutting rule: `patterns` are applied one after the other, each match becomes a word of its own.

    `nfc` composes the text first; `ignore_merges` takes a word that is a token as it is; `add_bos` is what a file that
    does not say so means.
    """

    patterns: tuple[str, ...]
    nfc: bool = False
    ignore_merges: bool = False
    add_bos: bool = False

    def to_json(self) -> dict[str, Any]:
        """The "pre_tokenizer" entry of a tokenizer.json."""
        splits: list[dict[str, Any]] = [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False} for pattern in self.patterns
        ]
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        return {"type": "Sequence", "pretokenizers": [*splits, byte_level]}


_DIGITS_GPT2 = Pretokenizer((r"\p{N}", _GPT2))
_LLAMA_BPE = Pretokenizer((_LLAMA3,), ignore_merges=True, add_bos=True)

PRETOKENIZERS: Mapping[str, Pretokenizer] = {
    "default": Pretokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    "gpt-2": Pretokenizer((_GPT2,)),
    "phi-2": Pretokenizer((_GPT2,)),
    "smollm": _DIGITS_GPT2,
    "starcoder": _DIGITS_GPT2,
    "refact": _DIGITS_GPT2,
    "llama-bpe": _LLAMA_BPE,
    "llama3": _LLAMA_BPE,
    "llama-v3": _LLAMA_BPE,
    "falcon3": _LLAMA_BPE,
    "qwen2": Pretokenizer((_QWEN2,), nfc=True),
    "deepseek-r1-qwen": Pretokenizer((_QWEN2,)),
    "chatglm-bpe": Pretokenizer((_LLAMA3,)),
    "glm4": Pretokenizer((_LLAMA3,)),
    "tekken": Pretokenizer((_TEKKEN,), ignore_merges=True, add_bos=True),
    "gpt-4o": Pretokenizer((_GPT4O,)),
    "falcon": Pretokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]")),
    "deepseek-llm": Pretokenizer(_DEEPSEEK_LLM),
    "deepseek-coder": Pretokenizer(_DEEPSEEK_CODER),
    "deepseek-v3": Pretokenizer(_DEEPSEEK_V3),
}
"""Every value of `tokenizer.ggml.pre` that is understood."""
