"""ChatSession: what the window talks to. The state of a conversation's turn, and the only caller of engine room and store.

One turn: `submit` saves the user's message and shows it, adds an empty running reply, and asks the engine; what
arrives (`reply_runner.py`) reaches the item model once a frame and the store twice a second; the end is saved with its
statistics. A reply belongs to its own conversation: the user may look at another one meanwhile.
"""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QObject, Signal, Slot

from desktop.items.conversations import ConversationsModel
from desktop.items.messages import MessageItem, MessagesModel
from desktop.services.model_slot import Describe, OpenChat, describe, open_chat
from desktop.services.paths import find_item, request_messages, show_items
from desktop.services.replies import reason_text, stats_of
from desktop.services.reply_runner import ReplyRunner
from desktop.services.session_settings import SettingsSession, told
from desktop.services.undo import UndoStack
from desktop.settings import MODEL_SETTINGS
from desktop.store.conversations import ConversationStore, ConversationSummary, SearchHit, StoredMessage
from desktop.store.database import StoreError
from desktop.store.preferences import Preferences
from engine.core import ChatRequest, ModelInfo
from engine.settings import CacheSettings, LoadSettings, SamplerSettings, Settings, StopSettings

__all__ = ["ChatSession"]

_REFUSALS = {
    "no_model": "No model is loaded: open one first, then send again. Your text is kept.",
    "loading": "The model is still loading: send again when it is ready. Your text is kept.",
    "stopping": "The last task is still being stopped: send again in a moment. Your text is kept.",
    "prefill": "A reply is still being prepared{where}: stop it with Esc or wait. Your text is kept.",
    "answering": "A reply is still being written{where}: stop it with Esc or wait. Your text is kept.",
}


class ChatSession(SettingsSession):
    """The open conversation and the running reply. Lives on the GUI thread; methods that return False said why in `notice`.

    `messages` and `conversations` are the item models of the transcript and the sidebar.

    Signals:
        state_changed(str): one of `engine_room.STATES`.
        progress(str stage, int done, int total): of loading and of reading the prompt; total 0 is unknown.
        stats_changed(object, str reason): the `Stats` (or None) of the latest reply of the open conversation.
        model_changed(object): the `ModelInfo` of the loaded model, or None.
        conversation_changed(int): another conversation is open.
        title_changed(str): the open conversation's title.
        and `notice` and `settings_changed` of `SettingsSession`; `error_details` has the traceback of the last bug told.
        undo_available(bool, str what)
    """

    state_changed = Signal(str)
    progress = Signal(str, int, int)
    stats_changed = Signal(object, str)
    model_changed = Signal(object)
    conversation_changed = Signal(int)
    title_changed = Signal(str)
    undo_available = Signal(bool, str)

    def __init__(
        self,
        store: ConversationStore,
        preferences: Preferences,
        open_chat: OpenChat = open_chat,
        describe: Describe = describe,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(store, preferences, parent)
        self.messages = MessagesModel(self)
        self.conversations = ConversationsModel(self)
        self.error_details = ""
        self._undo = UndoStack(self)
        self._undo.available_changed.connect(self.undo_available)
        self._outdated_told = False
        self._runner = ReplyRunner(store, open_chat, describe, self)
        self._runner.grown.connect(self._on_grown)
        self._runner.changed.connect(self._on_changed)
        self._runner.ended.connect(self._on_ended)
        self._runner.trouble.connect(self._on_trouble)
        self._engine = self._runner.engine
        self._engine.state_changed.connect(self.state_changed)
        self._engine.progress.connect(self.progress)
        self._engine.model_changed.connect(self._on_model)
        self._engine.load_failed.connect(self._on_load_failed)

    @property
    def state(self) -> str:
        """One of `engine_room.STATES`."""
        return self._engine.state

    @property
    def model(self) -> ModelInfo | None:
        """The loaded model."""
        return self._engine.model

    @property
    def replying_in(self) -> int:
        """The conversation whose reply runs; 0 when none does."""
        return self._runner.conversation_id

    @told
    def restore(self) -> bool:
        """At the start: fill the sidebar, open the conversation of last time (else a new one), tell what had to be repaired."""
        for sentence in (*self._store.notices, *self.preferences.notices):
            self.notice.emit(sentence, "warning")
        rows = self._store.list()
        self.conversations.reset(rows)
        last = self.preferences.last_conversation
        return self._open(last) if any(row.id == last for row in rows) else self.new_conversation()

    def close(self) -> bool:
        """Save what runs, release the model and end the engine's thread; False when that did not end in time."""
        return self._runner.close()

    # -- model --------------------------------------------------------------------------------------------------------

    def open_model(self, path: str | Path) -> None:
        """Load a model in place of the present one, with the settings of the Model and Context panes."""
        self._outdated_told = False
        self._engine.open_model(Path(path), self.settings(LoadSettings), self.settings(CacheSettings))

    def reload_model(self) -> None:
        """Load the present model again, so that changed settings take effect."""
        if self.model is not None:
            self.open_model(self.model.path)

    def unload_model(self) -> None:
        """Release the model's memory."""
        self._engine.unload_model()

    # -- conversations ------------------------------------------------------------------------------------------------

    @told
    def new_conversation(self) -> bool:
        """Open an empty conversation; one that is there already is used, so that they do not pile up."""
        newest = self._store.list()[:1]
        if newest and not newest[0].title and not self._store.path(newest[0].id):
            return self._open(newest[0].id)
        made = self._store.create()
        self._touched(made.id)
        return self._open(made.id)

    @told
    def open_conversation(self, conversation_id: int) -> bool:
        """Show another conversation; a reply that runs goes on."""
        return self._open(conversation_id)

    @told
    def open_message(self, message_id: int) -> bool:
        """Show the conversation and the variants that lead to a message: for a hit of the search."""
        self._store.show_variant(message_id)
        return self._open(self._store.message(message_id).conversation_id)

    @told
    def rename_conversation(self, conversation_id: int, title: str) -> bool:
        """Give a title; an empty one brings the automatic title back."""
        self._store.rename(conversation_id, title)
        self._touched(conversation_id)
        return True

    @told
    def delete_conversation(self, conversation_id: int) -> bool:
        """Take it out of the list (undoable); a reply that runs in it is stopped."""
        if self.replying_in == conversation_id:
            self.stop()
        self._store.delete(conversation_id)
        self.conversations.remove(conversation_id)
        self._undo.push("delete conversation", lambda: self._restore_conversation(conversation_id))
        if conversation_id == self._conversation:
            rest = self._store.list()[:1]
            return self._open(rest[0].id) if rest else self.new_conversation()
        return True

    @told
    def restore_conversation(self, conversation_id: int) -> bool:
        """Bring a deleted conversation back and open it."""
        self._restore_conversation(conversation_id)
        return True

    def search(self, query: str, limit: int = 50) -> tuple[SearchHit, ...]:
        """Messages with all the words of `query`, latest first; none, with a notice, when the store has trouble."""
        try:
            return self._store.search(query, limit)
        except StoreError as error:
            self.notice.emit(str(error), "error")
            return ()

    # -- turns --------------------------------------------------------------------------------------------------------

    @told
    def submit(self, text: str) -> bool:
        """Send a message and start the reply. False (the text stays with the caller) when there is nothing to send or no way to answer."""
        if not text.strip() or not self._ready():
            return False
        items = self.messages.items()
        message = self._store.add_message(self._conversation, items[-1].id if items else None, "user", text.strip("\n").rstrip())
        return self._begin(message.id)

    def stop(self) -> None:
        """End the running reply within one token, or the loading of a model at its next step."""
        self._engine.stop()

    @told
    def regenerate(self, message_id: int) -> bool:
        """Another reply beside this one; for a user's message, another reply to it."""
        if not self._ready():
            return False
        message = self._store.message(message_id)
        return self._begin(message.parent_id if message.role == "assistant" else message.id)

    @told
    def continue_reply(self, message_id: int) -> bool:
        """Write on from the end of the last reply."""
        items = self.messages.items()
        if not items or items[-1].id != message_id or items[-1].role != "assistant":
            self.notice.emit("Only the last reply can be continued: regenerate this one, or delete what follows it.", "warning")
            return False
        return self._ready() and self._begin(self._store.message(message_id).parent_id, self._store.message(message_id))

    @told
    def edit(self, message_id: int, text: str) -> bool:
        """Put another text beside the message's own; a user's message is answered anew."""
        message = self._store.message(message_id)
        if self._runner.message_id == message_id:
            self.notice.emit("This reply is still being written: stop it before editing.", "warning")
            return False
        if message.role == "assistant" and text == message.text:
            return True
        if message.role == "user" and (not text.strip() or not self._ready()):
            return False
        is_last = [item.id for item in self.messages.items()][-1:] == [message_id]
        edited = self._store.edit_message(message_id, text)
        if message.role == "user":
            return self._begin(edited.id)
        self._show_path()
        if not is_last:
            self.notice.emit("What followed is kept with the earlier version of the reply: the arrows below it lead there.", "info")
        return True

    @told
    def delete_message(self, message_id: int) -> bool:
        """Take a message and what follows it away (undoable); a reply that runs among them is stopped."""
        ids = [item.id for item in self.messages.items()]
        if message_id in ids and self._runner.message_id in ids[ids.index(message_id) :]:
            self.stop()
        self._store.delete_message(message_id)
        self._undo.push("delete message", lambda: self._restore_message(message_id))
        self._show_path()
        return True

    @told
    def show_variant(self, message_id: int, step: int) -> bool:
        """Show the variant `step` (-1 or +1) beside the message; False when there is none."""
        variants = self._store.variants(message_id)
        place = variants.index(message_id) + step
        if not 0 <= place < len(variants):
            return False
        self._store.show_variant(variants[place])
        self._show_path()
        return True

    @told
    def undo(self) -> bool:
        """Take back the latest deletion."""
        return self._undo.undo()

    # -- parts --------------------------------------------------------------------------------------------------------

    def _ready(self) -> bool:
        """Whether a reply can start; if not, says why."""
        if self.state == "idle" and self._conversation:
            return True
        elsewhere = self.replying_in not in (0, self._conversation)
        where = f" in “{self._store.get(self.replying_in).title}”" if elsewhere else ""
        self.notice.emit(_REFUSALS.get(self.state, _REFUSALS["stopping"]).format(where=where), "warning")
        return False

    def _begin(self, parent_id: int | None, continued: StoredMessage | None = None) -> bool:
        """Start a reply under `parent_id`, or at the end of `continued`."""
        prompt = self._store.get(self._conversation).system_prompt
        path = self._store.path(self._conversation)
        goes_on = continued is not None and bool(continued.text.strip())
        last = continued.id if goes_on and continued is not None else parent_id
        request = ChatRequest(request_messages(prompt, path, last), self.settings(SamplerSettings), self.settings(StopSettings), goes_on)
        if continued is None:
            message = self._store.add_message(self._conversation, parent_id, "assistant", "", "running")
        else:
            self._store.resume(continued.id)
            message = continued
        if self.model is not None:
            self._store.set_model_path(self._conversation, self.model.path)
        self._runner.begin(request, message)
        self._touched(self._conversation)
        self._show_path()
        return True

    def _open(self, conversation_id: int) -> bool:
        self._enter(conversation_id)
        self.messages.reset(self._items())
        self.conversation_changed.emit(conversation_id)
        self.title_changed.emit(self.title)
        self._tell_stats()
        self.preferences.remember_conversation(conversation_id)
        return True

    def _items(self) -> tuple[MessageItem, ...]:
        self._runner.flush()
        return tuple(map(self._runner.item, self._store.path(self._conversation)))

    def _show_path(self) -> None:
        show_items(self.messages, self._items())

    def _touched(self, conversation_id: int) -> None:
        """Bring title and place in the sidebar up to date."""
        found = self._store.get(conversation_id)
        if not found.deleted:
            self.conversations.put(ConversationSummary(found.id, found.title, found.updated_at))
        if conversation_id == self._conversation:
            self.title_changed.emit(found.title)

    def _tell_stats(self) -> None:
        last = next((m for m in reversed(self._store.path(self._conversation)) if m.role == "assistant"), None)
        saved = last.stats if last is not None else {}
        self.stats_changed.emit(stats_of(saved), reason_text(saved))

    def _restore_conversation(self, conversation_id: int) -> None:
        self._store.restore(conversation_id)
        self._touched(conversation_id)
        self._open(conversation_id)

    def _restore_message(self, message_id: int) -> None:
        self._store.undelete_message(message_id)
        conversation_id = self._store.message(message_id).conversation_id
        if self._store.get(conversation_id).deleted:
            self._store.restore(conversation_id)
            self._touched(conversation_id)
        self._open(conversation_id) if conversation_id != self._conversation else self._show_path()

    def _settings_put(self, cls: type[Settings]) -> None:
        super()._settings_put(cls)
        if cls in MODEL_SETTINGS and self.model is not None and not self._outdated_told:
            self._outdated_told = True
            self.notice.emit("This takes effect when the model is loaded again.", "info")

    @Slot(int, str)
    def _on_grown(self, message_id: int, text: str) -> None:
        if find_item(self.messages, message_id) is not None:
            self.messages.append_text(message_id, text)

    @Slot(int)
    def _on_changed(self, message_id: int) -> None:
        if find_item(self.messages, message_id) is not None:
            self._refresh()

    @Slot(int, int)
    def _on_ended(self, conversation_id: int, message_id: int) -> None:
        self._refresh(conversation_id)

    @told
    def _refresh(self, conversation_id: int = 0) -> bool:
        """Show the path as it is now; for a conversation whose reply ended, its place and statistics too."""
        if conversation_id:
            self._touched(conversation_id)
        if conversation_id in (0, self._conversation):
            self._show_path()
        if conversation_id == self._conversation:
            self._tell_stats()
        return True

    @Slot(str, str)
    def _on_trouble(self, sentence: str, details: str) -> None:
        self.error_details = details
        self.notice.emit(sentence, "error")

    @Slot(object)
    def _on_model(self, info: ModelInfo | None) -> None:
        if info is not None:
            self._remember_model(info.path)
        self.model_changed.emit(info)

    @told
    def _remember_model(self, path: str) -> bool:
        self.preferences.remember_model(path)
        return True

    @Slot(str, str, str)
    def _on_load_failed(self, path: str, sentence: str, details: str) -> None:
        self._on_trouble(sentence, details)
