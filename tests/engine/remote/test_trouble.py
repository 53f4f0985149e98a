"""Each way in which a connection fails has its own sentence, with what to do about it."""

from __future__ import annotations

import email.utils
import socket
import ssl
import time
from typing import Any

import httpx2
import pytest

from engine.remote.exchange import Answer, Redirected, TooLong
from engine.remote.provider import Provider
from engine.remote.trouble import error_text, lost, message_of, retry_after, seconds_words

FAR = Provider("lab", "Lab", "https://api.example.org/v1")
HERE = Provider("own", "Own", "http://localhost:8000/v1")


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def unverified() -> Exception:
    error = ssl.SSLCertVerificationError("x")
    error.verify_message = "certificate has expired."
    return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            Redirected("https://other.example"),
            r"redirects requests to https://other\.example, and the key is",
        ),
        (TooLong(), "sent more than .*, which cannot be a reply"),
        (httpx2.InvalidURL("x"), r"The address https://api\.example\.org/v1 cannot be used"),
        (httpx2.ConnectTimeout("x"), "did not accept a connection in time"),
        (httpx2.ReadTimeout("x"), "did not answer in time; try again"),
        (
            httpx2.ProxyError("407 Proxy.\nMore."),
            r"The proxy for Lab \(api\.example\.org\) .*: 407 Proxy\. More",
        ),
        (
            caused(httpx2.ConnectError("x"), unverified()),
            r"is not valid \(certificate has expired\), so nothing",
        ),
        (caused(httpx2.ConnectError("x"), ssl.SSLError("x")), "does not speak TLS as expected"),
        (caused(httpx2.ConnectError("x"), socket.gaierror(-2, "x")), "The name of Lab .* was not found"),
        (
            caused(httpx2.ConnectError("x"), ConnectionRefusedError()),
            "check the address, or start the server",
        ),
        (
            caused(httpx2.ConnectError("x"), OSError(101, "Network is unreachable")),
            r"reached \(Network is unr",
        ),
        (httpx2.ConnectError("x"), "cannot be reached; check the network"),
        (httpx2.RemoteProtocolError("x"), "closed the connection without an answer"),
        (None, "closed the connection without an answer"),
    ],
)
def test_why_there_was_no_answer(error: Exception | None, words: str) -> None:
    sentence = str(lost(error, FAR))
    assert "\n" not in sentence
    with pytest.raises(Exception, match=words):
        raise lost(error, FAR)
    begun = isinstance(error, httpx2.TransportError) and not isinstance(error, httpx2.UnsupportedProtocol)
    assert ("The text received so far is kept" in str(lost(error, FAR, begun=True))) == (
        begun or error is None
    )


def test_a_server_of_this_computer_is_to_be_started() -> None:
    refused = caused(httpx2.ConnectError("x"), ConnectionRefusedError())
    assert "no server is running there; start it." in str(lost(refused, HERE))


def test_the_time_until_the_next_try() -> None:
    soon, past = (email.utils.formatdate(time.time() + more, usegmt=True) for more in (100, -100))
    for value, least, most in (("12", 12, 12), (" 1.5 ", 1.5, 1.5), ("999999", 86400, 86400), (past, 0, 0),
                               (soon, 90, 101)):  # fmt: skip
        seconds = retry_after(Answer(429, {"retry-after": value}, ""))
        assert seconds is not None
        assert least <= seconds <= most
    for headers in ({}, {"retry-after": "soon"}, {"retry-after": "-3"}):
        assert retry_after(Answer(429, headers, "")) is None
    assert [seconds_words(each) for each in (0.2, 12.4, 119, 120, 301)] == [
        "1 s",
        "12 s",
        "119 s",
        "2 min",
        "5 min",
    ]


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ({"error": {"message": "Gone"}, "detail": "x"}, "Gone"),
        ({"error": "", "detail": [{"loc": ["body", "n"], "msg": "too large"}, {"msg": "bad"}]},
         "n: too large; bad"),
        ({"error_description": "No."}, "No."),
        ("plain", "plain"), ([], ""), (5, ""), ({"error": {}}, ""),
    ],
)  # fmt: skip
def test_the_message_of_an_error(found: Any, text: str) -> None:
    assert error_text(found) == text


def test_texts_that_are_no_json() -> None:
    assert message_of(Answer(500, {}, "  Bad\ngateway. "), "") == "Bad gateway"
    assert message_of(Answer(500, {}, "<html>Bad gateway</html>"), "") == ""
    assert message_of(Answer(500, {}, "wrong: sk-1"), "sk-1") == "wrong: [key]"
    assert len(message_of(Answer(500, {}, "x" * 999), "")) == 300
