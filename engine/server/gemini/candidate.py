"""Candidate: one reply while it is written, as Google's API has it. Source: Google's API reference."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from engine.core import CallPiece, ChatRequest
from engine.server.host import ServedModel
from engine.server.replies import Ended, ReplyEvent, Score, Writer

Part = dict[str, Any]


class Candidate:
    """One candidate. A call is one part, which comes when the call is complete; thoughts are left out unless
    they are `shown`, scores unless there are `logprobs`.
    """

    def __init__(
        self, index: int, model: ServedModel, request: ChatRequest, logprobs: int | None, *, shown: bool
    ) -> None:
        begun = request.messages[-1].content if request.continue_last else ""
        self.writer = Writer(model.thinking, begun)
        self._index, self._logprobs, self._shown = index, logprobs, shown
        self._call: CallPiece | None = None
        self._arguments: list[str] = []
        self._malformed = False

    def feed(self, event: ReplyEvent) -> dict[str, Any] | None:
        """The candidate of a chunk that an event becomes; None if it adds nothing."""
        delta = self.writer.feed(event)
        parts: list[Part] = []
        scores: Sequence[Score] = ()
        if delta is not None:
            scores = delta.scores
            if delta.reasoning and self._shown:
                parts.append({"text": delta.reasoning, "thought": True})
            if delta.text:
                parts.append({"text": delta.text})
            if delta.call is not None:
                parts += self._called(delta.call)
        if isinstance(event, Ended):
            parts += self._complete()
        if not (parts or scores or isinstance(event, Ended)):
            return None
        found: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": self._index}
        if scores and self._logprobs is not None:
            found["logprobsResult"] = _logprobs(scores, self._logprobs)
        if isinstance(event, Ended):
            found["finishReason"] = self._reason
        return found

    def _called(self, piece: CallPiece) -> list[Part]:
        """More of a call; the part of the one before, which is complete when another begins."""
        if piece.name:
            parts, self._call = self._complete(), piece
        else:
            parts = []
        self._arguments.append(piece.arguments)
        return parts

    def _complete(self) -> list[Part]:
        """The part of the last call; none if its arguments were cut off."""
        call, written = self._call, "".join(self._arguments)
        self._call, self._arguments = None, []
        if call is None:
            return []
        try:
            arguments = json.loads(written or "{}")
        except (ValueError, RecursionError):
            self._malformed = True
            return []
        return [{"functionCall": {"id": call.id, "name": call.name, "args": arguments}}]

    @property
    def _reason(self) -> str:
        if self.writer.finish_reason == "length":
            return "MAX_TOKENS"
        return "MALFORMED_FUNCTION_CALL" if self._malformed else "STOP"


def joined(chunks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The chunks of one candidate as one: neighbouring texts of a kind become one part."""
    found: dict[str, Any] = {}
    parts: list[tuple[Part, list[str]]] = []
    scores: dict[str, list[Any]] = {}
    for chunk in chunks:
        found |= chunk
        for part in chunk["content"]["parts"]:
            if not (parts and "text" in part and part.keys() == parts[-1][0].keys()):
                parts.append((part, []))
            parts[-1][1].append(part.get("text", ""))
        for name, values in chunk.get("logprobsResult", {}).items():
            scores.setdefault(name, []).extend(values)
    whole = [{**part, "text": "".join(texts)} if "text" in part else part for part, texts in parts]
    found["content"] = {"role": "model", "parts": whole}
    if scores:
        chosen = [one["logProbability"] for one in scores["chosenCandidates"]]
        found |= {"logprobsResult": scores, "avgLogprobs": sum(chosen) / len(chosen)}
    return found


def _logprobs(scores: Sequence[Score], count: int) -> dict[str, Any]:
    found: dict[str, Any] = {"chosenCandidates": [_score(one) for one in scores]}
    if count:
        found["topCandidates"] = [{"candidates": [_score(other) for other in one.top]} for one in scores]
    return found


def _score(score: Score) -> dict[str, Any]:
    return {"token": score.text, "tokenId": score.id, "logProbability": score.logprob or 0.0}


def usage(writers: Sequence[Writer]) -> dict[str, int]:
    """The counts of tokens of all candidates."""
    ends = [writer.ended for writer in writers if writer.ended is not None]
    if not ends:
        return {}
    thoughts = sum(writer.reasoning_tokens for writer in writers)
    prompt, new = ends[0].stats.prompt_tokens, sum(end.stats.new_tokens for end in ends)
    return {
        "promptTokenCount": prompt, "cachedContentTokenCount": ends[0].stats.cached_tokens,
        "candidatesTokenCount": new - thoughts, "thoughtsTokenCount": thoughts,
        "totalTokenCount": prompt + new,
    }  # fmt: skip
