"""What this engine does not have is refused by name, in one sentence; everything else can be set."""

from __future__ import annotations

import argparse
import importlib
import re
from pathlib import Path

import pytest
import torch

import engine.compat.exllamav2 as exllamav2
import engine.compat.exllamav2.generator as generators
from engine.compat.exllamav2 import ExLlamaV2Cache, ExLlamaV2Config, Timer, model_init
from engine.compat.exllamav2.generator import ExLlamaV2Sampler, ExLlamaV2StreamingGenerator
from engine.compat.exllamav2.server import ExLlamaV2WebSocketServer
from engine.errors import EngineError, NotSupportedYet

Settings = ExLlamaV2Sampler.Settings


@pytest.fixture
def generator(model, tokenizer):
    cache = ExLlamaV2Cache(model)
    yield ExLlamaV2StreamingGenerator(model, cache, tokenizer)
    cache.close()


def refused(thing, name, value=None):
    """The sentence that refuses an attribute, when it is read and when it is set."""
    with pytest.raises(NotSupportedYet) as setting:
        setattr(thing, name, value)
    assert name in str(setting.value)
    assert isinstance(setting.value, EngineError)
    return str(setting.value)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("vision_head_dim", "the vision tower reads it"),
        ("scale_long_factor", "scale_pos_emb"),
        ("tensor_file_map", "without it"),
        ("max_seq_length", "no such attribute"),
    ],
)
def test_attributes_of_a_configuration(tiny_file, name, why):
    config = ExLlamaV2Config(tiny_file)
    assert why in refused(config, name, 7)
    assert not hasattr(config, name)
    with pytest.raises(NotSupportedYet, match=why):
        getattr(config, name)


def test_what_files_say_is_read_only(tiny_file):
    config = ExLlamaV2Config(tiny_file)
    assert (config.hidden_size, config.num_attention_heads, config.num_key_value_heads) == (96, 6, 2)
    assert (config.head_dim, config.num_hidden_layers, config.vocab_size) == (32, 2, 307)
    assert (config.rotary_embedding_base, config.num_experts, config.use_qk_norm) == (10000.0, None, False)
    assert "cannot be set" in refused(config, "hidden_size", 5)
    assert config.hidden_size == 96


def test_what_can_be_set_on_a_configuration(tiny_file):
    config = ExLlamaV2Config(tiny_file)
    for name in ("no_flash_attn", "no_xformers", "no_sdpa", "no_graphs", "fasttensors", "load_in_q4"):
        setattr(config, name, True)
    config.max_batch_size, config.max_dq_size, config.max_attention_size = 16, 1, 1024**2
    config.set_low_mem()
    assert config.max_input_len == 1024


@pytest.mark.slow
def test_attributes_of_generators(generator):
    assert generator.stop_tokens == {generator.tokenizer.eos_token_id}
    generator.set_stop_conditions([5, "stop"])
    assert (generator.stop_tokens, generator.stop_strings) == ({5}, {"stop"})
    assert "cannot" in refused(generator, "stop_tokens", {1}) or "not set" in refused(
        generator, "stop_tokens"
    )
    assert "inner state" in refused(generator, "held_text", "")
    assert "complete" in refused(generator, "max_fallback_tokens", 2)
    assert "begin_stream_ex" in refused(generator, "return_probabilities", True)
    assert "no such attribute" in refused(generator, "speculative_n_gram", True)
    assert (generator.total_tokens, generator.total_draft_tokens, generator.accepted_draft_tokens) == (
        0,
        0,
        0,
    )
    generator.speculative_ngram, generator.speculative_ngram_threshold = True, 3
    with pytest.raises(NotSupportedYet, match="`speculative_ngram_threshold`"):
        generator.begin_stream_ex(torch.tensor([[40]]), Settings())


@pytest.mark.parametrize(
    ("kind", "name", "meant"),
    [
        (Settings, "temprature", "temperature"),
        (Settings, "top_kk", "top_k"),
        (ExLlamaV2Config, "max_seq_length", "max_seq_len"),
    ],
)
def test_the_attribute_that_was_meant_is_named(kind, name, meant):
    thing = kind()
    with pytest.raises(NotSupportedYet, match=rf"no such attribute is known\. Did you mean {meant}\?$"):
        setattr(thing, name, 7)
    assert name not in vars(thing)


@pytest.mark.parametrize(
    ("kind", "name"),
    [(Settings, "logits_processor"), (Settings, "eos_token_id"), (ExLlamaV2Config, "gpu_peer_fix")],
)
def test_a_script_s_own_attribute_is_set_with_a_warning(kind, name):
    """Scripts set what other versions had, or keep what is theirs there."""
    thing = kind()
    with pytest.raises(NotSupportedYet, match=f"{name} is not supported here: no such attribute is known"):
        getattr(thing, name)
    sentence = f"{kind.__name__} has no {name}; setting it has no effect."
    with pytest.warns(UserWarning, match=f"^{re.escape(sentence)}$") as told:
        setattr(thing, name, 7)
    assert told[0].filename == __file__
    setattr(thing, name, 8)  # once is enough: warnings are errors in tests
    assert getattr(thing, name) == 8


def test_settings_are_copied_with_all_their_attributes(generator):
    """As a script for serverless workers does, methods included; replacing a method is refused."""
    given, copy = Settings(temperature=0.5), Settings()
    for name in dir(given):
        if not name.startswith("__"):
            setattr(copy, name, getattr(given, name))
    assert copy == given
    for thing, name in ((copy, "allow_tokens"), (generator, "stream")):
        with pytest.raises(NotSupportedYet, match=f"{name} is a method here and cannot be replaced"):
            setattr(thing, name, print)


def test_a_script_s_own_subclass_may_add_attributes(generator):
    class Own(ExLlamaV2StreamingGenerator):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.turns = 0

    own = Own(generator.model, generator.cache, generator.tokenizer)
    own.turns += 1
    assert own.turns == 1
    assert "inner state" in refused(own, "held_text", "")


def test_settings():
    settings = Settings()
    assert "no such attribute" in refused(settings, "temprature", 1.0)
    assert "kept with the sequence" in refused(settings, "ngram_trie")
    with pytest.raises(TypeError, match="temprature"):
        Settings(temprature=1.0)
    with pytest.raises(NotSupportedYet, match="`mirostat_mu`"):
        Settings(mirostat_mu=[3.0]).frozen()
    with pytest.raises(NotSupportedYet, match="`dry_max_ngram`"):
        Settings(dry_multiplier=0.8, dry_max_ngram=10).frozen()


@pytest.mark.parametrize(
    "values",
    [
        {"temperature": 50.0}, {"top_p": 7.0}, {"min_p": 1.5}, {"tfs": 3.0}, {"typical": 2.0},
        {"top_k": -1}, {"top_a": 4.0}, {"xtc_probability": 0.5, "xtc_threshold": 0.9},
        {"xtc_probability": 3.0}, {"skew": 20.0}, {"smoothing_factor": 40.0},
        {"token_repetition_penalty": 30.0}, {"token_presence_penalty": 40.0},
        {"token_frequency_penalty": -40.0}, {"dry_multiplier": 400.0, "dry_base": 30.0},
        {"mirostat": True, "mirostat_tau": 40.0, "mirostat_eta": 5.0},
        {"min_temp": 5.0, "max_temp": 40.0, "temp_exponent": 30.0}, {"temperature": -1.0},
        {"token_repetition_range": -5}, {"dry_multiplier": -1.0}, {"top_k": 10**7}, {"skew": -100.0},
        {"token_repetition_range": 10**7}, {"token_repetition_decay": -1}, {"min_temp": -1.0},
        {"max_temp": -1.0}, {"dry_multiplier": 1.0, "dry_range": -1},
        {"dry_multiplier": 1.0, "dry_range": 10**7},
    ],
)  # fmt: skip
def test_ranges_as_wide_as_the_original_s(generator, values):
    generator.begin_stream_ex(
        torch.tensor([[40, 41, 42, 40, 41]]), Settings(**values), seed=1, max_new_tokens=4
    )
    for _ in range(4):
        generator.stream_ex()
    generator.close()


@pytest.mark.parametrize("name", ["num_key_value_heads", "fixed_device"])
def test_what_a_cache_cannot_be_given(model, name):
    with pytest.raises(NotSupportedYet, match=name):
        ExLlamaV2Cache(model, **{name: 1})


ABSENT = [
    *((exllamav2, name) for name in ("ExLlamaV2MultimodalProjector", "SeqTensor", "Intervention")),
    (importlib.import_module(f"{exllamav2.__name__}.attn"), "ExLlamaV2Attention"),
    (importlib.import_module(f"{exllamav2.__name__}.util"), "get_all_gpu_memory"),
]  # fmt: skip


@pytest.mark.parametrize(("module", "name"), ABSENT)
def test_names_that_are_not_here_can_be_imported_but_not_used(module, name):
    """tabbyAPI imports those for pictures, and ExUI a layer, without using them for text."""
    absent = getattr(module, name)
    assert absent is getattr(module, name)
    assert not isinstance(3, absent)
    assert not hasattr(absent, "__wrapped__"), "what inspection asks of anything is answered"
    uses = (
        lambda: absent(),
        lambda: absent("a", b=1),
        lambda: absent.some_method,
        lambda: type("A", (absent,), {}),
    )
    for use in uses:
        with pytest.raises(NotSupportedYet, match=f"`{name}`.* is not supported here: ") as refusal:
            use()
        assert str(refusal.value).endswith(".")


def test_other_names():
    for module in (exllamav2, generators):
        with pytest.raises(AttributeError, match="no_such"):
            _ = module.no_such
    with pytest.raises(NotSupportedYet, match="inglenook-engine serve"):
        ExLlamaV2WebSocketServer("localhost", 7862, None, None, None)
    assert exllamav2.__version__ == "0.3.2"
    with Timer() as timer:
        pass
    assert timer.interval == timer.end_time - timer.start_time >= 0


def arguments(*given):
    parser = argparse.ArgumentParser()
    model_init.add_args(parser)
    return parser.parse_args([str(one) for one in given])


def test_options_of_the_command_line(tiny_file, capsys):
    args = arguments(
        "-m", tiny_file, "-l", 512, "-rs", 2.0, "-ra", 1.5, "-nfa", "-lm", "-chunk", 300, "-ng", "-fst", "-ic"
    )
    model_init.check_args(args)
    model_init.print_options(args)
    assert "rope_scale: 2.0" in capsys.readouterr().out
    model, tokenizer = model_init.init(args, quiet=True, skip_load=True, max_batch_size=4, max_output_len=8)
    config = model.config
    assert (config.max_seq_len, config.scale_pos_emb, config.scale_alpha_value) == (512, 2.0, 1.5)
    assert (config.max_input_len, config.max_batch_size, config.max_output_len) == (300, 4, 8)
    assert config.no_flash_attn
    assert not model.loaded
    assert tokenizer.get_vocab_size() == 307
    model, _ = model_init.init(arguments("-m", tiny_file, "-ry", 4.0, "-l", 4096), skip_load=True)
    assert model.context_length() == 4096


def test_options_put_together_by_hand(tiny_file):
    """Scripts for older versions lack those that came later."""
    model, _ = model_init.init(argparse.Namespace(model_dir=str(tiny_file), length=64), quiet=True)
    assert (model.loaded, model.config.max_seq_len, model.config.no_graphs) == (True, 64, False)
    model.unload()


def test_loading_from_the_command_line(tiny_file, capsys):
    model, _ = model_init.init(arguments("-m", tiny_file, "-gs", "auto"), allow_auto_split=True)
    assert not model.loaded
    with pytest.raises(ValueError, match="gpu_split is auto"):
        model_init.init(arguments("-m", tiny_file, "-gs", "auto"))
    for switch in ((), ("-tp",)):
        model, _ = model_init.init(arguments("-m", tiny_file, *switch), benchmark=True)
        assert model.loaded
        model.unload()
    assert "Loaded model in" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="No model was named"):
        model_init.check_args(arguments())
    with pytest.raises(SystemExit, match="does not exist"):
        model_init.check_args(arguments("-m", "/no/such/model"))


def test_the_table_of_scripts_is_that_of_the_tests():
    folder = Path(exllamav2.__file__).parent
    examples = Path(__file__).parent / "examples"
    counts = []
    for heading, file in (("current", "test_current.py"), ("deprecated", "test_deprecated.py")):
        table = (folder / "README.md").read_text().split(f"| {heading} script |")[1].split("\n\n")[0]
        rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", table, re.MULTILINE))
        tests = (examples / file).read_text()
        for script in rows:
            assert f"def test_{script}" in tests or f'"{script}"' in tests
        counts.append((sum(text.startswith("runs") for text in rows.values()), len(rows)))
    assert counts == [(16, 19), (9, 9)]
    readme = (folder.parents[2] / "README.md").read_text()
    assert "16 of the 19 current examples of ExLlamaV2 and all 9 deprecated ones run" in " ".join(
        readme.split()
    )


@pytest.mark.parametrize("kind", [exllamav2.ExLlamaV2Tokenizer, exllamav2.ExLlamaV2])
@pytest.mark.parametrize("path", ["/models/tiny", Path("/models/tiny")])
def test_a_folder_is_no_configuration(kind, path):
    with pytest.raises(TypeError, match=rf"{kind.__name__} takes a configuration, but got the path '.models"):
        kind(path)


@pytest.mark.parametrize("count", [[3, 4], "many", None, 2.5])
def test_a_number_of_tokens_is_one_whole_number(tokenizer, count):
    with pytest.raises(TypeError, match="a whole number was expected; it counts for all prompts"):
        generators.ExLlamaV2DynamicJob(tokenizer.encode("abc"), max_new_tokens=count)


@pytest.mark.parametrize("count", [3, 3.0, torch.tensor(3)])
def test_a_whole_number_may_be_of_any_type(tokenizer, count):
    assert generators.ExLlamaV2DynamicJob(tokenizer.encode("abc"), max_new_tokens=count).max_new_tokens == 3
