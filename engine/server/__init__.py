"""A local server with the HTTP APIs of OpenAI and Anthropic, over a model in this process.

    host           the border between the server's thread and the thread that owns the model
    model_thread   a plain thread that owns a model (the window has its own)
    serving        sockets, and the server on a thread of its own
    app            the routes, behind `http.security`
    service        what all endpoints share
    http           one request and its answer: body, JSON, events, the client's leaving
    replies        what a reply's events become: reasoning, text, log-probabilities, usage

The endpoints, a room for each API, all over the same replies: `openai` (with `responses`, and `texts` for
plain text), `anthropic`, `ollama`, `llama_cpp`, `lm_studio`, `kobold`.

Importing this package imports neither uvicorn nor starlette; `serving` does.
"""
