"""The window: views over services over item models over a store; only this part knows Qt.

Words
-----
Each has one meaning here; rooms have the same names in views, services and store.

chat list: the conversations of the sidebar, pinned, in folders and by date.
composer: where a message is written, with its files and the queue of messages that wait.
context: what a reply in one conversation depends on: settings, system prompt, persona, participants.
controller: connects the views of a room with its services.
conversation: messages as a tree, of which one path is shown; people are told of a chat.
draft: text that is not sent yet.
item model: plain data as a Qt model, for lists and tables.
notebook: a text that the user and the model write in turn.
participant: who speaks in a conversation, if not simply the user and the model.
path: the messages from the first to the last one that is shown.
persona: a name, a picture, a system prompt, a preset and a model that go together.
preset: sampling values under a name.
provenance: what a reply was made from.
row: one piece of the transcript: a paragraph, a table, a piece of code, a footer.
service: what happens behind the views; it knows no widget.
session: the open conversation and the engine that answers in it.
source layer: where a setting's value comes from: default, model, folder, persona, conversation.
store: what is kept on disk, without Qt.
transcript: a conversation on the screen.
transfer: conversations as files, of this program and of others.
turn: a message and the reply to it.
"""
