"""Pins: TLS to a server that is known by the digest of a certificate, not by its name.

A hub with a certificate of its own is in no system's list of authorities. Its pairing link carries
the pin of the authority that issues its certificates, or of the certificate itself; a program that
has the link accepts that server, under any name and address, and no other.

The standard library cannot ask a program about a certificate during the handshake. So the handshake
verifies nothing here, and the chain that the server sent is checked in the step that ends it,
before the first byte of a request can be written: each certificate up to the pinned one must be
issued by the next, and be valid now. That the server has the key of the first one is proved by the
handshake.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ssl
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_DIGEST_BYTES: Final = 32
_LONGEST_CHAIN: Final = 5
_DER: Final = 2  # `_ssl.ENCODING_DER`


def certificate_pin(der: bytes) -> str:
    """Return the pin of a certificate: its SHA-256, as 43 characters that fit into a URL."""
    return base64.urlsafe_b64encode(hashlib.sha256(der).digest()).rstrip(b"=").decode()


def pin_fingerprint(pin: str) -> str:
    """Return a pin in the form in which phones and browsers show it: `3F:A0:…`.

    Raises:
        ValueError: if it is not a pin.
    """
    return _digest(pin).hex(":").upper()


def _digest(pin: str) -> bytes:
    try:
        found = base64.urlsafe_b64decode(f"{pin}=")
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{pin!r} is not the pin of a certificate") from error
    if len(found) != _DIGEST_BYTES:
        raise ValueError(f"{pin!r} is not the pin of a certificate")
    return found


def pinned_context(pin: str) -> ssl.SSLContext:
    """Return a context that accepts the server with a pinned certificate or authority alone.

    A server that has neither fails the handshake with `ssl.SSLCertVerificationError`.

    Raises:
        ValueError: if it is not a pin.
    """
    _digest(pin)
    context = _PinnedContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the chain is checked as soon as the handshake is done
    context.pin = pin
    return context


class _PinnedContext(ssl.SSLContext):
    pin: str


def _check(secured: ssl.SSLObject | ssl.SSLSocket) -> None:
    context = secured.context
    assert isinstance(context, _PinnedContext)
    problem = chain_problem(_sent_chain(secured), context.pin, time.time())
    if problem:
        raise ssl.SSLCertVerificationError(
            1, f"the server's certificate is not accepted: {problem}"
        )


class _PinnedObject(ssl.SSLObject):
    """TLS over memory, as event loops use it."""

    @override
    def do_handshake(self) -> None:
        super().do_handshake()
        _check(self)


class _PinnedSocket(ssl.SSLSocket):
    """TLS over a socket that blocks."""

    @override
    def do_handshake(self, block: bool = False) -> None:
        super().do_handshake(block)
        _check(self)


_PinnedContext.sslobject_class = _PinnedObject
_PinnedContext.sslsocket_class = _PinnedSocket


def _sent_chain(secured: Any) -> list[bytes]:
    """Return the certificates that the server sent, its own first; public from Python 3.13 on."""
    if hasattr(secured, "get_unverified_chain"):
        return list(secured.get_unverified_chain())
    sent = secured._sslobj.get_unverified_chain()  # noqa: SLF001
    return [each.public_bytes(_DER) for each in sent or ()]


def chain_problem(chain: Sequence[bytes], pin: str, now: float) -> str:
    """Return why a chain does not lead to the pinned certificate; empty if it does. Pure."""
    pins = [certificate_pin(each) for each in chain[:_LONGEST_CHAIN]]
    place = next((n for n, each in enumerate(pins) if hmac.compare_digest(each, pin)), None)
    if place is None:
        return "it was not issued by the hub of this link; make a new link at the hub"
    from cryptography import x509  # noqa: PLC0415 - slow to import, and rarely needed

    try:
        path = [x509.load_der_x509_certificate(each) for each in chain[: place + 1]]
        return _path_problem(path, now)
    except ValueError as error:
        return f"it cannot be read ({error})"


def _path_problem(path: Sequence[Certificate], now: float) -> str:
    """Return what is wrong between a server's certificate and the pinned one, which is the last."""
    from cryptography import x509  # noqa: PLC0415
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415

    for each in path:
        if (
            now < each.not_valid_before_utc.timestamp()
            or now > each.not_valid_after_utc.timestamp()
        ):
            return "it has expired, or the clock is wrong"
    for issued, issuer in pairwise(path):
        try:
            issued.verify_directly_issued_by(issuer)
            limits = issuer.extensions.get_extension_for_class(x509.BasicConstraints).value
        except (InvalidSignature, ValueError, TypeError, x509.ExtensionNotFound):
            return "its chain does not fit together"
        if not limits.ca:
            return "it was issued by a certificate that may not issue any"
    return ""
