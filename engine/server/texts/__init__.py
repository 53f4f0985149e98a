"""Plain text instead of messages: completing, scoring and embedding it.

completions, embeddings   the endpoints
scoring, embedding        their work on the model's thread
"""
