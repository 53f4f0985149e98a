"""Anthropic's Messages API over the same replies as chats.

    messages       the endpoints
    conversation   from the messages and tools of a request to the engine's
    threads        conversations that are held between requests
    blocks         from the pieces of a reply to content blocks and the events that report them

Source: Anthropic's API reference, "Messages", "Streaming messages" and "Count message tokens".
"""
