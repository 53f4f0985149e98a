"""The routes of the server, behind its security."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Match, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from engine.server import kobold, shared_models, webui
from engine.server.anthropic import messages
from engine.server.cohere import chat as cohere_chat
from engine.server.cohere import embed as cohere_embed
from engine.server.cohere import first as cohere_first
from engine.server.failure import OLLAMA_PATH, Failure
from engine.server.gemini import content as gemini
from engine.server.gemini import models as gemini_models
from engine.server.http.security import Security
from engine.server.hugging_face import embed as hugging_embed
from engine.server.hugging_face import generate as hugging_generate
from engine.server.llama_cpp import metrics, slots, tokens
from engine.server.lm_studio import chat as studio_chat
from engine.server.lm_studio import models as studio_models
from engine.server.lm_studio import replies as studio_replies
from engine.server.lm_studio.sockets.connection import StudioSocket
from engine.server.lm_studio.sockets.namespaces import NAMESPACES
from engine.server.ollama import models as ollama_models
from engine.server.ollama import replies as ollama_replies
from engine.server.openai import chat, models
from engine.server.responses import create, kept
from engine.server.service import Endpoint, Handler, Service
from engine.server.tabby import fixed as tabby_fixed
from engine.server.tabby import models as tabby_models
from engine.server.tabby import tokens as tabby_tokens
from engine.server.texts import completion, completions, embeddings, fim

GET: tuple[tuple[str, Handler], ...] = (
    ("/", models.health), ("/health", models.health), ("/v1/health", models.health),
    ("/v1/models", shared_models.models), ("/v1/models/{id:path}", shared_models.model),
    ("/models", shared_models.models),
    ("/v1beta/models", gemini_models.models), ("/v1beta/models/{id:path}", gemini_models.model),
    ("/tokenizer_info", tokens.tokenizer_info), ("/info", hugging_embed.info),
    ("/v1/responses/{id}", kept.retrieve), ("/v1/responses/{id}/input_items", kept.input_items),
    ("/props", completion.props), ("/api/tags", ollama_models.tags),
    ("/api/ps", ollama_models.running), ("/api/version", ollama_models.version),
    ("/metrics", metrics.metrics), ("/slots", slots.slots), ("/lora-adapters", slots.lora_adapters),
    ("/api/v0/models", studio_models.models), ("/api/v0/models/{id:path}", studio_models.model),
    ("/api/v1/models", studio_models.models_v1), ("/lmstudio-greeting", studio_models.greeting),
    ("/api/v1/model", kobold.model), ("/api/v1/info/version", kobold.united_version),
    ("/api/v1/config/max_context_length", kobold.context), ("/api/extra/version", kobold.version),
    ("/api/v1/config/max_length", kobold.reply_length), ("/api/extra/perf", kobold.performance),
    ("/api/latest/config/max_length", kobold.reply_length),
    ("/api/latest/info/version", kobold.united_version),
    ("/api/extra/true_max_context_length", kobold.context), ("/api/extra/generate/check", kobold.check),
    ("/api/latest/model", kobold.model), ("/api/latest/config/max_context_length", kobold.context),
    ("/v1/model", tabby_models.model), ("/v1/model/list", tabby_models.models),
    ("/v1/model/draft/list", tabby_models.draft_models), ("/v1/templates", tabby_fixed.templates),
    ("/v1/template/list", tabby_fixed.templates), ("/v1/sampling/overrides", tabby_fixed.overrides),
    ("/v1/sampling/override/list", tabby_fixed.overrides), ("/v1/lora", tabby_fixed.loras),
    ("/v1/loras", tabby_fixed.loras), ("/v1/lora/list", tabby_fixed.loras),
    ("/v1/auth/permission", tabby_fixed.permission),
    ("/v1/internal/health", webui.health), ("/v1/internal/model/info", webui.model_info),
    ("/v1/internal/model/list", webui.model_list), ("/v1/internal/lora/list", webui.lora_list),
)  # fmt: skip
POST: tuple[tuple[str, Handler], ...] = (
    ("/v1/chat/completions", chat.chat_completions), ("/v1/completions", completions.completions),
    ("/chat/completions", chat.chat_completions), ("/responses", create.create),
    ("/v1/responses", create.create), ("/v1/responses/input_tokens", create.count_input),
    ("/v1/responses/{id}/cancel", kept.cancel), ("/v1/messages", messages.messages),
    ("/completion", completion.completion), ("/completions", completion.completion),
    ("/v1/messages/count_tokens", messages.count_tokens), ("/v1/embeddings", embeddings.embeddings),
    ("/tokenize", tokens.tokenize), ("/detokenize", tokens.detokenize),
    ("/v1/tokenize", tokens.tokenize), ("/v1/detokenize", tokens.detokenize),
    *((f"{version}/extras/tokenize", tokens.extra_tokenize) for version in ("", "/v1")),
    *((f"{version}/extras/tokenize/count", tokens.extra_count) for version in ("", "/v1")),
    *((f"{version}/extras/detokenize", tokens.extra_detokenize) for version in ("", "/v1")),
    ("/apply-template", tokens.apply_template), ("/v1/models/load", models.load),
    ("/v1/models/unload", models.unload), ("/api/chat", ollama_replies.chat),
    ("/api/generate", ollama_replies.generate), ("/api/embed", ollama_models.embed),
    ("/api/embeddings", ollama_models.embeddings), ("/api/show", ollama_models.show),
    ("/api/pull", ollama_models.pull),
    ("/v1/fim/completions", fim.fim), ("/infill", completion.infill), ("/embedding", embeddings.embedding),
    ("/embeddings", embeddings.embedding), ("/api/v0/chat/completions", studio_replies.chat_completions),
    ("/api/v0/completions", studio_replies.completions), ("/api/v0/embeddings", embeddings.embeddings),
    ("/api/v1/generate", kobold.generate), ("/api/extra/generate/stream", kobold.stream),
    ("/api/extra/generate/check", kobold.check), ("/api/extra/abort", kobold.abort),
    ("/api/extra/tokencount", kobold.token_count), ("/api/extra/detokenize", kobold.detokenize),
    ("/api/latest/generate", kobold.generate), ("/models/load", models.load),
    ("/models/unload", models.unload), ("/api/v1/chat", studio_chat.chat),
    ("/api/v1/models/load", studio_models.load), ("/api/v1/models/unload", studio_models.unload),
    ("/v1/model/load", tabby_models.load), ("/v1/model/unload", tabby_models.unload),
    ("/v1/token/encode", tabby_tokens.encode), ("/v1/token/decode", tabby_tokens.decode),
    ("/v1/template/switch", tabby_fixed.change_template), ("/v1/lora/load", tabby_fixed.change_adapters),
    ("/v1/template/unload", tabby_fixed.change_template), ("/v1/lora/unload", tabby_fixed.change_adapters),
    ("/v1/sampling/override/switch", tabby_fixed.change_sampling),
    ("/v1/sampling/override/unload", tabby_fixed.change_sampling),
    ("/", hugging_embed.root), ("/embed", hugging_embed.embed), ("/similarity", hugging_embed.similarity),
    ("/generate", hugging_generate.generate),
    ("/generate_stream", hugging_generate.generate_stream),
    ("/v2/chat", cohere_chat.chat), ("/v2/embed", cohere_embed.embed), ("/v1/chat", cohere_first.chat),
    ("/v1/internal/encode", webui.encode), ("/v1/internal/decode", webui.decode),
    ("/v1/internal/token-count", webui.token_count), ("/v1/internal/logits", webui.logits),
    ("/v1/internal/chat-prompt", webui.chat_prompt),
    ("/v1/internal/stop-generation", webui.stop_generation), ("/v1/internal/model/load", webui.load),
    ("/v1/internal/model/unload", webui.unload), ("/v1/internal/lora/load", tabby_fixed.change_adapters),
    ("/v1/internal/lora/unload", tabby_fixed.change_adapters),
)  # fmt: skip

GOOGLES: tuple[tuple[str, Handler], ...] = tuple(
    (f"{version}/models/{{model:path}}:{method}", handler)
    for version in ("/v1beta", "/v1", "")  # LiteLLM adds none to an address of its user
    for method, handler in (
        ("generateContent", gemini.generate), ("streamGenerateContent", gemini.stream),
        ("countTokens", gemini.count_tokens), ("embedContent", gemini.embed),
        ("batchEmbedContents", gemini.embed_all),
    )
)  # fmt: skip
DELETE: tuple[tuple[str, Handler], ...] = (("/v1/responses/{id}", kept.delete),)
METHODS = (("POST", POST), ("POST", GOOGLES), ("GET", GET), ("DELETE", DELETE))


def make_app(service: Service) -> ASGIApp:
    """The whole application."""
    routes: list[BaseRoute] = [
        Route(path, Endpoint(service, handler), methods=[method])
        for method, handlers in METHODS
        for path, handler in handlers
    ]
    routes += [WebSocketRoute(f"/{one.name}", StudioSocket(service, one)) for one in NAMESPACES]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _http_error})
    app.router.redirect_slashes = False  # `Security` takes them away
    app.router.default = _Elsewhere(app.router.default)
    return Security(app, service.options)


class _Elsewhere:
    """What answers where there is no route: `pages` to requests, a sentence to WebSockets.

    Where requests are answered, the status is 426: Codex then sends them without delay (openai/codex 43353).
    """

    def __init__(self, pages: ASGIApp) -> None:
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or one connection."""
        if scope["type"] != "websocket":
            await self._pages(scope, receive, send)
            return
        path = scope["path"]
        studio = ", ".join(f"/{one.name}" for one in NAMESPACES)
        message = (
            f"There is no WebSocket at {path[:200]}; WebSockets are for LM Studio's SDKs alone ({studio})."
        )
        if path in _POSTED:
            failure = Failure(426, f"{message} Send the request by POST.", code="websocket_not_supported")
        else:
            message += " Realtime and Live APIs are not supported; replies are streamed over HTTP."
            failure = Failure(404, message, code="not_found")
        answer = JSONResponse(failure.body_for(path), failure.status, {"connection": "close"})
        await answer(scope, receive, send)


_POSTED = frozenset(path for path, _handler in POST)
_PATHS = frozenset(path for _method, handlers in METHODS for path, _handler in handlers)


_GOOGLES_ABSENT = (
    ("files", "Files are not kept on the server; send them in the contents, as inlineData or text."),
    ("cachedContents", "Beginnings of prompts are cached unasked; send the whole contents."),
    ("interactions", "The Interactions API is not supported; use generateContent instead."),
    ("fileSearchStores", "Files are not kept on the server; send their texts in the contents."),
    ("auth_tokens", "Tokens of sessions are not made; send the token of the server."),
)
"""Those of Google's API."""
_ABSENT = (
    ("/v1/audio", "Sound is neither read nor made; only texts are written."),
    ("/v1/realtime", "Realtime APIs are not supported; replies are streamed over HTTP."),
    ("/v1/images", "Pictures are not made; only texts are written."),
    ("/v1/videos", "Videos are not made; only texts are written."),
    ("/v1/moderations", "Texts are not moderated."),
    ("/v1/conversations", "Conversations are not kept on the server; send previous_response_id instead."),
    ("/v1/chat/completions", "Chat completions are not kept on the server; those of /v1/responses are."),
    ("/v1/evals", "Evaluations are not run; send each request by itself."),
    ("/v1/skills", "Skills are not kept on the server; send what they say in the messages."),
    ("/v1/chatkit", "ChatKit is not supported; use /v1/responses instead."),
    ("/v1/assistants", "The Assistants API is not supported; use /v1/responses instead."),
    ("/v1/threads", "The Assistants API is not supported; use /v1/responses instead."),
    ("/v1/batches", "Batches are not supported; send each request by itself."),
    ("/v1/messages/batches", "Batches are not supported; send each request by itself."),
    ("/v1/files", "Files are not kept on the server; send their texts in the messages."),
    *((f"{version}/{part}", advice) for version in ("/v1beta", "/v1") for part, advice in _GOOGLES_ABSENT),
    *((f"/upload{version}", _GOOGLES_ABSENT[0][1]) for version in ("/v1beta", "/v1")),
    ("/v1/uploads", "Files are not kept on the server; send their texts in the messages."),
    ("/v1/vector_stores", "Files are not kept on the server; send their texts in the messages."),
    ("/v1/containers", "Programs are not run on the server."),
    ("/v1/fine_tuning", "Models are not trained."),
    ("/v1/responses/compact", "Conversations are not compacted; send the whole one, or a summary of it."),
)
"""Parts of APIs that the server does not have: where they begin, and what to do instead."""
_WHOLE = ("/chat/completions", "/completions", "/embeddings", "/responses", "/messages")
"""What people copy into the address of a server that their client completes."""
_NOT_IDS = ("/v1/responses/compact",)
"""Endpoints that the server does not have, though it has one whose path ends in an id there."""


def _hint(path: str) -> str:
    """What to do about a path that does not exist, where a wrong address of a client explains it."""
    for end in _WHOLE:
        if path.startswith(f"/v1{end}/") and path.endswith(end):
            return f" Remove {end} from the address of the server: this client adds it."
    for part, advice in _ABSENT:
        if path == part or path.startswith(part + "/"):
            return " " + advice
    if "/v1" + path in _PATHS:
        return " Add /v1 to the address of the server."
    if path.startswith(("/v1/v1/", "/v1/openai/")):
        return " Remove /v1 from the address of the server: this client adds it."
    if path.removeprefix("/v1") in _PATHS:
        return " Remove /v1 from the address of the server: this API has none."
    if path.endswith("/rerank"):
        return " Models that rank texts are not served; compare vectors of /v1/embeddings instead."
    if path.startswith(("/api/extra/", "/api/latest/", "/api/v1/config/")):
        return " KoboldCpp's API is supported to generate, check and abort texts, and to count tokens."
    if path.startswith("/api/v1/models/"):
        return " LM Studio's models can be listed, loaded and unloaded; files are not downloaded."
    if path.startswith(OLLAMA_PATH):
        supported = "chat, generate, embed, embeddings, show, pull, tags, ps and version"
        return f" Ollama's API is supported for {supported}."
    return ""


def _allowed(request: Request) -> str:
    """The methods that the path of a request answers. Starlette names those of its first route."""
    found: set[str] = set()
    for route in request.app.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] != Match.NONE:
            found |= route.methods or set()
    return ", ".join(sorted(found))


async def _http_error(request: Request, error: Exception) -> Response:
    """No such page, or not by this method."""
    assert isinstance(error, HTTPException)
    words = {404: "There is no such endpoint", 405: "This endpoint does not answer this method"}
    status, path = error.status_code, request.url.path
    more = dict(error.headers or {})
    if status == 405:
        status, more = (404, {}) if path in _NOT_IDS else (405, {"allow": _allowed(request)})
    message = f"{words.get(status, error.detail)}: {request.method} {path[:200]}."
    if status == 404:
        message += _hint(path)
    failure = Failure(status, message, code="not_found" if status == 404 else None)
    body, headers = failure.body_for(path), {**more, "connection": "close"}
    return JSONResponse(body, status, headers)
