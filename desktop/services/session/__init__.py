"""The chats and their turns. `ChatSession` is a facade of parts that share `VisibleChat`, the open chat.

A reply is asked for with a `ConversationContext`: a chat's settings, prompt, persona and participants, read
for any chat. So a message that waited is sent in its own chat, and the open one stays as it is.
"""
