"""The dynamic generator under ExLlamaV2's names."""

from __future__ import annotations

import asyncio
import threading

import pytest
import torch

from engine.compat.exllamav2 import ExLlamaV2Cache, ExLlamaV2Lora
from engine.compat.exllamav2.generator import (
    ExLlamaV2BaseGenerator,
    ExLlamaV2DynamicGenerator,
    ExLlamaV2DynamicGeneratorAsync,
    ExLlamaV2DynamicJob,
    ExLlamaV2DynamicJobAsync,
    ExLlamaV2Filter,
    ExLlamaV2Sampler,
    ExLlamaV2SelectFilter,
)
from engine.errors import BadSetting, NotSupportedYet
from tests.engine.models.lora.test_lora import write_adapter

GREEDY = ExLlamaV2Sampler.Settings.greedy()
PROMPTS = ["the quick brown fox", "the dog", "hello there, how are", "the fire is"]


@pytest.fixture(scope="module")
def cache(model):
    cache = ExLlamaV2Cache(model, max_seq_len=4096)
    yield cache
    table = cache.paged.table
    assert table.free + table.idle == table.page_count
    table.check()
    cache.close()


@pytest.fixture
def generator(model, cache, tokenizer):
    generator = ExLlamaV2DynamicGenerator(model, cache, tokenizer)
    yield generator
    generator.close()


@pytest.fixture(scope="module")
def alone(model, cache, tokenizer):
    """The greedy replies, one after another."""
    generator = ExLlamaV2BaseGenerator(model, cache, tokenizer)
    found = [generator.generate_simple(text, GREEDY, 12, stop_token=None) for text in PROMPTS]
    generator.close()
    return found


def finished(generator):
    """All results by job, until none remain."""
    found = {}
    while generator.num_remaining_jobs():
        for result in generator.iterate():
            found.setdefault(result["job"], []).append(result)
    return found


def test_replies_together_are_those_alone(generator, alone):
    assert generator.generate(PROMPTS, 12, gen_settings=GREEDY) == alone
    assert generator.generate(PROMPTS[0], 12, gen_settings=GREEDY) == alone[0]
    texts, last = generator.generate(
        PROMPTS, 12, gen_settings=[GREEDY] * 4, completion_only=True, return_last_results=True
    )
    assert [prompt + text for prompt, text in zip(PROMPTS, texts, strict=True)] == alone
    assert [result["eos_reason"] for result in last] == ["max_new_tokens"] * 4
    assert [result["new_tokens"] for result in last] == [12] * 4


def test_what_iterate_returns(generator, tokenizer):
    ids = tokenizer.encode(PROMPTS[0])
    job = ExLlamaV2DynamicJob(
        input_ids=ids, max_new_tokens=10, gen_settings=GREEDY, identifier="mine", return_probs=True,
        return_top_tokens=2, return_logits=True,
    )  # fmt: skip
    other = ExLlamaV2DynamicJob(tokenizer.encode(PROMPTS[1]), 5, gen_settings=GREEDY, seed=3)
    assert generator.enqueue([job, other]) == [job.serial_number, other.serial_number]
    assert generator.pending_jobs == [job, other]
    found = finished(generator)
    assert generator.active_jobs == []
    results = found[job]
    assert [result["stage"] for result in results[:2]] == ["started", "prefill"]
    assert all(result["identifier"] == "mine" for result in results)
    assert all("identifier" not in result for result in found[other])
    assert {result["serial"] for result in results} == {job.serial_number}
    assert [result["eos"] for result in results] == [False] * (len(results) - 1) + [True]
    read = [result for result in results if result["stage"] == "prefill"][-1]
    assert read["curr_progress"] <= read["max_progress"]
    streamed = [result for result in results if "token_ids" in result]
    tokens = torch.cat([result["token_ids"] for result in streamed], dim=-1)
    assert tokens.shape == (1, 10)
    for name, shape in (("token_probs", ()), ("top_k_tokens", (2,)), ("top_k_probs", (2,))):
        assert torch.cat([result[name] for result in streamed], dim=1).shape == (1, 10, *shape)
    logits = torch.cat([result["logits"] for result in streamed], dim=1)
    assert logits.shape == (1, 10, generator.model.config.vocab_size)
    assert (logits.argmax(dim=-1) == tokens).all()
    end = results[-1]
    assert end["full_completion"] == "".join(result.get("text", "") for result in results)
    assert (end["eos_reason"], end["new_tokens"], end["prompt_tokens"]) == (
        "max_new_tokens",
        10,
        ids.shape[1],
    )
    assert min(end[name] for name in ("time_enqueued", "time_prefill", "time_generate")) >= 0
    assert (end["cached_pages"], end["cached_tokens"] < ids.shape[1]) == (0, True)
    assert "accepted_draft_tokens" not in end
    assert job.sequences[0].input_ids.torch().tolist() == ids.tolist()
    assert job.sequences[0].sequence_ids.torch().tolist() == torch.cat([ids, tokens], dim=1).tolist()


def test_what_ends_a_job(generator, tokenizer, alone):
    text = alone[0][len(PROMPTS[0]) :]
    ids = tokenizer.encode(PROMPTS[0])
    first = generator.generate(PROMPTS[0], 1, gen_settings=GREEDY, return_last_results=True)[1]
    token = int(first["token_ids"][0, -1])
    stops = {
        "stop_string": [text[4:7]],
        "stop_token": [token, None],
        "max_new_tokens": None,
        "end_filter": [],
    }
    for reason, conditions in stops.items():
        own = None
        if reason == "end_filter":
            own = [ExLlamaV2SelectFilter(generator.model, tokenizer, ["yes", "no"])]
        job = ExLlamaV2DynamicJob(ids, 12, gen_settings=GREEDY, stop_conditions=conditions, filters=own)
        generator.enqueue(job)
        end = finished(generator)[job][-1]
        assert end["eos_reason"] == reason
        if reason == "stop_string":
            assert (end["eos_triggering_string"], end["full_completion"]) == (text[4:7], text[:4])
            assert end["held"] == {"text": text[4:7]}
        elif reason == "stop_token":
            assert end["eos_triggering_token_id"] == token
            assert end["full_completion"] == ""
            assert end["held"] == {"text": tokenizer.decode([token]), "token_ids": torch.tensor([[token]])}
        else:
            assert "held" not in end
        if reason == "end_filter":
            assert end["full_completion"] in ("yes", "no")
    waiting = generator.generate(
        PROMPTS[0], 6, min_new_tokens=4, gen_settings=GREEDY, stop_conditions=[token], completion_only=True,
        return_last_results=True,
    )[1]  # fmt: skip
    assert waiting["new_tokens"] >= 4


def test_banned_strings_and_healing(generator, tokenizer, alone):
    text = alone[0][len(PROMPTS[0]) :]
    job = ExLlamaV2DynamicJob(
        tokenizer.encode(PROMPTS[0]),
        12,
        gen_settings=GREEDY,
        banned_strings=[(text[2:6].strip() or text[2:8]).upper()],
    )
    generator.enqueue(job)
    results = finished(generator)[job]
    taken = [result for result in results if "suppressed_text" in result]
    assert taken
    assert taken[0]["suppressed_tokens"].shape[0] == 1
    assert results[-1]["full_completion"] != text
    healed = generator.generate("the quick bro", 8, gen_settings=GREEDY, token_healing=True)
    assert healed.startswith("the quick bro")


def test_guidance(generator, alone):
    settings = [ExLlamaV2Sampler.Settings.greedy(cfg_scale=scale) for scale in (1.0, 0.0, 0.5)]
    pair = (PROMPTS[0], PROMPTS[1])
    found = generator.generate([pair] * 3, 12, gen_settings=settings, completion_only=True)
    assert [PROMPTS[0] + found[0], PROMPTS[1] + found[1]] == alone[:2]
    with pytest.raises(ValueError, match="needs two prompts"):
        generator.generate(pair, 4, gen_settings=GREEDY)


def test_drafting(model, cache, tokenizer, alone):
    draft_cache = ExLlamaV2Cache(model)
    for more in (
        {"use_ngram_draft": True, "max_ngram": 3},
        {"draft_model": model, "draft_cache": draft_cache},
    ):
        generator = ExLlamaV2DynamicGenerator(model, cache, tokenizer, **more)
        generator.engine_generator.drafters.threshold = 0.0
        texts, last = generator.generate(PROMPTS, 12, gen_settings=GREEDY, return_last_results=True)
        assert texts == alone
        assert all(
            result["new_tokens"] == 12
            and result["rejected_draft_tokens"] >= 0 <= result["accepted_draft_tokens"]
            for result in last
        )
        generator.close()
    plain = ExLlamaV2DynamicGenerator(model, cache, tokenizer, use_ngram_draft=True, max_q_size=1)
    assert "accepted_draft_tokens" not in plain.generate("a", 2, return_last_results=True)[1]
    plain.close()
    draft_cache.close()


def test_seeds(generator):
    settings = ExLlamaV2Sampler.Settings(temperature=1.5, top_k=0, top_p=0.0)
    both = generator.generate(["the cat"] * 2, 12, seed=7, gen_settings=settings)
    assert both[0] != both[1]
    assert both[1] == generator.generate("the cat", 12, seed=8, gen_settings=settings)


def test_cancelling_and_aborting(generator, tokenizer):
    jobs = [ExLlamaV2DynamicJob(tokenizer.encode(text), 400) for text in PROMPTS]
    generator.enqueue(jobs)
    for _ in range(12):
        generator.iterate()
    generator.cancel(jobs[0])
    assert generator.num_remaining_jobs() == 3
    generator.clear_queue()
    assert (generator.num_remaining_jobs(), generator.iterate()) == (0, [])
    abort = threading.Event()
    abort.set()
    assert generator.generate(PROMPTS, 400, abort_event=abort) is None
    assert generator.num_remaining_jobs() == 0


def test_a_job_that_fails_is_raised_and_the_others_go_on(generator, tokenizer):
    class Failing(ExLlamaV2Filter):
        def begin(self, prefix_str):
            raise KeyError("broken filter")

    bad = ExLlamaV2DynamicJob(tokenizer.encode("a"), 5, filters=[Failing(generator.model, tokenizer)])
    good = ExLlamaV2DynamicJob(tokenizer.encode("the cat"), 5, gen_settings=GREEDY)
    generator.enqueue([bad, good])
    found, raised = {}, []
    while generator.num_remaining_jobs():
        try:
            for result in generator.iterate():
                found.setdefault(result["job"], []).append(result)
        except KeyError as error:
            raised.append(str(error))
    assert raised == ["'broken filter'"]
    assert found[good][-1]["new_tokens"] == 5


def test_adapters_for_all_jobs(model, tokenizer, alone, tmp_path):
    cache = ExLlamaV2Cache(model)
    generator = ExLlamaV2DynamicGenerator(model, cache, tokenizer)
    lora = ExLlamaV2Lora.from_directory(model, write_adapter(tmp_path / "a"), 2.0)
    generator.set_loras(lora)
    changed = generator.generate(PROMPTS, 12, gen_settings=GREEDY)
    generator.set_loras(None)
    assert changed != alone
    assert generator.generate(PROMPTS, 12, gen_settings=GREEDY) == alone
    generator.close()
    cache.close()


def test_sizes(model, cache, tokenizer, capsys):
    generator = ExLlamaV2DynamicGenerator(
        model, cache, tokenizer, max_batch_size=2, max_seq_len=40, max_chunk_size=16, paged=False
    )
    generator.warmup()
    ids = tokenizer.encode("the cat")
    jobs = [ExLlamaV2DynamicJob(ids, 500, gen_settings=GREEDY) for _ in range(2)]
    generator.enqueue(jobs)
    most = 0
    while generator.num_remaining_jobs():
        results = generator.iterate()
        if not most:
            generator.print_page_list()
        most = max(most, len(generator.active_jobs))
        for result in results:
            if result["eos"]:
                assert result["new_tokens"] + ids.shape[1] == 40
    assert most == 1
    with pytest.raises(BadSetting, match="max_seq_len is 40"):
        generator.enqueue(ExLlamaV2DynamicJob(torch.full((1, 40), 50), 5))
    generator.print_page_list()
    during, after = capsys.readouterr().out.splitlines()
    assert during.endswith(" 1 in use")
    assert after.endswith(" 0 in use")
    generator.reset_page_table()
    generator.defrag_cache()
    assert generator.generate("the cat", 2, return_last_results=True)[1]["cached_tokens"] == 0
    with pytest.raises(NotSupportedYet, match="`embeddings`"):
        generator.generate("a", 2, embeddings=[object()])
    with pytest.raises(BadSetting, match="one of each"):
        generator.generate(["a", "b"], 2, filters=[None])
    with pytest.raises(NotSupportedYet, match="all_pages"):
        _ = generator.all_pages
    generator.close()


def test_async(model, cache, tokenizer, alone):
    async def run():
        generator = ExLlamaV2DynamicGeneratorAsync(model=model, cache=cache, tokenizer=tokenizer)

        async def one(text, cancel):
            job = ExLlamaV2DynamicJobAsync(
                generator, input_ids=tokenizer.encode(text), max_new_tokens=12, gen_settings=GREEDY
            )
            found = text
            async for result in job:
                found += result.get("text", "")
                if cancel and "text" in result:
                    await job.cancel()
                    break
            return found

        found = await asyncio.gather(*(one(text, text == PROMPTS[1]) for text in PROMPTS))
        with pytest.raises(BadSetting, match="tokens, but max_seq_len"):
            ExLlamaV2DynamicJobAsync(generator, torch.full((1, 2000), 50), 4)
        await generator.close()
        return found

    found = asyncio.run(run())
    assert [found[0], *found[2:]] == [alone[0], *alone[2:]]
    assert alone[1].startswith(found[1])
    assert found[1] != alone[1]
