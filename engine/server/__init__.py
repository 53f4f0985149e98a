"""A local server with the HTTP APIs of OpenAI and Anthropic, over a model in this process.

    host        the border between the server's thread and the thread that owns the model
    model_thread   a plain thread that owns a model (the window has its own)
    serving     sockets, and the server on a thread of its own
    app         the routes, behind `security`
    exchange    one request and its answer: body, JSON, events, the client's leaving
    replies     what a reply's events become: reasoning, text, log-probabilities, usage
    chat, tokens, models   the endpoints
    texts   those of plain text: completing, scoring and embedding it
    responses, anthropic   the Responses API and Anthropic's Messages, over the same replies

Importing this package imports neither uvicorn nor starlette; `serving` does.
"""
