"""Messages as chat templates take them, and the forms of a conversation that more of them accept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from engine.core import Message
from engine.errors import BadTemplate
from engine.words import _

__all__ = [
    "REASONING", "Turn", "as_turn", "ask_with_system", "attempts", "carry_system", "fold_system", "in_parts",
    "open_end", "plain_schemas", "tagged", "thought_in_parts",
]  # fmt: skip

_CONTINUE_TAG = "CONTINUE_FINAL_MESSAGE_TAG "
REASONING = ("reasoning_content", "thinking", "reasoning", "tool_plan")
"""Names under which a message may carry the reasoning of its reply; the first one present counts."""

Turn = Message | Mapping[str, Any]
"""A message, or a mapping as templates see it: {"role", "content", ...}, for what `Message` lacks."""


def as_turn(message: Turn) -> dict[str, Any]:
    """A message as templates see it, with its reasoning under each of the names.

    Most templates read `reasoning_content`, those of gpt-oss and LFM2.5 `thinking`, that of Solar Open
    `reasoning`, those of Command R7B and Command A, before calls, `tool_plan`.
    """
    if isinstance(message, Message):
        turn: dict[str, Any] = {"role": message.role, "content": message.content}
        reasoning = message.reasoning or None
    else:
        turn = dict(message)
        reasoning = next((turn[name] for name in REASONING if turn.get(name) is not None), None)
    if reasoning is None:
        return turn
    return {**dict.fromkeys(REASONING, reasoning), **turn, "reasoning_content": reasoning}


def in_parts(turn: Mapping[str, Any]) -> dict[str, Any]:
    """A message whose text is a part of a list."""
    content = turn.get("content")
    return {**turn, "content": [{"type": "text", "text": content}]} if isinstance(content, str) else {**turn}


def thought_in_parts(turn: Mapping[str, Any]) -> dict[str, Any]:
    """A message whose reasoning, if it has any, is a part of a list before its text, as Mistral's are."""
    content, reasoning = turn.get("content"), turn.get("reasoning_content")
    if not isinstance(reasoning, str) or not isinstance(content, str):
        return dict(turn)
    text = [{"type": "text", "text": content}] if content else []
    return {**turn, "content": [{"type": "thinking", "thinking": reasoning}, *text]}


def tagged(turn: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The text, or the last part that is one, of a message, and the message with the tag at the end of it.

    Raises `BadTemplate`.
    """
    content = turn.get("content")
    if isinstance(content, str):
        return content, {**turn, "content": content + _CONTINUE_TAG}
    parts = list(content) if isinstance(content, (list, tuple)) else []
    for place in range(len(parts) - 1, -1, -1):
        if isinstance(parts[place], Mapping) and isinstance(text := parts[place].get("text"), str):
            parts[place] = {**parts[place], "text": text + _CONTINUE_TAG}
            return text, {**turn, "content": parts}
    raise BadTemplate(
        _("The last message has no text, so it cannot be continued; start a new reply instead.")
    )


def attempts(turns: list[dict[str, Any]]) -> Iterable[list[dict[str, Any]]]:
    """The conversation as it is, then in the forms that more templates accept, if these differ."""
    yield turns
    if any(None in turn.values() for turn in turns):
        turns = [{name: value for name, value in turn.items() if value is not None} for turn in turns]
        yield turns
    carried = carry_system(turns)
    if carried is not None:
        yield carried
        turns = carried
    folded = fold_system(turns)
    if folded is not None:
        yield folded
    joined = _join_turns(turns if folded is None else folded)
    if joined is not None:
        yield joined
    for text in ("", "..."):  # Ministral 3's template takes no empty one
        for each in (turns, folded, joined):
            filled = None if each is None else _fill_gaps(each, text)
            if filled is not None:
                yield filled
                yield fold_system(filled) or filled


def _join_turns(turns: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]] | None:
    """Consecutive plain messages of the user or of the assistant joined; None if there are none."""
    joined: list[dict[str, Any]] = []
    for turn in turns:
        last = joined[-1] if joined else {}
        plain = (
            all(set(one) == {"role", "content"} and isinstance(one["content"], str) for one in (last, turn))
            if last
            else False
        )
        if plain and last["role"] == turn["role"] and turn["role"] in ("user", "assistant"):
            joined[-1] = {**last, "content": "\n\n".join([last["content"], turn["content"]])}
        else:
            joined.append(dict(turn))
    return joined if len(joined) < len(turns) else None


def _fill_gaps(turns: Sequence[Mapping[str, Any]], text: str) -> list[dict[str, Any]] | None:
    """The turns with this text where a message is missing that many templates require, those of Mistral and
    Gemma among them: of the assistant between a call, or its result, and a message of the user, as coding
    agents send them; of the user before a greeting, or after nothing but system messages. None if none is
    missing.
    """
    found: list[dict[str, Any]] = []
    begun = False
    for turn in turns:
        last, role = found[-1] if found else {}, turn.get("role")
        if role == "user" and (last.get("role") == "tool" or last.get("tool_calls")):
            found.append({"role": "assistant", "content": text})
        elif role != "system" and role != "user" and not begun:
            found.append({"role": "user", "content": text})
        begun = begun or role != "system"
        found.append(dict(turn))
    if not begun:
        found.append({"role": "user", "content": text})
    return found if len(found) > len(turns) else None


def open_end(text: str, content: str) -> str:
    """`text` up to the end of the last message, which the tag marks; `transformers` cuts there too."""
    at = text.rfind(_CONTINUE_TAG.strip())
    if at < 0 or content.strip() not in text:
        raise BadTemplate(
            _(
                "The chat template leaves out part of the last message, so it cannot be continued; start a "
                "new reply instead."
            )
        )
    return text[:at] if text[at : at + len(_CONTINUE_TAG)] == _CONTINUE_TAG else text[:at].rstrip()


def fold_system(turns: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]] | None:
    """The turns with all system texts moved to the first user turn; None if either is missing.

    System messages without text only disappear.
    """
    system = [str(turn.get("content") or "") for turn in turns if turn.get("role") == "system"]
    rest = [dict(turn) for turn in turns if turn.get("role") != "system"]
    first = next(
        (turn for turn in rest if turn.get("role") == "user" and isinstance(turn.get("content"), str)), None
    )
    if not system or first is None:
        return None
    first["content"] = "\n\n".join([*filter(None, system), first["content"]])
    return rest


def ask_with_system(turns: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]] | None:
    """The turns with a system message at the beginning joined to the last message of the user, where a reply,
    a call or its result follows that; else None.

    Mistral's templates of versions 2 and 3 join them only where that message ends the chat; in its own
    library (see `mistral`) the place is the same whatever follows.
    """
    text = _system_text(turns[0])
    asked = max((at for at, turn in enumerate(turns) if turn.get("role") == "user"), default=0)
    if text is None or asked in (0, len(turns) - 1):
        return None
    return [dict(turn) if at != asked else _joined(turn, [text], []) for at, turn in enumerate(turns)][1:]


def carry_system(turns: Sequence[Mapping[str, Any]], *, join: bool = True) -> list[dict[str, Any]] | None:
    """The turns with system messages at the beginning only: the text of later ones is joined to the message
    of the user that follows, or comes before, or is a message of the user. With `join`, those at the
    beginning become one. None if there is nothing to move.
    """
    found: list[dict[str, Any]] = []
    held: list[str] = []  # texts of later system messages
    for turn in turns:
        text, last = _system_text(turn), found[-1] if found else {}
        if text is None or not found:
            if held and turn.get("role") != "tool":  # which belongs to the call before it
                turn = _place(held, found, turn)
            found.append(dict(turn))
        elif last.get("role") == "system":
            found[-1:] = [_joined(last, [], [text])] if join else [last, dict(turn)]
        else:
            held.append(text)
    if held:
        _place(held, found, {})
    return found if found != [*turns] else None


def _system_text(turn: Mapping[str, Any]) -> str | None:
    """The text of a system message with nothing else in it, else None."""
    content = turn.get("content")
    if turn.get("role") != "system" or set(turn) != {"role", "content"}:
        return None
    if isinstance(content, (list, tuple)) and all(isinstance(part, Mapping) for part in content):
        texts = [part.get("text") for part in content]
        return "\n".join(map(str, texts)) if None not in texts else None
    return content if isinstance(content, str) else None


def _place(held: list[str], found: list[dict[str, Any]], turn: Mapping[str, Any]) -> Mapping[str, Any]:
    """Put the `held` texts into the message of the user that follows, which is returned, or add them to those
    `found` before.
    """
    texts = [*held]
    held.clear()
    if turn.get("role") == "user":
        return _joined(turn, texts, [])
    if found and found[-1].get("role") == "user":
        found[-1] = _joined(found[-1], [], texts)
    else:
        found.append({"role": "user", "content": "\n\n".join(texts)})
    return turn


def _joined(turn: Mapping[str, Any], before: Sequence[str], after: Sequence[str]) -> dict[str, Any]:
    """A message with texts before and after its own."""
    content = turn.get("content") or ""
    if isinstance(content, str):
        return {**turn, "content": "\n\n".join(text for text in (*before, content, *after) if text)}
    first, last = ([{"type": "text", "text": text} for text in texts] for texts in (before, after))
    return {**turn, "content": [*first, *content, *last]}


def plain_schemas(value: Any) -> Any:
    """JSON schemas, of any depth, in which no type is null, all members of objects have a description, and
    objects say what further members they have.

    The macros of Hermes 2 Pro's and Command R+'s templates, which write types in Python, fail with others.
    """
    if isinstance(value, (list, tuple)):
        return [plain_schemas(part) for part in value]
    if not isinstance(value, Mapping):
        return value
    found = {name: plain_schemas(part) for name, part in value.items()}
    types = found.get("type")
    if isinstance(types, list):
        types = [one for one in types if one != "null"]
        found["type"] = types[0] if len(types) == 1 else types
    if found.get("type") in ("null", []):
        del found["type"]
    if found.get("type") == "object":
        found.setdefault("additionalProperties", {})
    members = found.get("properties")
    for part in members.values() if isinstance(members, dict) else ():
        if isinstance(part, dict):
            part.setdefault("description", "")
    return found
