"""LM Studio's REST API over the same replies as chats. Below /api/v0 chats, texts and vectors are OpenAI's.

    models  the lists of models (/api/v0, /api/v1), loading and unloading them (/api/v1)
    replies chats and texts of /api/v0: OpenAI's, with statistics
    chat    POST /api/v1/chat, whose conversations the server keeps
    sockets its WebSocket API, which its SDKs speak

Source: LM Studio's documentation, "LM Studio REST API" (lmstudio.ai/docs/developer/rest).
"""
