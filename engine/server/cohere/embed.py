"""POST /v2/embed."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from engine.server.failure import bad_request
from engine.server.fields import Fields
from engine.server.http.exchange import Exchange, to_json
from engine.server.openai.conversation import content_of
from engine.server.service import Service
from engine.server.texts.embedding import embeddings_of

_LONGEST = 1 << 20
_TYPES = ("float", "base64")


async def embed(service: Service, exchange: Exchange) -> None:
    """The vectors of texts; those that are too long lose their ends unless `truncate` is NONE."""
    fields = Fields(await exchange.read())
    service.model(fields)
    texts, most = _texts(fields), service.options.bounds.prompts
    if not 0 < len(texts) <= most:
        raise bad_request(f"There are {len(texts)} texts; 1 to {most} are accepted.", "texts")
    kinds = fields.texts("embedding_types", len(_TYPES)) or ("float",)
    if len(kinds) > 1 or kinds[0] not in _TYPES:
        raise fields.wrong("embedding_types", f"one of {' and '.join(_TYPES)}")
    cut = fields.text("truncate", "END")
    if cut not in ("END", "NONE"):
        raise fields.wrong("truncate", "END or NONE")
    dimensions = fields.whole("output_dimension", 1, _LONGEST) or 0
    found = await embeddings_of(
        service, exchange, texts, "", dimensions, as_base64=kinds[0] == "base64", cut=cut == "END"
    )
    tokens = sum(one.tokens for one in found)
    rest = {
        "id": secrets.token_hex(16), "texts": texts, "response_type": "embeddings_by_type",
        "meta": {"api_version": {"version": "2"}, "billed_units": {"input_tokens": tokens}},
    }  # fmt: skip
    vectors = b",".join(one.json for one in found)
    await exchange.send_body(
        b'{"embeddings":{"%s":[%s]},%s' % (kinds[0].encode(), vectors, to_json(rest)[1:])
    )


def _texts(fields: Fields) -> Sequence[str]:
    """The texts of a request: `texts`, or `inputs` whose content is text. Raises `ApiError`."""
    if fields.get("images"):
        raise bad_request("images are not supported: only vectors of texts are made.", "images")
    if fields.get("inputs") is not None:
        return [content_of(one) for one in fields.parts("inputs")]
    texts = fields.get("texts")
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise fields.wrong("texts", "a list of texts")
    return texts
