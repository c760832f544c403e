"""TLS certificates: whether a server can use one, and which one a client trusts."""

from __future__ import annotations

import ssl
import time
from pathlib import Path
from typing import Final

_PEM_END: Final = "-----END CERTIFICATE-----"


class CertificateUnusable(Exception):
    """A certificate and key that no server can use; `str()` is the reason."""


def check_certificate(certificate: Path, key: Path) -> float:
    """Return for how many seconds a certificate is valid, negative if it has expired.

    Raises:
        CertificateUnusable: if the files cannot be read, or do not belong together.
    """
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
        # The only certificate parser of the standard library.
        facts = ssl._ssl._test_decode_cert(certificate)  # type: ignore[attr-defined]  # noqa: SLF001
        return ssl.cert_time_to_seconds(facts["notAfter"]) - time.time()
    except (OSError, ValueError, KeyError) as error:
        raise CertificateUnusable(str(error)) from error


def trust(certificate: Path | None) -> ssl.SSLContext:
    """Return a context that trusts a server's own certificate, under any name, and no other.

    Without a certificate the system's authorities decide.
    """
    if certificate is None:
        return ssl.create_default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # one certificate is trusted, not a name
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    text = certificate.read_text(encoding="ascii", errors="replace")
    context.load_verify_locations(cadata=text.partition(_PEM_END)[0] + _PEM_END + "\n")
    return context
