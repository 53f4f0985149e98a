"""The page of an empty chat: how to get a first model, or a friendly word when one is ready."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QEvent, Qt, QTimer, Signal
from PySide6.QtGui import QFont, QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QHBoxLayout, QLabel, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from desktop.items.models.local_models import ModelEntry, starter_inside, starter_size
from desktop.views.layout.fill import fill
from desktop.views.widgets.icons import application_icon
from desktop.views.widgets.progress_bar import progress_bar
from desktop.views.widgets.scroll_area import VerticalScrollArea
from desktop.views.widgets.text_label import set_styled, text_label
from desktop.views.widgets.wrapping_text import WrappingButton
from engine.words import N_, _, dotted, translate

__all__ = ["BASE_MODEL", "WelcomePage", "starter_labels"]

STARTER = N_("It is quick to get and runs anywhere, but it is very small. Larger models answer much better.")
OTHER_WAYS = N_(
    "Or open a GGUF file or a folder of safetensors files that you have, or drag it onto this window."
)
COLUMN = 520
"""The page's widest column, in pixels at the usual text size."""
USUAL_LINE = 16
"""The height of a line in pixels at the usual text size."""
MOST_FOUND = 3
"""The number of local models offered here; the library has all of them."""
BEGIN = N_("Write a message below, or start with one of these.")
BASE_MODEL = N_(
    "This is a base model without a chat template. It can continue a text, but it was not trained to "
    "answer questions, so its replies in a chat may make no sense. Use it in a notebook."
)
EXAMPLES = (
    N_("Explain how a rainbow forms"),
    N_("Write a short poem about autumn rain"),
    N_("Give me three ideas for dinner"),
)


def starter_labels() -> tuple[str, str]:
    """The text of the button that brings the starter model, and a shorter one for narrow windows."""
    if starter_inside():
        return _("Chat with the starter model (SmolLM2)"), _("Chat with the starter model")
    return _("Download starter model (SmolLM2, {starter_size})", starter_size=starter_size()), _(
        "Download starter ({starter_size})", starter_size=starter_size()
    )


def _label(text: str, tone: str = "") -> QLabel:
    label = text_label(text, tone, wraps=True, plain=True)
    label.setAlignment(Qt.AlignmentFlag.AlignHCenter)
    return label


class _ActivityBar(QWidget):
    """A progress bar with a sentence above it; without a total of 2 or more it only moves."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.sentence = _label("", "muted")
        self.bar = progress_bar(name)
        fill(QVBoxLayout(self), self.sentence, self.bar, margins=(0, 0, 0, 0))

    def show_progress(self, sentence: str, done: int, total: int) -> None:
        self.sentence.setText(sentence)
        self.bar.setRange(0, 1000 if total > 1 else 0)
        if total > 1:
            self.bar.setValue(min(1000, done * 1000 // total))


class _ModelButton(QPushButton):
    """A button for a model; text that does not fit is cut at its end."""

    def __init__(self, entry: ModelEntry) -> None:
        super().__init__()
        self._words = dotted(entry.name, entry.detail, entry.source)
        self.setAccessibleName(_("Load {words}", words=self._words))
        self.setToolTip(entry.path)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.setText(self._words)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.setText(
            self.fontMetrics().elidedText(self._words, Qt.TextElideMode.ElideRight, self.width() - 28)
        )


class _Found(QWidget):
    """The models on this computer, one button each; hidden while there are none."""

    chosen = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self._entries: tuple[ModelEntry, ...] = ()
        self._buttons = QVBoxLayout()
        self._buttons.setSpacing(6)
        fill(
            QVBoxLayout(self),
            _label(_("Found on this computer"), "muted"),
            self._buttons,
            margins=(0, 8, 0, 0),
        )
        self.hide()

    def show_entries(self, entries: Sequence[ModelEntry]) -> None:
        usable = tuple(entry for entry in entries if not entry.trouble)[:MOST_FOUND]
        if usable == self._entries:
            return
        self._entries = usable
        for button in self.findChildren(_ModelButton):
            button.deleteLater()
        for entry in usable:
            button = _ModelButton(entry)
            button.clicked.connect(lambda _checked=False, path=entry.path: self.chosen.emit(path))
            self._buttons.addWidget(button)
        self.setVisible(bool(usable))


class _FirstRun(QWidget):
    """No model yet: one clear button, its progress, and other ways."""

    download_requested = Signal()
    cancel_requested = Signal()
    open_file_requested = Signal()
    open_folder_requested = Signal()
    get_requested = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.text = _label(
            _(
                "Inglenook runs language models on your own computer. Nothing you write leaves it unless "
                "you choose a model on a server."
            ),
            "muted",
        )
        self.trouble = _label("", "danger")
        self.trouble.hide()
        self.download = WrappingButton(starter_labels()[0])
        self.download.setProperty("tone", "primary")
        self.download.clicked.connect(self.download_requested)
        inside = starter_inside()
        self.progress = _ActivityBar(
            _("Copying the starter model") if inside else _("Downloading the starter model")
        )
        self.progress.hide()
        self.cancel = QPushButton(_("Cancel") if inside else _("Cancel download"))
        self.cancel.clicked.connect(self.cancel_requested)
        self.cancel.hide()
        open_file = WrappingButton(_("Open model file…"))
        open_folder = WrappingButton(_("Open model folder…"))
        self.better = WrappingButton(_("Choose a larger model…"))
        self.better.setToolTip(_("Show the recommended models for this computer's memory"))
        self.better.clicked.connect(self.get_requested)
        open_file.clicked.connect(self.open_file_requested)
        open_folder.clicked.connect(self.open_folder_requested)
        layout = fill(QVBoxLayout(self), self.text, spacing=10)
        layout.addSpacing(10)
        self.found = _Found()
        layout.addWidget(self.found)
        layout.addWidget(self.trouble)
        layout.addWidget(self.download, 0, Qt.AlignmentFlag.AlignHCenter)
        layout.addWidget(self.progress)
        layout.addWidget(self.cancel, 0, Qt.AlignmentFlag.AlignHCenter)
        layout.addWidget(_label(translate(STARTER), "muted"))
        layout.addWidget(self.better, 0, Qt.AlignmentFlag.AlignHCenter)
        layout.addSpacing(14)
        layout.addWidget(_label(translate(OTHER_WAYS), "muted"))
        self._ways = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._ways.addStretch(1)
        self._buttons = (open_file, open_folder)
        for button in self._buttons:
            self._ways.addWidget(button)
        self._ways.addStretch(1)
        layout.addLayout(self._ways)

    def fit(self, width: int) -> None:
        """The two ways side by side where they fit, otherwise below each other."""
        wide = sum(button.sizeHint().width() + self._ways.spacing() for button in self._buttons) <= width
        self._ways.setDirection(
            QBoxLayout.Direction.LeftToRight if wide else QBoxLayout.Direction.TopToBottom
        )


class _Ready(QWidget):
    """A model is loaded and the chat is empty."""

    example_chosen = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.text = _label("", "muted")
        layout = fill(QVBoxLayout(self), self.text, spacing=8)
        layout.addSpacing(8)
        self._examples = [WrappingButton(example) for example in map(translate, EXAMPLES)]
        for button, example in zip(self._examples, map(translate, EXAMPLES), strict=True):
            button.clicked.connect(lambda _checked=False, text=example: self.example_chosen.emit(text))
            layout.addWidget(button, 0, Qt.AlignmentFlag.AlignHCenter)
        self.notebook = QPushButton(_("New notebook"))
        self.notebook.setProperty("tone", "primary")
        layout.addWidget(self.notebook, 0, Qt.AlignmentFlag.AlignHCenter)
        layout.addStretch(1)

    def show_model(self, name: str, base: bool, host: str, stays: bool) -> None:
        """Show what the model can do, as `WelcomePage.show_ready`: a base model writes in notebooks."""
        ready = (
            _("{name} is ready. Your messages are sent to {host}.", name=name, host=host)
            if host
            else _("{name} is ready on this computer.", name=name)
        )
        if host and stays:
            ready = _(
                "{name} runs on {host}, but this chat stays on this computer. Choose a model "
                "on this computer.",
                name=name,
                host=host,
            )
        self.text.setText(translate(BASE_MODEL) if base else f"{ready} {translate(BEGIN)}")
        self.notebook.setVisible(base)
        for button in self._examples:
            button.setVisible(not base)


class WelcomePage(QWidget):
    """The page of an empty chat.

    `example_chosen(text)` offers a first message to the composer. `notebook_requested()`: the loaded model is
    for notebooks. `model_chosen(path)`: load one of the models of `show_models`; `get_requested()`: show
    the recommended models.
    """

    download_requested = Signal()
    cancel_requested = Signal()
    open_file_requested = Signal()
    open_folder_requested = Signal()
    get_requested = Signal()
    model_chosen = Signal(str)
    example_chosen = Signal(str)
    notebook_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName(_("Welcome"))
        self._mark = QLabel()
        self._mark.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self._mark.setPixmap(application_icon().pixmap(56, 56))
        self.title = _label(_("Welcome to Inglenook"))
        self._enlarge_title()
        self.first_run, self.ready, self.loading = _FirstRun(), _Ready(), QWidget()
        self.loading_bar = _ActivityBar(_("Loading the model"))
        fill(QVBoxLayout(self.loading), self.loading_bar, 1)
        self._column = column = QWidget()
        self._fit_column()
        inside = fill(QVBoxLayout(column), 2, self._mark, self.title, spacing=10)
        # Not a stack: hidden widgets in one would keep the page as wide as they are.
        for part in (self.first_run, self.ready, self.loading):
            inside.addWidget(part)
        self._show_part(self.first_run)
        inside.addStretch(3)
        page = QWidget()
        page.setObjectName("welcomePage")
        fill(QHBoxLayout(page), 1, (column, 1000), 1)
        scroll = VerticalScrollArea(page)  # large text in a small window is higher than the window
        scroll.setObjectName("welcomeScroll")
        fill(QVBoxLayout(self), scroll, margins=(0, 0, 0, 0))
        self.first_run.download_requested.connect(self.download_requested)
        self.first_run.cancel_requested.connect(self.cancel_requested)
        self.first_run.open_file_requested.connect(self.open_file_requested)
        self.first_run.open_folder_requested.connect(self.open_folder_requested)
        self.first_run.get_requested.connect(self.get_requested)
        self.first_run.found.chosen.connect(self.model_chosen)
        self.ready.example_chosen.connect(self.example_chosen)
        self.ready.notebook.clicked.connect(self.notebook_requested)

    def _show_part(self, shown: QWidget) -> None:
        for part in (self.first_run, self.ready, self.loading):
            part.setVisible(part is shown)

    def show_first_run(self) -> None:
        """Show that no model is loaded."""
        self.title.setText(_("Welcome to Inglenook"))
        self._show_part(self.first_run)

    def show_models(self, entries: Sequence[ModelEntry]) -> None:
        """Show the models on this computer."""
        self.first_run.found.show_entries(entries)
        tone = "" if any(not entry.trouble for entry in entries) else "primary"  # they answer better
        set_styled(self.first_run.download, "tone", tone)

    def show_download(self, sentence: str, done: int, total: int) -> None:
        """Show the download of the starter: `done` of `total` bytes (0 while unknown)."""
        self._show_part(self.first_run)
        self.first_run.trouble.hide()
        self.first_run.progress.show_progress(sentence, done, total)
        self._set_busy(True)

    def end_download(self, trouble: str = "") -> None:
        """Show the end of the download; `trouble` is a sentence about a failure, with a button to
        try again.
        """
        self._set_busy(False)
        self.first_run.trouble.setVisible(bool(trouble))
        self.first_run.trouble.setText(trouble)
        self._label_download()

    def show_loading(self, sentence: str, done: int, total: int) -> None:
        """Show that a model is being loaded."""
        self.title.setText(_("Preparing the model"))
        self.loading_bar.show_progress(sentence, done, total)
        self._show_part(self.loading)

    def show_ready(self, model_name: str, base: bool = False, host: str = "", stays: bool = False) -> None:
        """Show that a model is loaded; a `base` model has no chat template; one of a server has a `host`,
        which gets nothing of a chat that `stays` on this computer.
        """
        self.title.setText(_("This model is for notebooks") if base else _("What is on your mind?"))
        self.ready.show_model(model_name, base, host, stays)
        self._show_part(self.ready)

    def _enlarge_title(self) -> None:
        font = self.font()
        font.setPointSizeF(font.pointSizeF() * 1.6)
        font.setWeight(QFont.Weight.DemiBold)
        self.title.setFont(font)

    def changeEvent(self, event: QEvent) -> None:
        """Follow the text size."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange and hasattr(self, "title"):
            # the style that is being set would undo it now
            QTimer.singleShot(0, self, self._enlarge_title)
            self._fit_column()

    def _fit_column(self) -> None:
        """Keep the number of words on a line at every text size."""
        self._column.setMaximumWidth(round(COLUMN * max(1.0, self.fontMetrics().height() / USUAL_LINE)))

    def _label_download(self) -> None:
        """Show the longest text that fits on the button."""
        button = self.first_run.download
        retry = _("Retry") if starter_inside() else _("Retry the download")
        labels = starter_labels() if self.first_run.trouble.isHidden() else (retry,)
        button.setAccessibleName(labels[0])
        for words in labels:
            button.set_words(words)
            if button.sizeHint().width() <= min(self.width(), self._column.maximumWidth()) - 40:
                break

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Keep the text of the button whole."""
        super().resizeEvent(event)
        self._label_download()
        self.first_run.fit(min(self.width(), self._column.maximumWidth()) - 40)

    def _set_busy(self, busy: bool) -> None:
        first = self.first_run
        first.progress.setVisible(busy)
        shown, hidden = (first.cancel, first.download) if busy else (first.download, first.cancel)
        shown.show()
        if hidden.hasFocus():  # not to the next button, which does something else
            shown.setFocus()
        hidden.hide()
