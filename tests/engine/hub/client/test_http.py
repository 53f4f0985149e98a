"""Certificates: which servers with TLS are talked to, and when the system's certificates are read."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import threading
import urllib.error
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from engine.hub.client import http
from engine.hub.client.http import Web
from engine.hub.download.pip_settings import PipSettings

pytestmark = pytest.mark.loopback
DAY = datetime.timedelta(days=1)


class Hello(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the certificate of this machine, signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder(
            name, name, key.public_key(), x509.random_serial_number(), now - DAY, now + DAY
        )
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "own.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        + signed.public_bytes(serialization.Encoding.PEM)
    )
    return path


def serve(server: HTTPServer) -> Iterator[str]:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def secure(certificate: Path) -> Iterator[str]:
    """The address of a server with TLS."""
    server = HTTPServer(("127.0.0.1", 0), Hello)
    server.handle_error = lambda *_: None  # type: ignore[method-assign] # clients that refuse it
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    yield from serve(server)


@pytest.fixture
def plain() -> Iterator[str]:
    yield from serve(HTTPServer(("127.0.0.1", 0), Hello))


def read(web: Web, url: str) -> bytes:
    with web.open(url, {}) as response:
        return bytes(response.read())


def test_only_servers_with_a_known_certificate_are_read(secure: str, certificate: Path) -> None:
    url = f"https://{secure}/"
    with pytest.raises(urllib.error.URLError, match="certificate verify failed"):
        read(Web(PipSettings(), {}), url)
    assert read(Web(PipSettings(cert=str(certificate)), {}), url) == b"hello"
    assert read(Web(PipSettings(trusted_hosts=("127.0.0.1",)), {}), url) == b"hello"


def test_the_systems_certificates_are_read_once_and_for_https_only(
    plain: str, secure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    real = http._tls
    monkeypatch.setattr(http, "_tls", lambda *given: made.append(1) or real(*given))
    web = Web(PipSettings(), {})
    assert read(web, f"http://{plain}/") == b"hello"
    assert made == []
    for _ in range(2):
        with pytest.raises(urllib.error.URLError, match="certificate verify failed"):
            read(web, f"https://{secure}/")
    assert made == [1]
