"""`quarterdeck.http.certificate_pins`: servers that are known by a digest alone."""

from __future__ import annotations

import datetime as dt
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID
from hypothesis import given, strategies as st

from quarterdeck.http.certificate_pins import (
    certificate_pin,
    chain_problem,
    pin_fingerprint,
    pinned_context,
)

NOW = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)


@dataclass(frozen=True)
class Issued:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def pin(self) -> str:
        return certificate_pin(self.der)


def issue(
    name: str,
    issuer: Issued | None = None,
    *,
    ca: bool = False,
    at: dt.datetime = NOW,
    days: int = 30,
) -> Issued:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(at - DAY)
        .not_valid_after(at + days * DAY)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
    signer = key if issuer is None else issuer.key
    return Issued(built.sign(signer, hashes.SHA256()), key)


# ---- chains --------------------------------------------------------------------------------


def problem(chain: list[Issued], pinned: Issued, at: dt.datetime = NOW) -> str:
    return chain_problem([each.der for each in chain], pinned.pin, at.timestamp())


AUTHORITY = issue("authority", ca=True, days=3650)
LEAF = issue("hub", AUTHORITY)


def test_a_certificate_of_the_pinned_authority_is_accepted() -> None:
    assert problem([LEAF, AUTHORITY], AUTHORITY) == ""


def test_a_certificate_that_is_pinned_itself_is_accepted() -> None:
    assert problem([LEAF], LEAF) == ""


def test_a_longer_chain_to_the_pinned_authority_is_accepted() -> None:
    middle = issue("middle", AUTHORITY, ca=True)
    assert problem([issue("hub", middle), middle, AUTHORITY], AUTHORITY) == ""


def test_an_authority_that_is_only_sent_along_vouches_for_nothing() -> None:
    stranger = issue("hub", issue("authority", ca=True))  # the same name, another key
    assert "does not fit" in problem([stranger, AUTHORITY], AUTHORITY)


def test_a_pinned_certificate_that_is_no_authority_issues_nothing() -> None:
    assert "may not issue" in problem([issue("other", LEAF), LEAF], LEAF)


@pytest.mark.parametrize("at", [NOW - 2 * DAY, NOW + 31 * DAY])
def test_a_certificate_outside_its_time_is_refused(at: dt.datetime) -> None:
    assert "expired" in problem([LEAF, AUTHORITY], AUTHORITY, at)


def test_an_expired_authority_is_refused() -> None:
    old = issue("authority", ca=True, days=1)
    assert "expired" in problem([issue("hub", old), old], old, NOW + 2 * DAY)


def test_an_empty_chain_is_refused() -> None:
    assert "not issued" in problem([], AUTHORITY)


def test_bytes_that_are_no_certificate_are_refused() -> None:
    assert "cannot be read" in chain_problem([b"x"], certificate_pin(b"x"), NOW.timestamp())


@given(st.binary(max_size=64))
def test_no_bytes_raise(der: bytes) -> None:
    assert chain_problem([der, AUTHORITY.der], AUTHORITY.pin, NOW.timestamp())


def test_a_pin_is_the_digest_that_phones_show() -> None:
    shown = pin_fingerprint(AUTHORITY.pin)
    assert shown == AUTHORITY.certificate.fingerprint(hashes.SHA256()).hex(":").upper()


@pytest.mark.parametrize("pin", ["", "abc", "x" * 43 + "ü", "A" * 44, "A" * 42])
def test_what_is_no_pin_is_refused_before_anything_is_sent(pin: str) -> None:
    with pytest.raises(ValueError, match="not the pin"):
        pinned_context(pin)


# ---- connections ---------------------------------------------------------------------------


@contextmanager
def serving(folder: Path, *chain: Issued) -> Iterator[tuple[int, list[bytes]]]:
    """Serve TLS with a chain; yield the port and what clients sent."""
    private = chain[0].key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path = folder / "server.pem"
    path.write_bytes(private + b"".join(each.pem for each in chain))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(path)
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)

        def answer() -> None:
            accepted, _ = listener.accept()
            accepted.settimeout(10)
            with closing(accepted):
                try:
                    with context.wrap_socket(accepted, server_side=True) as secured:
                        received.append(secured.recv(4096))
                        secured.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                except OSError:
                    return  # the client refused

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield listener.getsockname()[1], received
        finally:
            thread.join()


def present(*, ca: bool = False, issuer: Issued | None = None) -> Issued:
    return issue("hub", issuer, ca=ca, at=dt.datetime.now(dt.UTC))


async def _get(port: int, context: ssl.SSLContext) -> str:
    async with httpx.AsyncClient(verify=context, trust_env=False, timeout=10) as client:
        return (await client.get(f"https://127.0.0.1:{port}/")).text


def test_a_pinned_server_is_used_over_the_event_loop(tmp_path: Path) -> None:
    authority = present(ca=True)
    with serving(tmp_path, present(issuer=authority), authority) as (port, _):
        assert anyio.run(_get, port, pinned_context(authority.pin)) == "ok"


def test_a_server_with_another_certificate_gets_no_byte_of_a_request(tmp_path: Path) -> None:
    authority = present(ca=True)
    with (
        serving(tmp_path, present(issuer=authority), authority) as (port, received),
        pytest.raises(httpx.ConnectError, match="not issued by the hub"),
    ):
        anyio.run(_get, port, pinned_context(AUTHORITY.pin))
    assert received in ([], [b""])


@pytest.mark.parametrize("is_right", [True, False])
def test_a_socket_that_blocks_checks_the_pin_as_well(tmp_path: Path, is_right: bool) -> None:
    authority = present(ca=True)
    pin = authority.pin if is_right else AUTHORITY.pin
    with (
        serving(tmp_path, present(issuer=authority), authority) as (port, received),
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
    ):
        if is_right:
            with pinned_context(pin).wrap_socket(plain) as secured:
                secured.sendall(b"hello")
                assert secured.recv(4096).startswith(b"HTTP/1.1 200")
        else:
            with pytest.raises(ssl.SSLCertVerificationError):
                pinned_context(pin).wrap_socket(plain)
    assert received in ([b"hello"] if is_right else [], [b""])
