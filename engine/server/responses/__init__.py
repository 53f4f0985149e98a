"""OpenAI's Responses API over the same replies as chats.

    create   the endpoints that write responses
    kept     those of responses that were written
    items    from the items of a request to the messages of a conversation
    output   from the pieces of a reply to output items and the events that report them
    stored   responses that later requests continue

Source: OpenAI's API reference, "Responses" and "Streaming events".
"""
