"""Door `run`: one reply to a prompt, to ids or to messages, streamed to the terminal."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Iterator

from engine.chat import LocalChat
from engine.core import ChatEvent, ChatRequest, Done, Prefill, Stats, Text, Trimmed
from engine.doors.door import Answer, Console, Door
from engine.doors.flags import add_model, add_prompt, add_settings, read_settings
from engine.doors.opening import opened, prompt_ids, read_messages
from engine.settings import SamplerSettings, StopSettings


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_prompt(parser, messages=True)
    parser.add_argument("--continue-last", action="store_true", help="with --messages: write on from the end of the last message")
    add_settings(parser, SamplerSettings)
    add_settings(parser, StopSettings)


def _answer(options: argparse.Namespace, console: Console) -> Answer:
    sampler, stops = read_settings(SamplerSettings, options), read_settings(StopSettings, options)
    messages = read_messages(options.messages) if options.messages is not None else ()
    with opened(options, console) as chat:
        if messages:
            request = ChatRequest(messages, sampler, stops, options.continue_last)
            return collect(chat.stream(request, threading.Event()), console)
        return collect(_completion(chat, options, sampler, stops), console)


def _completion(chat: LocalChat, options: argparse.Namespace, sampler: SamplerSettings, stops: StopSettings) -> Iterator[ChatEvent]:
    return chat.generator.stream(prompt_ids(options, chat.tokenizer), sampler, stops)


def collect(events: Iterator[ChatEvent], console: Console) -> Answer:
    """Write a reply to the console as it comes, and return it whole."""
    pieces: list[str] = []
    ids: list[int] = []
    answer: Answer = {}
    for event in events:
        if isinstance(event, Prefill):
            console.progress(f"Reading the prompt: {event.done} of {event.total} tokens")
        elif isinstance(event, Trimmed):
            console.note(f"The context is full: the {event.dropped_messages} oldest messages were left out.")
        elif isinstance(event, Text):
            console.clear()
            console.write(event.text)
            pieces.append(event.text)
            ids += (token.id for token in event.tokens)
        elif isinstance(event, Done):
            console.clear()
            answer = {
                "text": "".join(pieces), "ids": ids, "prompt_tokens": event.stats.prompt_tokens, "reason": event.reason,
                "trigger": event.trigger, "stats": stats_json(event.stats),
            }  # fmt: skip
    return answer


def stats_json(stats: Stats) -> Answer:
    """The times of a reply for machines, seconds."""
    return {
        "prefill_tokens": stats.prefill_tokens,
        "cached_tokens": stats.cached_tokens,
        "prefill_seconds": stats.prefill_seconds,
        "first_token_seconds": stats.first_token_seconds,
        "decode_seconds": stats.decode_seconds,
        "decode_tokens_per_second": stats.decode_tokens_per_second,
    }


def _show(answer: Answer) -> str:
    stats = answer["stats"]
    trigger = f" {answer['trigger']!r}" if answer["trigger"] else ""
    return (
        f"\n\n[{answer['reason']}{trigger}; prompt {answer['prompt_tokens']} tokens in {stats['prefill_seconds']:.2f} s; reply "
        f"{len(answer['ids'])} tokens at {stats['decode_tokens_per_second']:.1f} tokens/s]"
    )


RUN = Door("run", "write one reply", _arguments, _answer, _show)
