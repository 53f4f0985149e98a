"""The notice above the message box."""

from __future__ import annotations

from pytestqt.qtbot import QtBot

from desktop.views.widgets.banner import Banner


def test_buttons_go_below_the_text_where_there_is_no_room_beside_it(qtbot: QtBot) -> None:
    banner = Banner()
    qtbot.addWidget(banner)
    taken: list[str] = []
    banner.show_notice("The model was not found.", "warning", offer=("Find it", lambda: taken.append("it")))
    em = banner.fontMetrics().averageCharWidth()
    for width, offer_below, close_below in ((200, False, False), (40, True, False), (12, True, True)):
        banner.resize(width * em, 200)
        qtbot.waitUntil(lambda: banner.layout().activate() or True)
        bottom = banner.text.geometry().bottom()
        assert (banner.offer.y() > bottom) == offer_below, width
        assert (banner.dismiss.y() > bottom) == close_below, width
    banner.offer.click()
    assert taken == ["it"]
    assert banner.isHidden()
