"""Every public name and argument of exllamav2 0.3.2 works, or is refused with the reason."""

from __future__ import annotations

import inspect

import pytest
import torch

from engine.compat.exllamav2 import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Lora, ExLlamaV2Tokenizer
from engine.compat.exllamav2.generator import (
    ExLlamaV2BaseGenerator,
    ExLlamaV2DynamicGenerator,
    ExLlamaV2DynamicJob,
    ExLlamaV2Sampler,
    ExLlamaV2StreamingGenerator,
)
from engine.errors import NotSupportedYet

Settings = ExLlamaV2Sampler.Settings
_WEIGHTS = "lora_config_path lora_path lora_r lora_alpha target_modules bias_ignored embed_tokens lm_head"
NAMES = {
    "model": "archparams cache_map create_device_context drop_device_context forward_chunk "
    "free_device_context get_cache_devices get_device_context get_modules head_layer_idx "
    "last_kv_layer_idx modules_dict set_cache_map set_device_map update_loras",
    "config": "arch attention_multiplier bos_token_id checkpoint_fused_mlp generation_config "
    "initializer_range mrope_section query_pre_attn_scalar rotary_embedding_base_alt scale_depth "
    "scale_long_factor sliding_window_pattern tensor_file_map vision_model_type",
    "cache": "all_tensors create_state_tensors get_kv_state has_scales head_dim key_states "
    "num_hidden_layers num_key_value_heads roll_left store_kv_state touch_device value_states wbits",
    "lora": f"config model tensors {_WEIGHTS}",
    "tokenizer": "Trie char_trie decode_ decode_unspecial encode_special_or_unspecial encode_unspecial "
    "get_id_to_ord_list id_to_ord prefix_id_to_ids unspecial_delimiters",
    "streaming": "active_loras ban_checkpoint future_logits held_text heal_next_token settings "
    "strings_to_utf32 tail_decode_tokens",
    "dynamic": "all_pages defrag_buffers draft_ids_pinned filter_pool filter_queue get_paged_params "
    "iterate_draftmodel_gen iterate_gen iterate_ngram_gen iterate_start_jobs last_defrag_serial "
    "logits_pinned padded_vocab_size sampling_pool validate_cache",
    "job": "accepted_draft_tokens allocate_pages cached_pages cached_tokens deallocate_pages "
    "get_block_index get_input_ids_list get_max_seq_len held_probs is_prefill_done ngrams prefill "
    "prefix_token prepare_for_queue receive_logits receive_sample rejected_draft_tokens rng "
    "stop_strings stop_tokens time_enqueue time_first_prefill time_first_token time_last_token",
    "settings": "greedy_clone ngram_history ngram_index ngram_trie",
}


@pytest.fixture
def objects(model, tokenizer):
    """An object of each class."""
    cache = ExLlamaV2Cache(model, max_seq_len=512)
    yield {
        "model": model, "config": model.config, "cache": cache, "tokenizer": tokenizer,
        "lora": ExLlamaV2Lora.__new__(ExLlamaV2Lora), "settings": Settings(),
        "streaming": ExLlamaV2StreamingGenerator(model, cache, tokenizer),
        "dynamic": ExLlamaV2DynamicGenerator(model, cache, tokenizer),
        "job": ExLlamaV2DynamicJob(torch.tensor([[40]]), 1),
    }  # fmt: skip
    cache.close()


@pytest.mark.slow
def test_names_that_are_not_here_are_known(objects):
    for kind, names in NAMES.items():
        for name in names.split():
            with pytest.raises(NotSupportedYet, match=f"{name} is not supported here: ") as refusal:
                getattr(objects[kind], name)
            assert "no such attribute" not in str(refusal.value)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (ExLlamaV2, "config lazy_load=False archparams=None"),
        (ExLlamaV2Tokenizer, "config lazy_init=True force_json=False force_spm=False"),
        (
            ExLlamaV2DynamicGenerator,
            "model cache tokenizer max_batch_size=None max_seq_len=None max_chunk_size=None max_q_size=8 "
            "draft_model=None draft_cache=None num_draft_tokens=4 use_ngram_draft=False max_ngram=4 "
            "max_sampling_threads=16 min_sampling_threads=3 paged=True filter_background_eval=True",
        ),
        (
            ExLlamaV2DynamicJob,
            "input_ids max_new_tokens min_new_tokens=0 max_skips=4 gen_settings=None seed=None "
            "stop_conditions=None decode_special_tokens=False return_top_tokens=0 return_logits=False "
            "return_probs=False filters=None filter_prefer_eos=False token_healing=False identifier=None "
            "banned_strings=None embeddings=None",
        ),
        (
            ExLlamaV2DynamicGenerator.generate,
            "self prompt max_new_tokens min_new_tokens=0 seed=None gen_settings=None token_healing=False "
            "encode_special_tokens=False decode_special_tokens=False stop_conditions=None add_bos=False "
            "abort_event=None completion_only=False filters=None filter_prefer_eos=False "
            "return_last_results=False embeddings=None banned_strings=None",
        ),
        (
            ExLlamaV2StreamingGenerator,
            "model cache tokenizer draft_model=None draft_cache=None num_speculative_tokens=5",
        ),
        (
            ExLlamaV2StreamingGenerator.begin_stream_ex,
            "self input_ids gen_settings token_healing=False loras=None input_mask=None "
            "position_offsets=None return_probabilities=False return_top_tokens=0 return_logits=False "
            "abort_event=None input_embeddings=None decode_special_tokens=False banned_strings=None "
            "filters=None filter_prefer_eos=False",
        ),
        (
            ExLlamaV2BaseGenerator.generate_simple,
            "self prompt gen_settings num_tokens seed=None token_healing=False encode_special_tokens=False "
            "decode_special_tokens=False loras=None stop_token=-1 add_bos=False abort_event=None "
            "input_embeddings=None completion_only=False filters=None filter_prefer_eos=False",
        ),
        (
            ExLlamaV2Cache,
            "model batch_size=1 max_seq_len=-1 copy_from=None lazy=False num_key_value_heads=None "
            "fixed_device=None",
        ),
    ],
)  # fmt: skip
def test_arguments_in_the_original_s_order(function, arguments):
    here = [
        name if parameter.default is parameter.empty else f"{name}={parameter.default!r}"
        for name, parameter in inspect.signature(function).parameters.items()
    ]
    assert here[: len(arguments.split())] == arguments.split()


def test_arguments_that_are_refused(model):
    assert ExLlamaV2Tokenizer(model.config, lazy_init=False).get_vocab_size() == 307
    for name in ("force_json", "force_spm"):
        with pytest.raises(NotSupportedYet, match=f"`{name}` is not supported here"):
            ExLlamaV2Tokenizer(model.config, **{name: True})
    with pytest.raises(NotSupportedYet, match="`archparams` is not supported here"):
        ExLlamaV2(model.config, archparams=object())


def test_ids_that_dry_and_xtc_leave_alone(tokenizer):
    special = set(tokenizer.extended_id_to_piece)
    pieces = tokenizer.get_id_to_piece_list()
    marks = set('.,!?<>[](){}\n\t"')
    breakers = ExLlamaV2Sampler.get_dry_default_sequence_breaker_tokens(tokenizer)
    assert breakers == special | {id for id, text in enumerate(pieces) if marks & set(text)}
    breaks = special | {id for id, text in enumerate(pieces) if "\n" in text}
    assert ExLlamaV2Sampler.get_default_xtc_mask_tokens(tokenizer) == breaks
    for given, kept in ((None, breaks), (frozenset({5, 9}), {5, 9}), (frozenset(), set())):
        mask = ExLlamaV2Sampler.get_xtc_mask_tensor(tokenizer, 307, given)
        assert (mask.dtype, mask.shape) == (torch.bool, (307,))
        assert set((~mask).nonzero().flatten().tolist()) == kept
    with pytest.raises(NotSupportedYet, match="apply_dry` is not supported"):
        ExLlamaV2Sampler.apply_dry(Settings(), tokenizer, torch.tensor([[1]]), torch.zeros(1, 1, 307))
