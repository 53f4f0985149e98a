"""What the 9 deprecated example scripts of ExLlamaV2 0.3.2 do, with other imports and paths."""

from __future__ import annotations

import json
import sys

import pytest
import torch

from engine.compat.exllamav2 import (
    ExLlamaV2,
    ExLlamaV2Cache,
    ExLlamaV2Config,
    ExLlamaV2Lora,
    ExLlamaV2Tokenizer,
    stand_in,
)
from engine.compat.exllamav2.generator import (
    ExLlamaV2BaseGenerator,
    ExLlamaV2PrefixFilter,
    ExLlamaV2Sampler,
    ExLlamaV2StreamingGenerator,
)
from tests.engine.models.lora.test_lora import write_adapter

pytestmark = pytest.mark.slow


def own_settings(**more):
    settings = ExLlamaV2Sampler.Settings()
    settings.temperature, settings.top_k, settings.top_p = 0.85, 50, 0.8
    settings.token_repetition_penalty = 1.05
    for name, value in more.items():
        setattr(settings, name, value)
    return settings


def test_banned_strings(loaded, format_prompt):
    model, cache, tokenizer = loaded()
    generator = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
    end = tokenizer.single_id("<|im_end|>")
    generator.set_stop_conditions([end])
    ids = tokenizer.encode(format_prompt("You help.", "Teach me."), encode_special_tokens=True)

    def generate(banned):
        generator.begin_stream_ex(
            ids, own_settings(top_k=0, top_p=0.5), decode_special_tokens=True, banned_strings=banned, seed=4
        )
        text, suppressed, streamed = "", [], 0
        while streamed < 60:
            result = generator.stream_ex(ban_tokens=[end] if streamed < 20 else None)
            streamed += result["chunk_token_ids"].shape[-1]
            suppressed += [result["suppressed"]] if "suppressed" in result else []
            text += result["chunk"]
            if result["eos"]:
                break
        return text, suppressed

    text, none = generate(None)
    banned = [text[5:9], text[12:16]]
    other, suppressed = generate(banned)
    assert none == []
    assert suppressed
    assert all(one.lower() not in other.lower() for one in banned)
    generator.close()


def test_batched_inference(model_dir):
    config = ExLlamaV2Config(model_dir)
    config.max_output_len = 1
    config.max_batch_size = 5
    model = ExLlamaV2(config)
    cache = ExLlamaV2Cache(model, lazy=True, batch_size=5)
    model.load_autosplit(cache)
    generator = ExLlamaV2BaseGenerator(model, cache, ExLlamaV2Tokenizer(config))
    prompts = sorted((f"[INST] How do I open can {number}? [/INST]" for number in range(8)), key=len)
    outputs = []
    for batch in (prompts[:5], prompts[5:]):
        found = generator.generate_simple(batch, own_settings(), 16, seed=1234, add_bos=True)
        outputs += [text[len(prompt) :] for prompt, text in zip(batch, found, strict=True)]
    assert len(outputs) == 8
    assert any(outputs)
    generator.close()
    cache.close()
    model.unload()


def test_cfg(model_dir):
    config = ExLlamaV2Config()
    config.model_dir = model_dir
    config.max_batch_size = 2
    config.no_flash_attn = config.no_xformers = True
    config.prepare()
    model = ExLlamaV2(config)
    cache = ExLlamaV2Cache(model, lazy=True, batch_size=2)
    model.load_autosplit(cache)
    tokenizer = ExLlamaV2Tokenizer(config)
    generator = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
    settings = own_settings(top_a=0.0)
    texts = []
    for step in range(0, 11, 2):
        settings.cfg_scale = step / 5
        ids, offsets = tokenizer.encode(
            ["[INST] Be kind. Tell me about the dog. [/INST]", "[INST] Be rude. The dog. [/INST]"],
            encode_special_tokens=True, return_offsets=True,
        )  # fmt: skip
        mask = tokenizer.padding_mask(ids)
        generator.begin_stream(ids, settings, input_mask=mask, position_offsets=offsets)
        generator.set_stop_conditions([tokenizer.eos_token_id])
        text, count = "", 0
        while True:
            chunk, eos, _ = generator.stream()
            text, count = text + chunk, count + 1
            if eos or count == 16:
                break
        texts.append(text)
    assert len(set(texts)) > 1
    generator.close()
    cache.close()
    model.unload()


def test_inference(loaded):
    model, cache, tokenizer = loaded()
    generator = ExLlamaV2BaseGenerator(model, cache, tokenizer)
    settings = own_settings(token_repetition_penalty=1.01)
    settings.disallow_tokens(tokenizer, [tokenizer.eos_token_id])
    generator.warmup()
    output = generator.generate_simple("Our story begins where once", settings, 30, seed=1234)
    assert output.startswith("Our story begins where once")
    assert generator.sequence_ids.shape[-1] == tokenizer.encode("Our story begins where once").shape[-1] + 30
    generator.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_lm_format_enforcer(loaded):
    """The same two filters for one reply after another, with n-gram drafting."""
    pytest.importorskip("lmformatenforcer")
    before = set(sys.modules)
    stand_in()
    from lmformatenforcer import JsonSchemaParser
    from lmformatenforcer.integrations.exllamav2 import ExLlamaV2TokenEnforcerFilter

    model, cache, tokenizer = loaded()
    generator = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
    generator.speculative_ngram = True
    generator.warmup()
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 6}, "male": {"type": "boolean"}},
        "required": ["name", "male"],
    }
    own = ExLlamaV2TokenEnforcerFilter(JsonSchemaParser(schema), tokenizer)
    prefix = ExLlamaV2PrefixFilter(model, tokenizer, "{")

    def completion(prompt, filters):
        settings = own_settings(temperature=0.75, top_k=0, top_p=0.5, token_repetition_penalty=1.3)
        generator.set_stop_conditions([tokenizer.eos_token_id])
        generator.begin_stream_ex(
            tokenizer.encode(prompt), settings, filters=filters, filter_prefer_eos=True, seed=5
        )
        text, count = "", 0
        while True:
            result = generator.stream_ex()
            text, count = text + result["chunk"], count + 1
            if result["eos"] or count == 900:
                return text

    for prompt in ("About the dog:\n", "About the fox:\n"):
        assert completion(prompt, [])
        assert set(json.loads(completion(prompt, [own, prefix]), strict=False)) == {"name", "male"}
    generator.close()
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("exllamav2", "lmformatenforcer"):
            del sys.modules[name]


def test_lora(model_dir, tmp_path):
    config = ExLlamaV2Config(model_dir)
    model = ExLlamaV2(config)
    model.load()
    tokenizer = ExLlamaV2Tokenizer(config)
    cache = ExLlamaV2Cache(model)
    lora = ExLlamaV2Lora.from_directory(model, write_adapter(tmp_path / "lora"))
    streaming = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
    streaming.warmup()
    streaming.set_stop_conditions([tokenizer.eos_token_id])
    simple = ExLlamaV2BaseGenerator(model, cache, tokenizer)
    settings = ExLlamaV2Sampler.Settings.greedy()
    for each in (None, lora):
        streaming.begin_stream(tokenizer.encode("### Instruction:\nthe dog"), settings, loras=each)
        text, count = "", 0
        while count < 20:
            chunk, eos, _ = streaming.stream()
            text, count = text + chunk, count + 1
            if eos:
                break
        whole = simple.generate_simple("### Instruction:\nthe dog", settings, 20, loras=each)
        assert whole.startswith("### Instruction:\nthe dog" + text)
    for generator in (streaming, simple):
        generator.close()
    cache.close()
    model.unload()


def test_minimal_chat(loaded):
    model, cache, tokenizer = loaded()
    generator = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
    generator.set_stop_conditions([tokenizer.eos_token_id])
    for instruction in ("Hello", "And the dog?"):
        ids = tokenizer.encode(f"[INST] {instruction} [/INST]", add_bos=True)
        if generator.sequence_ids is not None:
            ids = torch.cat([generator.sequence_ids, ids], dim=-1)
        generator.begin_stream_ex(ids, ExLlamaV2Sampler.Settings(), seed=1)
        for _ in range(20):
            if generator.stream_ex()["eos"]:
                break
    assert generator.sequence_ids.shape[-1] > ids.shape[-1]
    generator.close()


def test_speculative(loaded):
    draft, draft_cache, _ = loaded(max_seq_len=512)
    model, cache, tokenizer = loaded(max_seq_len=512)
    normal = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
    drafted = ExLlamaV2StreamingGenerator(
        model, cache, tokenizer, draft, draft_cache, num_speculative_tokens=5
    )
    ngram = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
    ngram.speculative_ngram = True
    settings = own_settings(temperature=0.6, top_p=0.6, token_repetition_penalty=1.0)
    settings.disallow_tokens(tokenizer, [tokenizer.eos_token_id])
    normal.warmup()
    prompt = tokenizer.encode("Here is a simple Quicksort:")

    def run(generator):
        generator.set_stop_conditions([])
        generator.reset_sd_stats()
        generator.begin_stream_ex(prompt, settings)
        for _ in range(40):
            generator.stream_ex()
        efficiency, accuracy, total, drafts, accepted = generator.get_sd_stats()
        assert total >= 40
        assert accepted <= drafts
        return efficiency, accuracy

    assert run(normal) == (0.0, 0.0)
    run(drafted)
    run(ngram)
    ngram.ngram_preload(tokenizer.encode("void sort(int a, int b) { the quick brown fox } " * 9))
    ngram.speculative_ngram_min = 2
    run(ngram)
    for generator in (normal, drafted, ngram):
        generator.close()


def test_streaming(loaded):
    model, cache, tokenizer = loaded()
    generator = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
    settings = own_settings(top_a=0.0)
    settings.disallow_tokens(tokenizer, [tokenizer.eos_token_id])
    ids = tokenizer.encode("Our story begins where once", add_bos=True)
    generator.warmup()
    generator.set_stop_conditions([])
    generator.begin_stream_ex(ids, settings)
    text, count = "", 0
    while True:
        result = generator.stream_ex()
        text, count = text + result["chunk"], count + 1
        if result["eos"] or count == 40:
            break
    assert count == 40
    assert text
    generator.close()
