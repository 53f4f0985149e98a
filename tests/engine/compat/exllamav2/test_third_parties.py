"""What scripts and programs of others do that ExLlamaV2's examples do not: ComfyUI nodes, servers, tools."""

from __future__ import annotations

import asyncio
import importlib
import json
import threading
import warnings

import pytest
import torch

import engine.compat.exllamav2 as exllamav2
from engine.compat.exllamav2 import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Cache_Q8, ExLlamaV2Config
from engine.compat.exllamav2.generator import (
    ExLlamaV2DynamicGenerator,
    ExLlamaV2DynamicGeneratorAsync,
    ExLlamaV2DynamicJob,
    ExLlamaV2DynamicJobAsync,
    ExLlamaV2Sampler,
    ExLlamaV2StreamingGenerator,
)
from engine.errors import NotSupportedYet
from tests.tiny import CHAT_TEMPLATE, write_folder

GREEDY = ExLlamaV2Sampler.Settings.greedy()
PLACES = [
    ("tokenizer.tokenizer", "ExLlamaV2Tokenizer"), ("model", "ExLlamaV2Cache"), ("model", "ExLlamaV2Lora"),
    ("model", "ExLlamaV2CacheBase"), ("model", "ExLlamaV2Config"), ("model", "ExLlamaV2Tokenizer"),
    ("generator.base", "ExLlamaV2Sampler"), ("generator.streaming", "ExLlamaV2Sampler"),
    ("generator.dynamic", "ExLlamaV2Sampler"), ("generator.dynamic", "ExLlamaV2DynamicJob"),
    ("generator.filters.base", "ExLlamaV2Tokenizer"), ("generator.filters.prefix", "ExLlamaV2Filter"),
    ("tokenizer", "ExLlamaV2TokenizerHF"), ("tokenizer.hf", "ExLlamaV2TokenizerHF"),
    ("model", "ExLlamaV2Linear"), ("vlm.vision_tower", "ExLlamaV2VisionTower"),
    ("generator.dynamic_embeddings", "ExLlamaV2MMEmbedding"),
    ("server.websocket", "ExLlamaV2WebSocketServer"),
]  # fmt: skip


@pytest.fixture
def cache(model):
    cache = ExLlamaV2Cache(model, max_seq_len=512)
    yield cache
    cache.close()


@pytest.mark.parametrize(("module", "name"), PLACES)
def test_names_are_where_scripts_look_for_them(module, name):
    found = getattr(importlib.import_module(f"{exllamav2.__name__}.{module}"), name)
    public = getattr(exllamav2, name, getattr(exllamav2.generator, name, found))
    assert found is public
    with pytest.raises(ImportError, match="ExLlamaV2Nothing"):
        exec(f"from {exllamav2.__name__}.model import ExLlamaV2Nothing")


def test_arguments_that_exllamav2_ignores(model, cache, tokenizer):
    """As the original does, which takes any argument by name."""
    with pytest.warns(
        UserWarning, match="ExLlamaV2DynamicGenerator ignores `gen_settings`, `draft_impl`, as"
    ):
        generator = ExLlamaV2DynamicGenerator(
            model, cache, tokenizer, gen_settings=GREEDY, draft_impl="default"
        )
    with pytest.warns(UserWarning, match="ExLlamaV2DynamicJob ignores `completion_only`, `add_bos`, as"):
        job = ExLlamaV2DynamicJob(
            tokenizer.encode("the cat"), 4, gen_settings=GREEDY, completion_only=True, add_bos=False
        )
    generator.enqueue(job)
    while generator.num_remaining_jobs():
        generator.iterate()
    with pytest.warns(UserWarning, match=r"ExLlamaV2DynamicGenerator.generate ignores `top_p`, as"):
        text = generator.generate("the cat", 4, gen_settings=GREEDY, completion_only=True, top_p=0.5)
    assert text == job.full_completion
    streaming = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
    with pytest.warns(UserWarning, match="begin_stream_ex ignores `return_offsets`"):
        streaming.begin_stream_ex(tokenizer.encode("the cat"), GREEDY, return_offsets=True)
    with pytest.warns(UserWarning, match="stream_ex ignores `max_tokens`"):
        assert text.startswith(streaming.stream_ex(max_tokens=3)["chunk"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ExLlamaV2DynamicJob(tokenizer.encode("the cat"), 4, gen_settings=GREEDY)
    with pytest.raises(TypeError, match="max_new_tokens"):
        ExLlamaV2DynamicJob(tokenizer.encode("the cat"))


def test_the_jobs_that_a_server_waits_for(model, cache, tokenizer):
    async def served():
        generator = ExLlamaV2DynamicGeneratorAsync(model=model, cache=cache, tokenizer=tokenizer)
        ids = tokenizer.encode("the cat")
        jobs = [ExLlamaV2DynamicJobAsync(generator, ids, max_new_tokens=200) for _ in range(2)]
        assert dict(generator.jobs) == {job.job: job for job in jobs}
        await jobs[0].cancel()
        left = list(generator.jobs.values())
        while generator.jobs:  # nobody takes the results of the other
            await asyncio.sleep(0.01)
        found = [result async for result in jobs[1]]
        await generator.close()
        return left == [jobs[1]], found[-1]["new_tokens"]

    assert asyncio.run(asyncio.wait_for(served(), 60)) == (True, 200)


def test_a_progress_bar_over_the_modules(tiny_file):
    model = ExLlamaV2(ExLlamaV2Config(str(tiny_file)))
    assert len(model.modules) == 2 * model.config.num_hidden_layers + 3
    for use in (lambda: model.modules[0], lambda: list(model.modules)):
        with pytest.raises(NotSupportedYet, match=r"ExLlamaV2.modules\[0\] is not supported here: "):
            use()


def test_a_cache_made_before_the_model_is_loaded(tiny_file, tokenizer):
    config = ExLlamaV2Config(str(tiny_file))
    config.max_attention_len = 256**2
    model = ExLlamaV2(config)
    cache = ExLlamaV2Cache_Q8(model, max_seq_len=256)
    model.load_autosplit(cache, reserve_vram=[1.5 * 2**20])
    assert ExLlamaV2DynamicGenerator(model, cache, tokenizer).generate("the", 3, gen_settings=GREEDY)
    cache.close()
    model.unload()


def test_rows_with_caches_of_their_own(model, tokenizer):
    texts = [tokenizer.encode(text) for text in ("the cat", "a dog", "on the mat the cat")]
    caches = [ExLlamaV2Cache(model, max_seq_len=length) for length in (64, 80, 96)]
    alone = [model.forward(ids)[:, -1:] for ids in texts]
    for ids, cache in zip(texts, caches, strict=True):
        model.forward(ids[:, :-1], cache, preprocess_only=True)
    last = torch.cat([ids[:, -1:] for ids in texts])
    stopped = threading.Event()
    stopped.set()
    assert model.forward(last, caches, abort_event=stopped) is None
    assert [cache.current_seq_len for cache in caches] == [ids.shape[1] - 1 for ids in texts]
    found = model.forward(last, caches, input_mask=None)
    assert torch.allclose(found, torch.cat(alone), atol=1e-4)
    assert [cache.current_seq_len for cache in caches] == [ids.shape[1] for ids in texts]
    for wrong in (caches[:2], [caches[0]] * 3):
        with pytest.raises(ValueError, match=r"3 rows, but \d caches of their own"):
            model.forward(last, wrong)
    with pytest.raises(NotSupportedYet, match="input_mask"):
        model.forward(last, caches, input_mask=torch.ones_like(last))
    for cache in caches:
        cache.close()


def test_guidance_by_hand_over_several_segments(model, tokenizer):
    """YuE writes a song in segments; the second row sees the last token of a prompt and the reply."""
    cache, alone = ExLlamaV2Cache(model, batch_size=2, max_seq_len=128), ExLlamaV2Cache(model, max_seq_len=64)
    written = torch.empty((1, 0), dtype=torch.long)
    for text in ("the cat sat", "on the mat", "a dog"):
        given = tokenizer.encode(text)
        written = torch.cat((written, given), dim=1)
        mask, hidden = torch.zeros((2, 128), dtype=torch.half), written.shape[1] - 1
        mask[1, :hidden] = -65504.0
        offsets = torch.tensor([[0], [-hidden]], dtype=torch.int)
        alone.current_seq_len = 0
        for _ in range(4):
            logits = model.forward(
                given.expand(2, -1), cache, input_mask=mask[:, : written.shape[1]],
                position_offsets=offsets, last_id_only=True,
            )  # fmt: skip
            assert torch.allclose(logits[0], model.forward(written)[0, -1:], atol=1e-4)
            assert torch.allclose(logits[1], model.forward(written[:, -1:], alone)[0], atol=1e-4)
            given = logits[1].argmax(dim=-1)[None]
            written = torch.cat((written, given), dim=1)
        model.forward(given.expand(2, -1), cache)
        assert cache.current_seq_len == written.shape[1]
    mask[1, hidden:] = -65504.0
    with pytest.raises(ValueError, match="hide all columns that a row has in the cache"):
        model.forward(given.expand(2, -1), cache, input_mask=mask[:, : hidden + 2])
    cache.close()
    alone.close()


def test_replaced_methods_are_refused(model, cache, tokenizer):
    """A method put over one that the engine lacks would never be called."""
    generator = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
    with pytest.raises(NotSupportedYet, match="_gen_single_token"):
        generator._gen_single_token = lambda *_: None


def test_one_id_is_decoded(tokenizer):
    ids = tokenizer.encode("cat")
    assert tokenizer.decode(ids[0][0]) == tokenizer.decode(ids[0, :1]) == tokenizer.decode(int(ids[0, 0]))
    assert tokenizer.decode(tokenizer.eos_token_id, decode_special_tokens=True) == tokenizer.eos_token


def test_what_the_tokenizer_s_file_says(tokenizer, tmp_path):
    """A ComfyUI node takes the chat template from there."""
    ends = {"bos_token": tokenizer.bos_token, "eos_token": tokenizer.eos_token}
    assert tokenizer.tokenizer_config_dict == ends | {"chat_template": CHAT_TEMPLATE}
    folder = write_folder(tmp_path)
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 77, "eos_token": "E"}))
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    config = exllamav2.ExLlamaV2Tokenizer(ExLlamaV2Config(str(folder))).tokenizer_config_dict
    assert (config["model_max_length"], config["chat_template"]) == (77, "{{ messages }}")
    assert config["eos_token"] == "E"


def test_the_progress_of_tasks(capsys):
    with exllamav2.util.get_basic_progress() as progress:
        first = progress.add_task("[red]Creating jobs", total=3, name="Creating jobs")
        second = progress.add_task("Waiting", total=None)
        progress.update(first, advance=1)
        progress.advance(first)
        progress.update(second, completed=7, description="Reading")
        progress.update(second, total=9)
    lines = capsys.readouterr().err.strip("\n").split("\r")[1:]
    assert lines == [
        "Creating jobs: 0 / 3", "Waiting: 0", "Creating jobs: 1 / 3", "Creating jobs: 2 / 3", "Reading: 7",
        "Reading: 7 / 9",
    ]  # fmt: skip
