"""The command palette: what it finds, in which order it shows that, and what choosing does."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from PySide6.QtCore import QObject, QTimer
from PySide6.QtWidgets import QWidget

from desktop.items.chats.conversations import UNTITLED, date_group
from desktop.items.commands.palette import KINDS, Entry, EntrySource, Match, PaletteRow, narrowed
from desktop.items.commands.synonyms import setting_words
from desktop.services.models.local_models import LocalModelsService
from desktop.services.session.chat_session import ChatSession
from desktop.services.settings.presets import PresetService
from desktop.services.system.debounce import debounce
from desktop.settings import PANES, PREFERENCES, preference_page
from desktop.store.database.database import StoreError
from desktop.views.commands.actions import COMMANDS
from desktop.views.commands.controller import CommandController
from desktop.views.widgets.listening import listen
from engine.settings import Settings, setting_info
from engine.words import N_, _, translate

if TYPE_CHECKING:
    from desktop.views.commands.palette import Palette

__all__ = ["PaletteController", "PaletteTargets"]

MESSAGE_MS = 90
"""Messages are searched once typing has paused for this long."""
_EACH, _ALL, _RECENT = 6, 100, 6
_LOOK_MS = 250
"""The palette opens before the model folders are read again: a thread that reads them would slow it down."""
_PREFERENCES = N_("Preferences")
_LEAST = 2
"""From this many letters on, messages are searched unasked."""


class PaletteTargets(NamedTuple):
    """What choosing opens: by chat id, message id, settings class and field name (in the pane, or in the
    Preferences), page of the Preferences, path, or persona id.
    """

    open_chat: Callable[[int], object]
    open_message: Callable[[int], object]
    show_setting: Callable[[type[Settings], str], object]
    show_preference: Callable[[int, str], object]
    load_model: Callable[[str], object]
    look_for_models: Callable[[], object]
    personas: Callable[[], Iterable[tuple[int, str]]]
    choose_persona: Callable[[int], object]


class PaletteController(QObject):
    """Makes the palette when it is first opened."""

    def __init__(
        self,
        window: QWidget,
        session: ChatSession,
        local_models: LocalModelsService,
        presets: PresetService,
        commands: CommandController,
        targets: PaletteTargets,
    ) -> None:
        super().__init__(window)
        self._window, self._session, self._local_models, self._presets = (
            window,
            session,
            local_models,
            presets,
        )
        self._commands, self._targets = commands, targets
        self._palette: Palette | None = None
        self._sources: dict[str, EntrySource] = {}
        self._asked = ""
        self._later = debounce(self, self._find_messages, MESSAGE_MS)
        model = session.conversations
        for signal in (
            model.modelReset,
            model.rowsInserted,
            model.rowsRemoved,
            model.rowsMoved,
            model.dataChanged,
        ):
            listen(self, signal, lambda *_where: self._forget_chats())
        listen(self, local_models.changed, lambda _entries: self._show_models())

    def commands(self) -> dict[str, Callable[[], object]]:
        """The command that opens the palette."""
        return {"palette": self.toggle}

    @property
    def palette(self) -> Palette:
        """The palette, made when it is first used."""
        if self._palette is None:
            from desktop.views.commands.palette import Palette  # only when it is needed

            self._palette = Palette(self._window)
            self._palette.asked.connect(self._ask)
            self._palette.chosen.connect(self._choose)
            self._palette.closed.connect(self._later.stop)
        return self._palette

    def toggle(self) -> None:
        """Open the palette over the window, or close it."""
        palette = self.palette
        if palette.isVisible():
            palette.close_palette()
            return
        for kind in ("action", "setting", "model"):
            self._sources.pop(kind, None)
        palette.open()
        # after it is painted, before the first key comes
        QTimer.singleShot(0, self, self._source("chat").prepare)
        QTimer.singleShot(_LOOK_MS, self, self._targets.look_for_models)

    # -- what can be found

    def _source(self, kind: str) -> EntrySource:
        if kind not in self._sources:
            make = {
                "chat": self._chats,
                "action": self._offered,
                "setting": self._settings,
                "model": self._models,
            }[kind]
            self._sources[kind] = make()
        return self._sources[kind]

    def _chats(self) -> EntrySource:
        session = self._session
        try:
            temporary = session.stores.temporary.list()
        except StoreError:  # the list of chats reports it
            temporary = ()
        known = {row.id: row for row in (*temporary, *session.conversations.summaries()) if row.title}
        rows = list(known.values())
        today = datetime.date.today()

        def entry(number: int) -> Entry:
            row = rows[number]
            return Entry(
                "chat", f"chat:{row.id}", row.title or translate(UNTITLED), date_group(row.updated_at, today)
            )

        return EntrySource([row.title for row in rows], entry)

    def _offered(self) -> EntrySource:
        commands, entries = self._commands, []
        for command in COMMANDS:
            if command.text and command.name != "palette":
                entries.append(
                    Entry(
                        "action",
                        f"action:{command.name}",
                        commands.by_name[command.name].text().replace("&", ""),
                        "",
                        command.words,
                        commands.keymap.shown(command.name),
                        commands.states.why_not(command.name),
                    )
                )
        for preset in self._presets.presets():
            entries.append(
                Entry(
                    "action",
                    f"preset:{preset.name}",
                    _("Use the preset {preset}", preset=preset.name),
                    _("Sampling"),
                    "sampler style character",
                )
            )
        for number, name in self._targets.personas():
            entries.append(
                Entry(
                    "action",
                    f"persona:{number}",
                    _("Use the persona {name}", name=name),
                    _("This chat"),
                    "character assistant role",
                )
            )
        return EntrySource.of(entries)

    def _settings(self) -> EntrySource:
        shown = [(title, cls, name) for title, cls in PANES for name in cls().to_json()]
        entries = [_setting(translate(title), cls, name) for title, cls, name in shown]
        for number, page in enumerate(PREFERENCES):
            where = f"{translate(_PREFERENCES)}: {translate(page.title)}"
            entries += [_setting(where, page.cls, name) for name in page.names if page.cls is not None]
            entries.append(Entry("setting", f"page:{number}", where, "", f"{page.words} settings"))
        words = "instructions role behaviour character persona"
        entries.append(Entry("setting", "setting:prompt", _("System prompt"), _("This chat"), words))
        return EntrySource.of(entries)

    def _models(self) -> EntrySource:
        loaded = self._session.model.path if self._session.model is not None else ""
        entries = []
        for found in self._local_models.choices:
            detail = _("loaded") if found.path == loaded else found.detail
            entries.append(
                Entry(
                    "model",
                    f"model:{found.path}",
                    found.name,
                    detail,
                    f"{found.source} {found.path} load",
                    trouble=found.trouble,
                )
            )
        return EntrySource.of(entries)

    def _forget_chats(self) -> None:
        self._sources.pop("chat", None)

    def _show_models(self) -> None:
        """The models changed while the palette is open: only a list of models is shown again."""
        self._sources.pop("model", None)
        if self._palette is not None and self._palette.isVisible() and self._palette.kind == "model":
            self._ask(self._palette.box.text())

    # -- what is shown

    def _ask(self, text: str) -> None:
        """Show what matches the text; messages follow later."""
        self._asked = text
        kind, query = narrowed(text)
        if not query and not kind:
            rows = self._at_first()
        elif kind == "message":
            rows = []
        elif kind:
            rows = _section(translate(KINDS[kind].heading), self._source(kind).find(query, _ALL))
        else:
            rows = self._everything(query)
        wants_messages = bool(query) and (kind == "message" or (not kind and len(query) >= _LEAST))
        nothing = _("No results for “{query}”.", query=query) if query else _("Nothing to show yet.")
        if kind == "message" and not query:
            nothing = _("Type words to find in messages.")
        self.palette.show_rows(rows, _("Searching messages…") if wants_messages and not rows else nothing)
        if wants_messages:
            self._later.start()
        else:
            self._later.stop()

    def _everything(self, query: str) -> list[PaletteRow]:
        """A section for each kind, the one with the best match first."""
        sections = []
        for place, kind in enumerate(("chat", "action", "setting", "model")):
            found = self._source(kind).find(query, _EACH)
            if found:
                usable = sorted(found, key=lambda match: bool(match.entry.trouble))
                sections.append(
                    (
                        -usable[0].score + 30 * bool(usable[0].entry.trouble),
                        place,
                        _section(translate(KINDS[kind].heading), usable),
                    )
                )
        return [row for *_unused, rows in sorted(sections, key=lambda each: each[:2]) for row in rows]

    def _at_first(self) -> list[PaletteRow]:
        """Before anything is typed: what was used last, then the latest chats and the actions."""
        known = {
            match.entry.key: match
            for kind in ("action", "setting", "model")
            for match in self._source(kind).first(1000)
        }
        chats = self._source("chat")
        known |= {match.entry.key: match for match in chats.first(_ALL)}
        recent = [
            known[key]
            for key in self._session.preferences.recent_choices
            if key in known and not known[key].entry.trouble
        ][:_RECENT]
        seen = {match.entry.key for match in recent}
        own = f"chat:{self._session.conversation}"
        latest = [
            match
            for match in chats.first(_EACH + 1)
            if match.entry.key not in seen and match.entry.key != own
        ][: _EACH - 1]
        actions = [
            match
            for match in self._source("action").first(_ALL)
            if match.entry.key not in seen and not match.entry.trouble
        ]
        return [
            *_section(_("Recently used"), recent),
            *_section(_("Chats"), latest),
            *_section(_("Actions"), actions),
        ]

    def _find_messages(self) -> None:
        """Search the messages, after the rest; the hits are shown below."""
        kind, query = narrowed(self._asked)
        hits = self._session.search(query, 50 if kind == "message" else 8)
        found = []
        for hit in hits:
            entry = Entry(
                "message", f"message:{hit.message_id}", hit.snippet, hit.title or translate(UNTITLED)
            )
            found.append(Match(entry, spans=hit.spans))
        palette = self.palette
        if found:
            palette.add_rows(_section(translate(KINDS["message"].heading), found))
        elif not palette.rows.rows:
            palette.show_rows([], _("No results for “{query}”, and no message contains it.", query=query))

    # -- what choosing does

    def _choose(self, entry: Entry) -> None:
        sort, _unused, what = entry.key.partition(":")
        if sort != "message":
            self._session.preferences.remember_choice(entry.key)
        if sort == "chat":
            self._targets.open_chat(int(what))
        elif sort == "message":
            self._targets.open_message(int(what))
        elif sort == "action":
            action = self._commands.by_name[what]
            QTimer.singleShot(0, action, action.trigger)
        elif sort == "preset":
            self._presets.choose(what)
        elif sort == "persona":
            self._targets.choose_persona(int(what))
        elif sort == "page":
            self._targets.show_preference(int(what), "")
        elif sort == "model":
            self._targets.load_model(what)
        else:
            self._show_setting(*what.partition(".")[::2])

    def _show_setting(self, cls_name: str, name: str) -> None:
        pages = (page.cls for page in PREFERENCES if page.cls is not None)
        classes = {cls.__name__: cls for cls in (*(cls for _unused, cls in PANES), *pages)}
        cls = classes.get(cls_name, Settings)
        page = preference_page(cls, name)
        if page < 0:
            self._targets.show_setting(cls, name)
        else:
            self._targets.show_preference(page, name)


def _setting(title: str, cls: type[Settings], name: str) -> Entry:
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    info = setting_info(fields[name])
    choices = " ".join(label for _unused, label in info.choices)
    words = f"{title} {info.group} {setting_words(cls, name)} {choices} {info.help}"
    return Entry("setting", f"setting:{cls.__name__}.{name}", info.label, title, words)


def _section(heading: str, matches: Iterable[Match]) -> list[PaletteRow]:
    return [PaletteRow(match, "" if number else heading) for number, match in enumerate(matches)]
