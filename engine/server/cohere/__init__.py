"""Cohere's API: chats and vectors.

request     from the body of a chat to the engine's request
message     from the pieces of a reply to a message and the events that report it
chat        POST /v2/chat
embed       POST /v2/embed
first       POST /v1/chat

Source: Cohere's API reference (docs.cohere.com), "Chat" and "Embed", version 2.
"""
