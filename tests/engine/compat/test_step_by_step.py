"""The step-by-step face over a fake model that says something else after any mistake in the cache."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from engine.compat.exllamav2.step_by_step import StepByStep, prompt_rows
from engine.settings import ConstraintSettings, OutputSettings, SamplerSettings
from tests.engine.generator.fakes import (
    Scripted,
    all_steps,
    begin,
    fresh_reply,
    make,
    random_logits,
    stepping,
    tokenizer,
)
from tests.engine.generator.test_bans import Insisting

GREEDY = SamplerSettings(temperature=0.0)
PROMPT = [int(i) for i in np.random.default_rng(1).integers(10, 700, 600)]


@pytest.mark.parametrize("form", [list, np.array, lambda ids: np.array([ids])])
def test_begin_and_step(form):
    ids, guidance = prompt_rows(form(PROMPT), None, None, None)
    assert guidance is None
    steps = stepping(make()[0], ids, GREEDY, max_new_tokens=15, seed=3)
    results = all_steps(steps)
    reply = fresh_reply(PROMPT, 15)
    assert np.concatenate([r["chunk_token_ids"] for r in results], axis=1).tolist() == [reply]
    assert "".join(r["chunk"] for r in results) == tokenizer().decode(reply)
    assert set(results[0]) == {"chunk", "eos", "chunk_token_ids"}
    last = results[-1]
    assert (last["reason"], last["trigger"], last["stats"].seed, last["stats"].new_tokens) == (
        "max_tokens",
        "",
        3,
        15,
    )
    after = steps.step()
    assert (after["chunk"], after["eos"], after["reason"], after["chunk_token_ids"].shape) == (
        "",
        True,
        "max_tokens",
        (1, 0),
    )


KINDS = {
    "chunk_token_ids": "int64",
    "probs": "float32",
    "top_tokens": "int64",
    "top_probs": "float32",
    "logits": "float32",
}


def test_probabilities_top_tokens_and_logits():
    torch = pytest.importorskip("torch")
    sampler = SamplerSettings(temperature=0.8, top_k=0, top_p=1.0, min_p=0.0)
    ids, _ = prompt_rows(torch.tensor([PROMPT]), None, None, None)
    steps = stepping(
        make()[0], ids, sampler, probabilities=True, top_tokens=4, logits=True, max_new_tokens=25, seed=1
    )
    sequence = list(PROMPT)
    for result in all_steps(steps):
        n = result["chunk_token_ids"].shape[1]
        assert result["probs"].shape == (1, n)
        assert result["top_tokens"].shape == result["top_probs"].shape == (1, n, 4)
        assert result["logits"].shape == (1, n, tokenizer().vocab_size)
        kinds = {name: array.dtype.name for name, array in result.items() if isinstance(array, np.ndarray)}
        assert kinds == KINDS
        for i in range(n):
            logits = torch.from_numpy(random_logits(sequence))
            expected = torch.softmax(logits / 0.8, dim=0)
            token = int(result["chunk_token_ids"][0, i])
            assert np.array_equal(result["logits"][0, i], logits.numpy())
            assert result["probs"][0, i] == pytest.approx(float(expected[token]), rel=1e-4)
            best = torch.topk(expected, 4)
            assert result["top_tokens"][0, i].tolist() == best.indices.tolist()
            assert result["top_probs"][0, i] == pytest.approx(best.values.numpy(), rel=1e-4)
            sequence.append(token)
    assert len(sequence) == 625
    last = steps.step()
    assert {name: array.dtype.name for name, array in last.items() if isinstance(array, np.ndarray)} == KINDS


def test_fewer_candidates_than_top_tokens():
    sampler = SamplerSettings(top_k=2, top_p=1.0, min_p=0.0)
    (result,) = all_steps(stepping(make()[0], PROMPT, sampler, top_tokens=5, max_new_tokens=1))
    assert np.count_nonzero(result["top_probs"]) == 2
    assert result["top_probs"].sum() == pytest.approx(1.0)


def test_ban_tokens_counts_for_one_step():
    generator, _ = make()
    best = int(random_logits(PROMPT).argmax())
    steps = stepping(generator, PROMPT, GREEDY, max_new_tokens=2)
    steps.step([best])
    steps.step()
    written = generator.cache.table.open(PROMPT + [best]).length
    assert written == 600, "the banned token was not written"
    begin(steps, PROMPT, GREEDY, max_new_tokens=1)
    assert all_steps(steps)[0]["chunk_token_ids"].tolist() == [[best]]


def test_stop_conditions_are_replaced():
    ids = tokenizer().encode("one two STOP three")
    eos = tokenizer().eos_token_id
    script = Scripted(1, [*ids, eos, *ids])
    steps = StepByStep(make(script)[0])

    def run():
        begin(steps, [9], GREEDY)
        results = all_steps(steps)
        return "".join(r["chunk"] for r in results), results[-1]["reason"], results[-1]["trigger"]

    assert run() == ("one two STOP three", "stop_token", "<|im_end|>")
    steps.set_stop_conditions(["STOP", eos])
    assert run() == ("one two ", "stop_string", "STOP")
    steps.set_stop_conditions([ids[-1]])
    text, reason, trigger = run()
    assert (reason, trigger) == ("stop_token", tokenizer().decode(ids[-1:]))
    assert text == tokenizer().decode(ids[:-1])
    for wrong in ([1.5], [None], [""], [True], ["ok", b"x"]):
        with pytest.raises(ValueError, match="stop condition"):
            steps.set_stop_conditions(wrong)


def test_special_tokens_as_text():
    start = tokenizer().encode("<|im_start|>", special=True)[0]
    steps = StepByStep(make(Scripted(1, [60, start, 61, tokenizer().eos_token_id]))[0])
    texts = []
    for special in (False, True):
        begin(steps, [9], GREEDY, output=OutputSettings(alternatives=0, show_special=special))
        texts.append("".join(r["chunk"] for r in all_steps(steps)))
    assert texts[1] == tokenizer().piece(60) + "<|im_start|>" + tokenizer().piece(61)
    assert texts[0] == texts[1].replace("<|im_start|>", "")


def test_abort_event():
    generator, model = make(rows=128)
    abort = threading.Event()
    model.program.before_run = abort.set
    steps = stepping(generator, PROMPT, GREEDY, stop=abort)
    result = steps.step()
    assert (result["eos"], result["reason"], result["chunk"], model.program.ran) == (
        True,
        "cancelled",
        "",
        [128],
    )
    abort.clear()
    model.program.before_run = lambda: None
    begin(steps, PROMPT, GREEDY, stop=abort)
    assert model.program.ran == [128, 128, 128, 128, 87, 1]
    steps.step()
    abort.set()
    assert steps.step()["reason"] == "cancelled"


def test_what_cannot_begin():
    steps = StepByStep(make()[0])
    with pytest.raises(RuntimeError, match="begin_stream_ex"):
        steps.step()
    with pytest.raises(ValueError, match="input_ids"):
        prompt_rows(np.zeros((2, 3), np.int64), None, None, None)
    with pytest.raises(ValueError, match="input_ids"):
        prompt_rows([1.5], None, None, None)


def test_what_fails_closes_the_sequence():
    """An error in the middle is raised once, returns the pages, and does not affect the next sequence."""
    generator, model = make(rows=128)

    def fail():
        raise MemoryError

    model.program.before_run = fail
    steps = StepByStep(generator)
    with pytest.raises(MemoryError):
        begin(steps, PROMPT, GREEDY)
    table = generator.cache.table
    assert table.free + table.idle == table.page_count
    with pytest.raises(RuntimeError, match="no sequence is open"):
        steps.step()
    model.program.before_run = lambda: None
    begin(steps, PROMPT, GREEDY, max_new_tokens=9)
    steps.step()
    model.program.before_run = fail
    with pytest.raises(MemoryError):
        steps.step()
    assert table.free + table.idle == table.page_count
    with pytest.raises(RuntimeError, match="no sequence is open"):
        steps.step()
    model.program.before_run = lambda: None
    begin(steps, PROMPT, GREEDY, max_new_tokens=9)
    ids = [token for result in all_steps(steps) for token in result["chunk_token_ids"][0].tolist()]
    assert ids == fresh_reply(PROMPT, 9)
    assert steps.draft_stats()[2] == 10


def test_what_was_suppressed():
    banned = ConstraintSettings(banned_strings=("lazy dog",))
    results = all_steps(
        stepping(make(Insisting("one two lazy dog"))[0], [9], GREEDY, constraint=banned, max_new_tokens=9)
    )
    assert [r["suppressed"] for r in results if "suppressed" in r] == [" lazy dog"]
    assert "lazy dog" not in "".join(r["chunk"] for r in results)


def test_the_healed_id_is_reported():
    cut = tokenizer().encode("the quick bro")
    results = all_steps(stepping(make()[0], cut, GREEDY, heal=True, max_new_tokens=4))
    ids = [i for result in results for i in result["chunk_token_ids"][0].tolist()]
    assert [r["healed_token_id"] for r in results if "healed_token_id" in r] == ids[:1]
    assert len(ids) == 4


def test_a_step_after_the_end_does_not_report_the_healed_id_again():
    steps = stepping(make()[0], tokenizer().encode("the quick bro"), GREEDY, heal=True, max_new_tokens=1)
    (last,) = all_steps(steps)
    assert "healed_token_id" in last
    assert "healed_token_id" not in steps.step()
