"""That saving works again is said once, when it is true of everything."""

from __future__ import annotations

from desktop.services.session.saving_trouble import SavingTrouble


def test_the_last_end_is_told_once() -> None:
    told = list[str]()
    saving = SavingTrouble(lambda _sentence, level: told.append(level))
    saving.ended("draft")
    assert told == [], "nothing had failed"
    saving.began("replies")
    saving.began("draft")
    saving.began("draft")
    saving.ended("replies")
    assert told == []
    saving.ended("draft")
    saving.ended("replies")
    assert told == ["info"]


def test_what_the_user_removed_proves_nothing() -> None:
    told = list[str]()
    saving = SavingTrouble(lambda _sentence, level: told.append(level))
    saving.began("draft")
    saving.forget("draft")
    assert told == []
    saving.began("replies")
    saving.began("draft")
    saving.ended("replies")
    saving.forget("draft")
    assert told == ["info"]
    saving.began("replies")
    saving.clear()
    saving.ended("replies")
    assert told == ["info"]


def test_a_message_that_was_sent_proves_that_saving_works() -> None:
    told = list[str]()
    saving = SavingTrouble(lambda _sentence, level: told.append(level))
    saving.proved()
    saving.began("draft")
    saving.forget("draft")
    assert told == []
    saving.began("draft")
    saving.proved()
    saving.forget("draft")
    assert told == ["info"]
