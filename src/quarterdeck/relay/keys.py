"""The keys of a hub and of a relay, in files that only their user can read."""

from __future__ import annotations

import hashlib
import os
import secrets
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from quarterdeck.errors import StartRefused
from quarterdeck.machine.private_files import check_private, refuse_link, replace_private
from quarterdeck.relay.messages import from_base64url, label_of, signed_text, to_base64url

TUNNEL_KEY: Final = "relay.key"
CERTIFICATE_FILE: Final = "relay.pem"
TOKEN_FILE: Final = "relay.token"  # noqa: S105 - the name of a file
_DAYS: Final = 36_500
"""Of a relay's certificate: hubs know its digest, and trust nothing else about it."""
_TOKEN_BYTES: Final = 18


class TunnelKey:
    """The key of a hub, from which its name at relays follows."""

    def __init__(self, private: ed25519.Ed25519PrivateKey) -> None:
        self._private = private
        public = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.public: Final = to_base64url(public)
        self.label: Final = label_of(public)

    @classmethod
    def generate(cls) -> TunnelKey:
        return cls(ed25519.Ed25519PrivateKey.generate())

    def sign(self, nonce: str, *, domain: str, fingerprint: str) -> str:
        """Return the signature over the challenge of one relay."""
        text = signed_text(nonce, domain=domain, fingerprint=fingerprint)
        return to_base64url(self._private.sign(text))


def tunnel_key(path: Path) -> TunnelKey:
    """Return the key in a file; create the file if there is none.

    Raises:
        StartRefused: if other users could read the file, or it does not hold a key.
    """
    content = _private_content(path)
    if content is None:
        private = ed25519.Ed25519PrivateKey.generate()
        pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        replace_private(path, pem)
        return TunnelKey(private)
    try:
        found = load_pem_private_key(content, None)
    except (ValueError, TypeError) as error:
        raise _no_key(path) from error
    if not isinstance(found, ed25519.Ed25519PrivateKey):
        raise _no_key(path)
    return TunnelKey(found)


def verified_label(
    key: str, signature: str, nonce: str, *, domain: str, fingerprint: str
) -> str | None:
    """Return the name that a key may register; None unless the signature was made with it."""
    try:
        content = from_base64url(key)
        public = ed25519.Ed25519PublicKey.from_public_bytes(content)
        text = signed_text(nonce, domain=domain, fingerprint=fingerprint)
        public.verify(from_base64url(signature), text)
    except (ValueError, InvalidSignature):
        return None
    return label_of(content)


@dataclass(frozen=True, kw_only=True)
class RelayIdentity:
    """What a relay needs to be recognised by its hubs."""

    fingerprint: str
    tls: ssl.SSLContext
    token: str


def relay_identity(folder: Path, domain: str) -> RelayIdentity:
    """Return the certificate and the token of a relay; create their files if there are none.

    Raises:
        StartRefused: if other users could read a file, or it is not what it should be.
    """
    path = folder / CERTIFICATE_FILE
    content = _private_content(path)
    if content is None:
        content = _certificate(domain)
        replace_private(path, content)
    try:
        certificate = x509.load_pem_x509_certificate(content)
        tls = server_context(path)
        tls.minimum_version = ssl.TLSVersion.TLSv1_3
    except (ValueError, OSError) as error:
        raise _no_key(path) from error
    token_path = folder / TOKEN_FILE
    token = _private_content(token_path)
    if token is None:
        token = secrets.token_urlsafe(_TOKEN_BYTES).encode()
        replace_private(token_path, token)
    return RelayIdentity(
        fingerprint=fingerprint_of(certificate.public_bytes(Encoding.DER)),
        tls=tls,
        token=token.decode("ascii", "replace").strip(),
    )


def fingerprint_of(certificate: bytes) -> str:
    """Return the digest of a certificate, which is given as DER."""
    return to_base64url(hashlib.sha256(certificate).digest())


def server_context(pem: Path) -> ssl.SSLContext:
    """Return the TLS of a server with the key and the certificate in one PEM file.

    Raises:
        OSError: if they cannot be read, or do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(pem)
    return context


def _certificate(domain: str) -> bytes:
    """Return a new key and a certificate that it has signed itself."""
    private = ec.generate_private_key(ec.SECP256R1())
    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Quarterdeck relay")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(own, own, private.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1))
    builder = builder.not_valid_after(now + timedelta(days=_DAYS))
    names = x509.SubjectAlternativeName([x509.DNSName(domain)])
    signed = builder.add_extension(names, critical=False).sign(private, hashes.SHA256())
    key = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return key + signed.public_bytes(Encoding.PEM)


def _private_content(path: Path) -> bytes | None:
    """Return what a private file holds; None if there is none.

    Raises:
        StartRefused: if it is not private.
    """
    refuse_link(path)
    try:
        with path.open("rb") as file:
            check_private(path, os.fstat(file.fileno()))
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = f"cannot use {path} ({error.strerror})"
        raise StartRefused(reason, "check that you can read it") from error


def _no_key(path: Path) -> StartRefused:
    remedy = f"remove it, then the next start makes another one: rm {path}"
    return StartRefused(f"{path} does not hold a key", remedy)
