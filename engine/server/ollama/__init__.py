"""Ollama's API over the same replies as chats.

    conversation   from the body of a request to the engine's
    context        conversations as numbers, which go back and forth
    replies        chats and texts, as lines of JSON
    models         what there is, and vectors of texts

Source: Ollama's API reference ("Generate a chat message", "Generate a response", "Generate embeddings").
"""
