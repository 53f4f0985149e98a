"""Plain text instead of messages: completing, scoring and embedding it.

completion                llama.cpp's form of completing
completions, embeddings   the endpoints
scoring, embedding        their work on the model's thread
"""
