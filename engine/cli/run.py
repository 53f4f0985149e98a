"""Command `run`: one reply to a prompt, to token ids, to messages or to a message that is piped into it,
streamed to the terminal.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Iterator

from engine.cli.command import Answer, Command, Console
from engine.cli.flags import add_model, add_prompt, add_reply_settings, read_request
from engine.cli.opening import described, opened, piped_message, prompt_ids, prompt_text, read_messages
from engine.cli.pictures import add_images, check_images, read_images, with_images
from engine.core import ChatEvent, Done, Loading, Message, Prefill, Stats, Text, TokenInfo, Trimmed
from engine.core.reasons import reason_words
from engine.errors import BadSetting
from engine.units import seconds_text
from engine.words import N_, _, dotted, ngettext


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_prompt(parser, messages=True)
    parser.add_argument(
        "--continue-last", action="store_true", help=_("with --messages, continue the last message")
    )
    add_images(
        parser,
        _(
            "a picture, which the model reads before the last message of the user; a --prompt or --file "
            "becomes such a message. Can be given several times"
        ),
    )
    parser.add_argument(
        "--tokens",
        action="store_true",
        help=_("with --json, include the probabilities and alternatives of each token"),
    )
    add_reply_settings(parser)


def _answer(options: argparse.Namespace, console: Console) -> Answer:
    messages = read_messages(options.messages) if options.messages is not None else ()
    if options.continue_last and not messages:
        raise BadSetting(_("--continue-last needs a file of messages. Give one with --messages."))
    pictures = read_images(options.image)
    if all(given is None for given in (options.prompt, options.file, options.ids, options.messages)):
        messages = (piped_message(),)
    elif pictures and not messages:
        messages = (Message("user", prompt_text(options)),)
    messages = with_images(messages, pictures)
    if pictures:
        check_images(described(options.model), pictures)
    request = read_request(options, messages, continue_last=options.continue_last)
    with opened(options, console) as chat:
        stop = threading.Event()
        events = (
            chat.stream(request, stop)
            if messages
            else chat.complete(prompt_ids(options, chat.tokenizer), request, stop)
        )
        return collect(events, console, tokens=options.tokens)


def collect(events: Iterator[ChatEvent], console: Console, *, tokens: bool = False) -> Answer:
    """Write a reply to the console as it arrives and return it; with `tokens`, also each token as a dict."""
    pieces: list[str] = []
    written: list[TokenInfo] = []
    suppressed: list[str] = []
    answer: Answer = {}
    for event in events:
        if isinstance(event, Loading):
            console.loading(event)
        elif isinstance(event, Prefill):
            console.progress(
                _("Reading the prompt: {done} of {total} tokens", done=event.done, total=event.total)
            )
        elif isinstance(event, Trimmed):
            console.note(_trimmed(event))
        elif isinstance(event, Text):
            console.clear()
            console.write(event.text)
            pieces.append(event.text)
            written += event.tokens
            suppressed += [event.suppressed] if event.suppressed else []
        elif isinstance(event, Done):
            console.clear()
            answer = {
                "text": "".join(pieces), "ids": [token.id for token in written],
                "prompt_tokens": event.stats.prompt_tokens, "reason": event.reason, "trigger": event.trigger,
                "suppressed": suppressed, "stats": stats_json(event.stats),
            }  # fmt: skip
            if tokens:
                answer["tokens"] = [
                    {**token._asdict(), "alternatives": [o._asdict() for o in token.alternatives]}
                    for token in written
                ]
    return answer


def _trimmed(event: Trimmed) -> str:
    if event.dropped_messages:
        return ngettext(
            "The context is full: the oldest message was left out.",
            "The context is full: the {n} oldest messages were left out.",
            event.dropped_messages,
        )
    return ngettext(
        "The context is full: the first token was left out.",
        "The context is full: the first {n} tokens were left out.",
        event.dropped_tokens,
    )


def stats_json(stats: Stats) -> Answer:
    """The counts and times (seconds) of a reply for the JSON output."""
    return {
        "seed": stats.seed,
        "prefill_tokens": stats.prefill_tokens,
        "cached_tokens": stats.cached_tokens,
        "prefill_seconds": stats.prefill_seconds,
        "first_token_seconds": stats.first_token_seconds,
        "decode_seconds": stats.decode_seconds,
        "decode_tokens_per_second": stats.decode_tokens_per_second,
        "passes": stats.passes,
        "drafted_tokens": stats.drafted_tokens,
        "accepted_tokens": stats.accepted_tokens,
        "tokens_per_pass": stats.tokens_per_pass,
        "speedup": stats.speedup,
    }


def _show(answer: Answer) -> str:
    stats, avoided = answer["stats"], len(answer["suppressed"])
    parts = [
        reason_words(answer["reason"], answer["trigger"]),
        ngettext(
            "prompt of {n} token read in {time}", "prompt of {n} tokens read in {time}",
            answer["prompt_tokens"], time=seconds_text(stats["prefill_seconds"], ".2f"),
        ),
        ngettext(
            "reply of {n} token at {speed:,.1f} tokens/s", "reply of {n} tokens at {speed:,.1f} tokens/s",
            len(answer["ids"]), speed=stats["decode_tokens_per_second"],
        ),
    ]  # fmt: skip
    if stats["drafted_tokens"]:
        parts.append(_("{number:.2f} tokens per pass", number=stats["tokens_per_pass"]))
    if avoided:
        parts.append(ngettext("{n} banned phrase avoided", "{n} banned phrases avoided", avoided))
    return f"\n\n[{dotted(*parts)}]"


RUN = Command("run", N_("write one reply"), _arguments, _answer, _show)
