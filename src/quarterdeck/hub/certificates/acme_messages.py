"""What an ACME client signs: requests, certificate requests, and the answer to a challenge.

RFC 8555 (ACME), RFC 8737 (TLS-ALPN-01), RFC 7515 and 7638 (signatures and thumbprints). Nothing
here uses the network or reads a clock, except for the validity of the challenge's certificate.
"""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from quarterdeck.errors import StartRefused
from quarterdeck.jsontext import encode_json
from quarterdeck.machine.private_files import check_private, refuse_link, replace_private

_HALF: Final = 32
_ACME_IDENTIFIER: Final = x509.ObjectIdentifier("1.3.6.1.5.5.7.1.31")
_OCTETS: Final = b"\x04\x20"  # an OCTET STRING of 32 bytes


def base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


class AccountKey:
    """The key of an account at an authority."""

    def __init__(self, private: ec.EllipticCurvePrivateKey) -> None:
        self._private = private
        numbers = private.public_key().public_numbers()
        self.jwk: Final = {
            "crv": "P-256",
            "kty": "EC",
            "x": base64url(numbers.x.to_bytes(_HALF, "big")),
            "y": base64url(numbers.y.to_bytes(_HALF, "big")),
        }

    @property
    def thumbprint(self) -> str:
        # RFC 7638: the members in this order, without white space.
        members = ",".join(f'"{name}":"{self.jwk[name]}"' for name in ("crv", "kty", "x", "y"))
        return base64url(hashlib.sha256(f"{{{members}}}".encode()).digest())

    def key_authorization(self, token: str) -> str:
        return f"{token}.{self.thumbprint}"

    def signed(self, payload: object, *, url: str, nonce: str, account: str | None) -> bytes:
        """Return a request; a payload of None is an empty one, which reads a resource."""
        protected: dict[str, Any] = {"alg": "ES256", "nonce": nonce, "url": url}
        protected |= {"jwk": self.jwk} if account is None else {"kid": account}
        head = base64url(encode_json(protected))
        body = "" if payload is None else base64url(encode_json(payload))
        r, s = decode_dss_signature(
            self._private.sign(f"{head}.{body}".encode(), ec.ECDSA(hashes.SHA256()))
        )
        signature = base64url(r.to_bytes(_HALF, "big") + s.to_bytes(_HALF, "big"))
        return encode_json({"protected": head, "payload": body, "signature": signature})


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(private: ec.EllipticCurvePrivateKey) -> bytes:
    return private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def account_key(path: Path) -> AccountKey:
    """Return the key in a file; create the file if there is none.

    Raises:
        StartRefused: if other users could read the file, or it does not hold a key.
    """
    refuse_link(path)
    if not path.exists():
        private = new_key()
        replace_private(path, key_pem(private))
        return AccountKey(private)
    check_private(path, path.stat())
    remedy = f"remove it, then the next start makes a new account: rm {path}"
    try:
        found = load_pem_private_key(path.read_bytes(), None)
    except ValueError as error:
        raise StartRefused(f"{path} does not hold a key", remedy) from error
    if not isinstance(found, ec.EllipticCurvePrivateKey) or found.key_size != 8 * _HALF:
        raise StartRefused(f"{path} does not hold a key", remedy)
    return AccountKey(found)


def certificate_request(host: str, private: ec.EllipticCurvePrivateKey) -> str:
    """Return the request for a certificate of one name, base64url of DER."""
    names = x509.SubjectAlternativeName([x509.DNSName(host)])
    builder = x509.CertificateSigningRequestBuilder(x509.Name([]))
    signed = builder.add_extension(names, critical=False).sign(private, hashes.SHA256())
    return base64url(signed.public_bytes(Encoding.DER))


def challenge_certificate(host: str, key_authorization: str) -> bytes:
    """Return the key and the certificate that answer a TLS-ALPN-01 challenge, PEM."""
    private = new_key()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ACME challenge")])
    now = datetime.now(UTC)
    digest = hashlib.sha256(key_authorization.encode()).digest()
    builder = x509.CertificateBuilder(name, name, private.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1))
    builder = builder.not_valid_after(now + timedelta(days=2))
    names = x509.SubjectAlternativeName([x509.DNSName(host)])
    builder = builder.add_extension(names, critical=False)
    proof = x509.UnrecognizedExtension(_ACME_IDENTIFIER, _OCTETS + digest)
    signed = builder.add_extension(proof, critical=True).sign(private, hashes.SHA256())
    return key_pem(private) + signed.public_bytes(Encoding.PEM)
