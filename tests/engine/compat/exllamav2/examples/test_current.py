"""What the 19 current example scripts of ExLlamaV2 0.3.2 do, with other imports and paths."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from unittest import mock

import pytest
import torch
from PIL import Image

import engine.compat.exllamav2 as package
from engine.compat.exllamav2 import (
    ExLlamaV2,
    ExLlamaV2Cache,
    ExLlamaV2Cache_8bit,
    ExLlamaV2Cache_Q4,
    ExLlamaV2Cache_Q6,
    ExLlamaV2Cache_Q8,
    ExLlamaV2Cache_TP,
    ExLlamaV2Config,
    ExLlamaV2Lora,
    ExLlamaV2Tokenizer,
    Timer,
    model_init,
    stand_in,
)
from engine.compat.exllamav2.generator import (
    ExLlamaV2DynamicGenerator,
    ExLlamaV2DynamicGeneratorAsync,
    ExLlamaV2DynamicJob,
    ExLlamaV2DynamicJobAsync,
    ExLlamaV2Filter,
    ExLlamaV2Sampler,
    ExLlamaV2StreamingGenerator,
)
from engine.compat.exllamav2.generator.filters import ExLlamaV2PrefixFilter
from engine.compat.exllamav2.server import ExLlamaV2WebSocketServer
from engine.errors import NotSupportedYet
from engine.settings import LoadSettings
from tests.engine.models.lora.test_lora import write_adapter
from tests.engine.vision.tiny.families import FAMILIES

pytestmark = pytest.mark.slow

PROMPTS = ["Once upon a time,", "The secret to success is", "There's no such thing as", "Adopt a cat:"]


def test_bulk_inference(loaded, format_prompt, tmp_path):
    model, cache, tokenizer = loaded(max_seq_len=100 * 256)
    generator = ExLlamaV2DynamicGenerator(
        model=model, cache=cache, tokenizer=tokenizer, max_batch_size=1024, max_q_size=1
    )
    gen_settings = ExLlamaV2Sampler.Settings(
        token_repetition_penalty=1.0, temperature=1.0, top_k=0, top_p=0.6
    )
    rows = [{"prompt": f"Question {number}: why?"} for number in range(40)]
    completions = []
    for index, row in enumerate(rows):
        prompt = format_prompt("You help.", row["prompt"])
        completions.append(prompt)
        generator.enqueue(
            ExLlamaV2DynamicJob(
                input_ids=tokenizer.encode(prompt, encode_special_tokens=True),
                gen_settings=gen_settings,
                max_new_tokens=24,
                identifier=index,
                stop_conditions=[tokenizer.single_id("<|im_end|>")],
            )
        )
    done, batch_sizes = 0, []
    while generator.num_remaining_jobs():
        results = generator.iterate()
        batch_sizes.append(len({result["identifier"] for result in results}))
        for result in results:
            if not result["eos"]:
                continue
            completions[result["identifier"]] += result["full_completion"]
            done += 1
    assert done == 40
    assert max(batch_sizes) > 8  # many at once
    out = tmp_path / "output.json"
    out.write_text(json.dumps(completions, indent=4))
    assert all(text.startswith("<|im_start|>") for text in json.loads(out.read_text()))


def test_chat(loaded, model_dir, capsys):
    """chat.py: its options, its kinds of cache, a draft model with scaled positions, and its loop."""
    parser = argparse.ArgumentParser()
    for short, long in (("-dm", "--draft_model_dir"), ("-cq4", "--cache_q4")):
        parser.add_argument(short, long, nargs="?", const=True)
    model_init.add_args(parser)
    args = parser.parse_args(["-m", model_dir, "-dm", model_dir, "-gs", "auto", "-l", "512", "-cq4"])
    model_init.check_args(args)
    model_init.print_options(args)
    model, tokenizer = model_init.init(args, allow_auto_split=True, max_output_len=16, skip_load=True)
    draft_config = ExLlamaV2Config()
    draft_config.model_dir = args.draft_model_dir
    draft_config.prepare()
    ratio = model.config.max_seq_len / draft_config.max_seq_len
    draft_config.scale_alpha_value = max(1.0, -0.13436 + 0.80541 * ratio + 0.28833 * ratio**2)
    draft_config.max_seq_len = model.config.max_seq_len
    draft_config.no_flash_attn = args.no_flash_attn
    draft_config.scale_pos_emb = args.rope_scale
    draft_model = ExLlamaV2(draft_config)
    draft_model.load()
    draft_cache = ExLlamaV2Cache(draft_model)
    model_init.post_init_load(model, args, allow_auto_split=True)
    assert not model.loaded
    kinds = (ExLlamaV2Cache_8bit, ExLlamaV2Cache_Q6, ExLlamaV2Cache_Q8, ExLlamaV2Cache, ExLlamaV2Cache_Q4)
    assert not model.tp_context
    cache = kinds[-1](model, lazy=True)
    model.load_autosplit(cache)
    generator = ExLlamaV2StreamingGenerator(
        model, cache, tokenizer, draft_model, draft_cache, num_speculative_tokens=5
    )
    generator.speculative_ngram = False
    settings = ExLlamaV2Sampler.Settings(
        temperature=0.95, top_k=50, top_p=0.8, top_a=0, typical=0, skew=0, token_repetition_penalty=1.01,
        token_frequency_penalty=0, token_presence_penalty=0, smoothing_factor=0, xtc_probability=0,
        xtc_threshold=0.1, dry_allowed_length=2, dry_base=1.75, dry_multiplier=0, dry_range=0,
    )  # fmt: skip
    settings.min_temp, settings.max_temp, settings.temp_exponent = 0.5, 1.5, 1.0
    generator.set_stop_conditions([tokenizer.eos_token_id, tokenizer.single_id("<|im_end|>")])
    prompts, responses, answers, overflows = [], [], [], 0

    def context(room):
        while True:
            ids = torch.empty((1, 0), dtype=torch.long)
            for turn, prompt in enumerate(prompts):
                new = tokenizer.encode(prompt, add_bos=turn == 0, encode_special_tokens=True)
                ids = torch.cat([ids, new, *responses[turn : turn + 1]], dim=-1)
            if ids.shape[-1] < room:
                return ids
            del prompts[0], responses[0]

    for question in ("Hello", "What is the fire?", "And the dog?", "Why?", "Tell me about the brown fox"):
        prompts.append(f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n")
        generator.begin_stream_ex(context(model.config.max_seq_len - 250), settings)
        generator.reset_sd_stats()
        responses.append(torch.empty((1, 0), dtype=torch.long))
        count, text = 0, ""
        while True:
            result = generator.stream_ex()
            text += result["chunk"]
            responses[-1] = torch.cat([responses[-1], result["chunk_token_ids"]], dim=-1)
            if generator.full():
                overflows += 1
                generator.begin_stream(context(model.config.max_seq_len - 250), settings)
            count += 1
            if count == 120:
                if tokenizer.eos_token_id in generator.stop_tokens:
                    last = tokenizer.single_token(tokenizer.eos_token_id)
                    responses[-1] = torch.cat([responses[-1], last], dim=-1)
                break
            if result["eos"]:
                break
        answers.append(text)
        efficiency, accuracy, *_ = generator.get_sd_stats()
        assert 0 <= efficiency <= 1 >= accuracy >= 0
    assert any(answers)
    assert len(answers) == 5
    generator.close()
    for each in (cache, draft_cache, model, draft_model):
        (each.close if hasattr(each, "close") else each.unload)()


@pytest.mark.parametrize("drafting", ["none", "ngram", "model"])
def test_dynamic_gen(loaded, format_prompt, drafting):
    """The stress test: many jobs of very different lengths, with display by stages."""
    model, cache, tokenizer = loaded(max_seq_len=16384)
    more = {}
    if drafting == "model":
        draft_model, draft_cache, _ = loaded(max_seq_len=1024)
        more = {"draft_model": draft_model, "draft_cache": draft_cache}
    generator = ExLlamaV2DynamicGenerator(
        model=model, cache=cache, tokenizer=tokenizer, max_batch_size=20, max_chunk_size=2048, paged=True,
        use_ngram_draft=drafting == "ngram", **more,
    )  # fmt: skip
    generator.warmup()
    questions = ["Hello!", "Hi there!", "What's up?"] + [
        "Guess the next number: " + ", ".join(str(number) for number in range(most)) for most in (90, 40, 90)
    ]
    jobs = [
        ExLlamaV2DynamicJob(
            input_ids=tokenizer.encode(format_prompt("You help.", question), encode_special_tokens=True),
            max_new_tokens=30,
            stop_conditions=[tokenizer.eos_token_id],
            gen_settings=ExLlamaV2Sampler.Settings(),
            banned_strings=["person to person"],
            filters=None,
            filter_prefer_eos=True,
            token_healing=False,
        )
        for question in questions * 4
    ]
    generator.enqueue(jobs)
    shown = {job: {"prefill": 0, "tokens": 0, "text": "", "end": None} for job in jobs}
    while generator.num_remaining_jobs():
        for result in generator.iterate():
            row = shown[result["job"]]
            row["text"] += result.get("text", "")
            row["prefill"] = result.get("curr_progress", row["prefill"])
            if (ids := result.get("token_ids")) is not None:
                row["tokens"] += ids.shape[-1]
            if result["stage"] == "streaming" and result["eos"]:
                row["end"] = result
                prompt = tokenizer.decode(
                    result["job"].sequences[0].input_ids.torch(), decode_special_tokens=True
                )
                assert prompt[0].startswith("<|im_start|>system")
                assert ("accepted_draft_tokens" in result) == (drafting != "none")
    for row in shown.values():
        assert row["end"]["full_completion"] == row["text"]
        assert row["end"]["prompt_tokens"] >= row["prefill"] > 0
        assert row["tokens"] <= 30
    assert sum(row["end"]["cached_tokens"] for row in shown.values()) > 0  # equal prompts were read once


def test_inference(loaded):
    model, cache, tokenizer = loaded(max_seq_len=32768)
    generator = ExLlamaV2DynamicGenerator(model=model, cache=cache, tokenizer=tokenizer)
    generator.warmup()
    with Timer() as single:
        output = generator.generate(prompt=PROMPTS[0], max_new_tokens=40, add_bos=True)
    assert output.startswith(PROMPTS[0])
    assert len(output) > len(PROMPTS[0])
    with Timer() as batched:
        outputs = generator.generate(prompt=PROMPTS, max_new_tokens=40, add_bos=True)
    assert [text.startswith(prompt) for text, prompt in zip(outputs, PROMPTS, strict=True)] == [True] * 4
    assert min(single.interval, batched.interval) > 0


def test_inference_async(loaded):
    async def main():
        model, cache, tokenizer = loaded()
        generator = ExLlamaV2DynamicGeneratorAsync(model=model, cache=cache, tokenizer=tokenizer)
        order = []

        async def run_job(prompt, marker):
            job = ExLlamaV2DynamicJobAsync(
                generator, input_ids=tokenizer.encode(prompt, add_bos=False), max_new_tokens=60
            )
            text = prompt
            async for result in job:
                text += result.get("text", "")
                order.append(marker)
                if marker == "1" and len(text) > len(prompt) + 20:
                    await job.cancel()
                    break
            return text

        outputs = await asyncio.gather(*(run_job(text, str(place)) for place, text in enumerate(PROMPTS[:3])))
        await generator.close()
        return outputs, order

    outputs, order = asyncio.run(main())
    assert all(text.startswith(prompt) for text, prompt in zip(outputs, PROMPTS, strict=False))
    assert order.count("0") > 10 < order.count("2")
    assert order != sorted(order)  # they took turns


def test_inference_banned_strings(loaded, format_prompt):
    model, cache, tokenizer = loaded()
    generator = ExLlamaV2DynamicGenerator(model=model, cache=cache, tokenizer=tokenizer)
    ids = tokenizer.encode(
        format_prompt("You help.", "Can you teach me?"), add_bos=False, encode_special_tokens=True
    )

    def generate(banned):
        job = ExLlamaV2DynamicJob(
            input_ids=ids, min_new_tokens=20 if banned else 0, max_new_tokens=60, banned_strings=banned,
            stop_conditions=[tokenizer.eos_token_id], seed=3,
        )  # fmt: skip
        generator.enqueue(job)
        shown, suppressed, eos = "", [], False
        while not eos:
            for result in generator.iterate():
                assert result["job"] == job
                if result["stage"] == "streaming":
                    eos = result["eos"]
                    shown += result.get("text", "")
                    if "suppressed_text" in result:
                        suppressed.append(result["suppressed_text"])
        return shown, suppressed

    text, none = generate(None)
    assert none == []
    banned = [text[4:8], text[10:14]]
    other, suppressed = generate(banned)
    assert suppressed
    assert all(one.lower() not in other.lower() for one in banned)


def test_inference_cfg(loaded, format_prompt):
    model, cache, tokenizer = loaded(max_seq_len=32768)
    generator = ExLlamaV2DynamicGenerator(model=model, cache=cache, tokenizer=tokenizer)
    pair = tuple(format_prompt(system, "May I jump?") for system in ("You are cheerful.", "You are rude."))
    scales = [-1.0, 0.0, 0.25, 0.5, 0.75, 1.0, 2.0]
    outputs = generator.generate(
        prompt=[pair] * len(scales),
        max_new_tokens=16,
        gen_settings=[ExLlamaV2Sampler.Settings.greedy(cfg_scale=scale) for scale in scales],
        stop_conditions=[tokenizer.single_id("<|im_end|>")],
        completion_only=True,
        encode_special_tokens=True,
    )
    assert len(outputs) == 7
    assert len(set(outputs)) > 1


def test_inference_dedup(loaded, format_prompt):
    """A long text, and several questions about it: it is read once."""
    model, cache, tokenizer = loaded(max_seq_len=8192)
    generator = ExLlamaV2DynamicGenerator(model=model, cache=cache, tokenizer=tokenizer)
    story = "The quick brown fox jumps over the lazy dog by the fire. " * 25
    questions = ["What are the themes?", "What is the setting?", "Who is in it?", "Write a summary."]
    outputs, last = generator.generate(
        prompt=[format_prompt("You help.", story + "\n###\n\n" + question) for question in questions],
        max_new_tokens=12,
        stop_conditions=[tokenizer.single_id("<|im_end|>")],
        completion_only=True,
        encode_special_tokens=True,
        return_last_results=True,
    )
    assert len(outputs) == 4
    assert all(result["cached_pages"] >= 1 for result in last[1:])


def superhero_schema():
    return {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 6}, "male": {"type": "boolean"}},
        "required": ["name", "male"],
    }


@pytest.fixture
def standing_in():
    """This package under the name `exllamav2`, and no longer after the test."""
    before = set(sys.modules)
    stand_in()
    yield
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("exllamav2", "lmformatenforcer", "formatron"):
            del sys.modules[name]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_inference_formatron(loaded, standing_in):
    try:
        from formatron.formatter import FormatterBuilder
    except (ImportError, AttributeError) as error:  # its releases fail with some releases of pydantic
        pytest.skip(f"no Formatron that can be imported: {error}")
    from formatron.integrations.exllamav2 import create_formatter_filter
    from formatron.schemas.dict_inference import infer_mapping

    model, cache, tokenizer = loaded(max_seq_len=32768)
    generator = ExLlamaV2DynamicGenerator(model=model, cache=cache, tokenizer=tokenizer)
    builder = FormatterBuilder()
    builder.append_line(f"{builder.json(infer_mapping({'issue': 1, 'good': True}), capture_name='json')}")
    prompts, filters = [], []
    for prompt in PROMPTS[:2]:
        prompts += [prompt, prompt]
        filters += [None, [create_formatter_filter(model, tokenizer, builder)]]
    outputs = generator.generate(
        prompt=prompts, filters=filters, max_new_tokens=900, add_bos=True, completion_only=True, seed=5,
        gen_settings=ExLlamaV2Sampler.Settings(token_repetition_penalty=1.3),
        stop_conditions=[tokenizer.eos_token_id],
    )  # fmt: skip
    for text in outputs[1::2]:
        assert set(json.loads(text)) == {"issue", "good"}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_inference_lmfe(loaded, standing_in):
    """With the wrapper that the script has for lm-format-enforcer, a filter of its own."""
    pytest.importorskip("lmformatenforcer")
    from lmformatenforcer import JsonSchemaParser, TokenEnforcer
    from lmformatenforcer.integrations.exllamav2 import build_token_enforcer_tokenizer_data

    class Enforcer(ExLlamaV2Filter):
        def __init__(self, model, tokenizer, parser):
            super().__init__(model, tokenizer)
            self.enforcer = TokenEnforcer(build_token_enforcer_tokenizer_data(tokenizer), parser)
            self.tokens = []

        def begin(self, prefix_str):
            self.tokens = []

        def feed(self, token):
            self.tokens.append(int(token[0][0]))

        def next(self):
            return sorted(self.enforcer.get_allowed_tokens(self.tokens).allowed_tokens), []

        def use_background_worker(self):
            return True

    model, cache, tokenizer = loaded(max_seq_len=32768)
    generator = ExLlamaV2DynamicGenerator(model=model, cache=cache, tokenizer=tokenizer)
    prompts, filters = [], []
    for prompt in PROMPTS[:2]:
        prompts += [prompt, prompt]
        parser = JsonSchemaParser(superhero_schema())
        prefix = ExLlamaV2PrefixFilter(model, tokenizer, ["{", " {"])
        filters += [None, [Enforcer(model, tokenizer, parser), prefix]]
    outputs = generator.generate(
        prompt=prompts, filters=filters, filter_prefer_eos=True, max_new_tokens=900, add_bos=True, seed=5,
        stop_conditions=[tokenizer.eos_token_id], completion_only=True,
    )  # fmt: skip
    for text in outputs[1::2]:
        assert set(json.loads(text, strict=False)) == {"name", "male"}


def test_inference_lora(loaded, tmp_path):
    model, cache, tokenizer = loaded(max_seq_len=32768)
    lora = ExLlamaV2Lora.from_directory(model, write_adapter(tmp_path / "lora"))
    generator = ExLlamaV2DynamicGenerator(model=model, cache=cache, tokenizer=tokenizer)

    def output():
        return generator.generate(
            prompt="### INPUT:\nthe dog\n### OUTPUT:\n", max_new_tokens=30, add_bos=True,
            stop_conditions=[tokenizer.eos_token_id, "###"], gen_settings=ExLlamaV2Sampler.Settings.greedy(),
        )  # fmt: skip

    plain = output()
    generator.set_loras(lora)
    assert output() != plain


def test_inference_speculative(loaded, format_prompt):
    draft_model, draft_cache, _ = loaded(max_seq_len=16384)
    model, cache, tokenizer = loaded(max_seq_len=16384)
    outputs = []
    for more in ({}, {"draft_model": draft_model, "draft_cache": draft_cache, "num_draft_tokens": 4}):
        generator = ExLlamaV2DynamicGenerator(model=model, cache=cache, tokenizer=tokenizer, **more)
        generator.warmup()
        with Timer() as timer:
            outputs.append(
                generator.generate(
                    prompt=format_prompt("You write code.", "Implement QuickSort."), max_new_tokens=40,
                    encode_special_tokens=True, gen_settings=ExLlamaV2Sampler.Settings.greedy(),
                )
            )  # fmt: skip
        assert timer.interval > 0
    assert outputs[0] == outputs[1]


def test_inference_stream(loaded):
    model, cache, tokenizer = loaded()
    generator = ExLlamaV2DynamicGenerator(model=model, cache=cache, tokenizer=tokenizer)
    prompt = "Our story begins in the town where "
    job = ExLlamaV2DynamicJob(
        input_ids=tokenizer.encode(prompt, add_bos=False), max_new_tokens=40, token_healing=True
    )
    generator.enqueue(job)
    text, eos = prompt, False
    while not eos:
        for result in generator.iterate():
            assert result["job"] == job
            if result["stage"] == "streaming":
                text += result.get("text", "")
                eos = result["eos"]
    assert text == prompt + result["full_completion"]
    assert result["new_tokens"] == 40


def test_inference_tp(model_dir):
    config = ExLlamaV2Config(model_dir)
    config.arch_compat_overrides()
    config.no_graphs = True
    model = ExLlamaV2(config)
    model.load_tp(progress=True, expect_cache_tokens=16384)
    cache = ExLlamaV2Cache_TP(model, max_seq_len=16384)
    tokenizer = ExLlamaV2Tokenizer(config)
    generator = ExLlamaV2DynamicGenerator(model=model, cache=cache, tokenizer=tokenizer)
    generator.warmup()
    assert generator.generate(prompt=PROMPTS[0], max_new_tokens=12, add_bos=True).startswith(PROMPTS[0])
    assert len(generator.generate(prompt=PROMPTS, max_new_tokens=12, add_bos=True)) == 4
    generator.close()
    cache.close()
    model.unload()


def test_minimal_chat(loaded):
    model, cache, tokenizer = loaded()
    generator = ExLlamaV2DynamicGenerator(model, cache, tokenizer)
    context = torch.empty((1, 0), dtype=torch.long)
    for instruction in ("Hello", "And the dog?"):
        ids = tokenizer.encode(f"[INST] {instruction} [/INST]", add_bos=True)
        context = torch.cat([context, ids], dim=-1)
        before = context.shape[-1]
        generator.enqueue(
            ExLlamaV2DynamicJob(
                input_ids=context, max_new_tokens=24, stop_conditions=[tokenizer.eos_token_id], seed=1
            )
        )
        eos = False
        while not eos:
            for result in generator.iterate():
                if result["stage"] == "streaming":
                    eos = result["eos"]
                    if "token_ids" in result:
                        context = torch.cat([context, result["token_ids"]], dim=-1)
    assert before < context.shape[-1] <= before + 24
    assert result["cached_tokens"] > 0  # of the first turn


@pytest.fixture(scope="module")
def eyes(tmp_path_factory):
    return FAMILIES["idefics3"](tmp_path_factory.mktemp("eyes") / "model").folder


@pytest.mark.parametrize(
    "sizes", [((80, 40), (20, 60)), ((64, 64),)], ids=["multimodal", "multimodal_grounding_qwen"]
)
def test_multimodal(eyes, sizes):
    """Pictures in one prompt; then a job, step by step. Of the second script this is what it asks of the
    engine.
    """
    config = package.ExLlamaV2Config(str(eyes))
    config.load_settings = LoadSettings(backend="cpu", threads=1)
    tower = package.ExLlamaV2VisionTower(config)
    tower.load(progress=False)
    model = package.ExLlamaV2(config)
    cache = package.ExLlamaV2Cache(model, lazy=True, max_seq_len=1024)
    model.load_autosplit(cache, progress=False)
    tokenizer = package.ExLlamaV2Tokenizer(config)
    generator = ExLlamaV2DynamicGenerator(model=model, cache=cache, tokenizer=tokenizer)
    images = [
        tower.get_image_embeddings(
            model=model, tokenizer=tokenizer, image=Image.new("RGB", size, "red"), text_alias=alias
        )
        for alias, size in zip(("{{IMAGE_1}}", "{{IMAGE_2}}"), sizes, strict=False)
    ]
    prompt = "".join(f"{image.text_alias}\n" for image in images) + "Compare them."
    greedy = ExLlamaV2Sampler.Settings.greedy()
    output = generator.generate(
        prompt=prompt, max_new_tokens=8, add_bos=True, encode_special_tokens=True, gen_settings=greedy,
        decode_special_tokens=True, stop_conditions=[tokenizer.eos_token_id], embeddings=images,
    )  # fmt: skip
    assert output.startswith(prompt)
    ids = tokenizer.encode(prompt, add_bos=True, encode_special_tokens=True, embeddings=images)
    job = ExLlamaV2DynamicJob(
        input_ids=ids, max_new_tokens=8, decode_special_tokens=True, gen_settings=greedy, embeddings=images,
        stop_conditions=[tokenizer.eos_token_id],
    )  # fmt: skip
    generator.enqueue(job)
    written = ""
    while generator.num_remaining_jobs():
        written += "".join(result.get("text", "") for result in generator.iterate())
    assert prompt + written == output
    for part in (generator.close, model.unload, tower.unload):
        part()


@pytest.mark.parametrize("script", ["multimodal_video"])
def test_scripts_for_films_are_refused_by_name(script):
    with pytest.raises(NotSupportedYet, match="`get_video_embeddings` is not supported here: models read"):
        package.ExLlamaV2VisionTower.get_video_embeddings(mock.Mock(), video=[])


def test_ws_server_is_refused_by_name(loaded):
    model, cache, tokenizer = loaded()
    with pytest.raises(NotSupportedYet, match="`ExLlamaV2WebSocketServer` is not supported here"):
        ExLlamaV2WebSocketServer("127.0.0.1", 7862, model, tokenizer, cache)
