"""From a conversation to the prompt's text and token ids."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from engine.errors import BadTemplate
from engine.text.template.content_guard import ContentGuard, texts_in
from engine.text.template.pictures import PictureMarks
from engine.text.template.sandbox_limits import text_size
from engine.text.template.template import ChatTemplate
from engine.text.template.turns import Turn, as_turn
from engine.text.tokenizer import aside
from engine.text.tokenizer.tokenizer import Tokenizer


def encode_chat(
    tokenizer: Tokenizer,
    template: ChatTemplate,
    messages: Sequence[Turn],
    *,
    add_generation_prompt: bool = True,
    continue_last: bool = False,
    tools: Sequence[Mapping[str, Any]] | None = None,
    variables: Mapping[str, Any] | None = None,
    marks: Mapping[str, str] = {},
    pictures: PictureMarks | None = None,
) -> tuple[str, list[int]]:
    """The prompt's text and token ids, of chats with tools by the template for these. No BOS is added beyond
    the one the template writes.

    Texts of control tokens inside messages, tools and documents stay text: while the template runs, each is
    replaced by a private-use character. The characters in `marks` stand for the control tokens of these
    texts, those of `pictures` for pictures.
    """
    template = template if tools is None else template.for_tools
    turns = template.placed([as_turn(message) for message in messages])
    offered = None if tools is None else [dict(tool) for tool in tools]

    def rendered(template: ChatTemplate) -> tuple[str, dict[int, str]] | BadTemplate:
        documents = (variables or {}).get("documents")
        guard = ContentGuard(tokenizer, [*texts_in([turns, offered, documents]), template.source])
        named = {**(variables or {}), "documents": guard.inside(documents)} if documents else variables
        inside, tools = guard.inside(turns), None if offered is None else guard.inside(offered)
        given: dict[str, Any] = {
            "add_generation_prompt": add_generation_prompt, "continue_last": continue_last, "tools": tools,
            "variables": named,
        }  # fmt: skip
        text = _with_pictures(template, inside, given, pictures) if pictures else None
        try:
            if text is None:
                text = template.render(inside, **given)
                text = pictures.surrounded(text) if pictures else text
        except BadTemplate as error:
            return error
        return text.translate({ord(mark): name for name, mark in marks.items()}), guard.literal

    content = [turns, offered, variables, *(pictures.names if pictures else ())]
    if text_size(content) < aside.LONG:
        found = rendered(template)
    else:  # it takes up to `sandbox.TIME_LIMIT`
        key = json.dumps([content, add_generation_prompt, continue_last], default=repr)
        found = aside.made_aside(key, lambda: rendered(template.twin))
    if isinstance(found, BadTemplate):
        raise found
    text, literal = found
    if pictures:
        return pictures.encode(tokenizer, text, literal)
    return text.translate(literal), tokenizer.encode_parts(text, literal)


def _with_pictures(
    template: ChatTemplate, turns: Sequence[dict[str, Any]], given: Mapping[str, Any], pictures: PictureMarks
) -> str | None:
    """The prompt's text, with the marks of pictures where the template writes its placeholder for each; None
    if it does not.
    """
    try:
        text = template.render([pictures.in_parts(turn) for turn in turns], **given)
    except BadTemplate:
        return None
    return pictures.marked(text, turns)
