"""The certificate for the hub's name at its relay, while it is served.

files   given by the owner, and read again when they change
own     made here, for programs that know it and browsers that are made to accept it
acme    of a public authority (`hub.certificates.acme_renewal`)
"""

from __future__ import annotations

import logging
import ssl
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Protocol

import anyio
from anyio import to_thread
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from quarterdeck.http.certificates import CertificateUnusable, check_certificate
from quarterdeck.machine.private_files import replace_private
from quarterdeck.relay import CertificateState

logger = logging.getLogger(__name__)

OWN_FILE: Final = "relay-own.pem"
CHECK_SECONDS: Final = 60.0
_OWN_DAYS: Final = 365
_RENEW_SECONDS: Final = 30 * 86_400.0
_LONGEST_COMMON_NAME: Final = 64


class RelayCertificate(Protocol):
    """A certificate that is kept valid."""

    state: CertificateState
    context: ssl.SSLContext | None
    """None while there is none."""
    challenge: ssl.SSLContext | None
    """For an authority that checks the name (TLS-ALPN-01); None: none is expected."""

    async def run(self) -> None:
        """Obtain and renew it, until cancelled."""


def tls_context(certificate: Path, private_key: Path | None = None) -> ssl.SSLContext:
    """Return the TLS of a web server.

    Raises:
        OSError: if the files cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(certificate, private_key)
    return context


class GivenCertificate:
    """A certificate in files of the owner."""

    challenge: ssl.SSLContext | None = None

    def __init__(self, certificate: Path, private_key: Path) -> None:
        self.state = CertificateState()
        self.context: ssl.SSLContext | None = None
        self._certificate = certificate
        self._private_key = private_key
        self._read: tuple[int, int] = (0, 0)
        self._refresh()

    async def run(self) -> None:
        while True:
            await anyio.sleep(CHECK_SECONDS)
            await to_thread.run_sync(self._refresh)

    def _refresh(self) -> None:
        """Use what the files hold now; a pair that cannot be used does not replace one that can."""
        try:
            files = (self._certificate, self._private_key)
            changed = (files[0].stat().st_mtime_ns, files[1].stat().st_mtime_ns)
            if changed == self._read:
                return
            left = check_certificate(*files)
            self.context = tls_context(*files)
        except (OSError, CertificateUnusable) as error:
            problem = f"cannot use {self._certificate} with {self._private_key} ({error})"
            self.state = replace(self.state, problem=problem)
        else:
            self._read = changed
            self.state = CertificateState(kind="files", expires_at=time.time() + left)


class OwnCertificate:
    """A certificate that the hub has signed itself."""

    challenge: ssl.SSLContext | None = None

    def __init__(self, home: Path, host: str) -> None:
        path = home / OWN_FILE
        self.context: ssl.SSLContext | None = None
        left = _left(path, host)
        if left < _RENEW_SECONDS:
            replace_private(path, self_signed(host))
            left = _left(path, host)
        self.context = tls_context(path)
        self.state = CertificateState(kind="own", expires_at=time.time() + left)

    async def run(self) -> None:
        await anyio.sleep_forever()


def _left(path: Path, host: str) -> float:
    """Return for how many seconds a certificate is valid for a name; 0 if it is not."""
    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return 0.0
    is_named = host in names.get_values_for_type(x509.DNSName)
    return found.not_valid_after_utc.timestamp() - time.time() if is_named else 0.0


def self_signed(host: str) -> bytes:
    """Return a new key and a certificate of its own for one name, PEM."""
    private = ec.generate_private_key(ec.SECP256R1())
    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:_LONGEST_COMMON_NAME])])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(own, own, private.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1))
    builder = builder.not_valid_after(now + timedelta(days=_OWN_DAYS))
    names = x509.SubjectAlternativeName([x509.DNSName(host)])
    signed = builder.add_extension(names, critical=False).sign(private, hashes.SHA256())
    key = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return key + signed.public_bytes(Encoding.PEM)
