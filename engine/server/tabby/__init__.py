"""TabbyAPI's own endpoints; its chats and texts are OpenAI's, with more names of parameters (openai.aliases).

models      the loaded model, the list, loading
tokens      token ids of texts and messages, and their text
fixed       chat templates, adapters and overrides of sampling, which stay as the server was started
"""
