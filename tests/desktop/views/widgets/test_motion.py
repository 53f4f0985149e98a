"""Motion: present if enabled, absent otherwise, and over when it has ended."""

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QObject
from PySide6.QtDBus import QDBusMessage, QDBusVariant
from PySide6.QtWidgets import QApplication, QLabel

from desktop.views.widgets.motion import Fade, Motion, is_still


@pytest.fixture
def motion(qapp: QApplication) -> Iterator[Motion]:
    before = qapp.property("stillMotion")
    made = Motion(qapp)
    yield made
    made.deleteLater()
    qapp.setProperty("stillMotion", before)


class Answer(QObject):
    """A portal's answer, as Qt delivers it."""

    def __init__(self, value: object, still: object) -> None:
        super().__init__()
        self.setProperty("still", still)
        self._value = value

    def reply(self) -> QDBusMessage:
        call = QDBusMessage.createMethodCall("org.example.A", "/a", "org.example.A", "Get")
        answer = call.createReply()
        answer.setArguments([QDBusVariant(self._value)])
        return answer


def test_a_fade_ends_and_begins_again_in_its_middle(qtbot, motion) -> None:
    motion.apply("calm")
    label = QLabel("here")
    qtbot.addWidget(label)
    fade = Fade(label)
    label.show()
    assert not fade.effect.isEnabled()
    fade.start()
    qtbot.waitUntil(lambda: 0.2 < fade.effect.opacity() < 1.0)
    fade.start()
    assert fade.effect.opacity() < 0.2
    qtbot.waitUntil(lambda: not fade.effect.isEnabled())


def test_nothing_moves_if_motion_is_disabled(qtbot, motion) -> None:
    motion.apply("none")
    label = QLabel("here")
    qtbot.addWidget(label)
    fade = Fade(label)
    label.show()
    fade.start()
    assert is_still()
    assert not fade.effect.isEnabled()


def test_the_system_is_followed_unless_the_user_chose(motion) -> None:
    motion.apply("system")
    assert not is_still()
    motion._waiting = [answer := Answer(False, lambda value: value is False)]
    motion._on_answer(answer)
    assert is_still()
    motion.apply("calm")
    assert not is_still()
