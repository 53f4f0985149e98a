"""The window: views over services over item models over a store; only this part knows Qt.

Words
-----
Each has one meaning here; rooms have the same names in views, services and store.

author: who wrote a message: a participant, the user under one of their names, or simply the model or user.
cast: the participants of a conversation, and the names of the user.
chat list: the conversations in the sidebar: pinned ones, those in folders, and the others by date.
comparison: several replies to one message, side by side.
composer: where a message is written, with its files and the queue of messages that wait.
context: what a reply in one conversation depends on: settings, system prompt, persona, participants.
controller: connects the views of a room with its services.
conversation: a tree of messages, of which one path is shown; the window calls it a chat.
conversation store: the conversations of one database, on disk or (temporary ones) in memory.
draft: unsent text.
item model: plain data as a Qt model, for lists and tables.
library: the models on this computer and on the hub.
notebook: a text that the user and the model write in turns.
participant: someone other than the plain model who answers in a conversation.
path: the messages shown, from the first to the last.
persona: a name, a picture, a system prompt, a preset and a model that belong together.
preset: sampling values under a name.
provenance: what a reply was made from.
row: one piece of the transcript: a paragraph, a table, a piece of code, a footer.
service: what happens behind the views; it knows no widgets.
session: the open conversation and the engine that answers in it.
source layer: where a setting's value comes from: default, model, folder, persona, conversation.
store: what is kept on disk, without Qt.
transcript: a conversation on the screen.
transfer: import and export of conversations, as files of this program and of others.
turn: a message and the reply to it.
"""
