"""Keys on the curve P-256: a private key in a file of its own, points, and signatures as 64 bytes.

Browsers write an ECDSA signature as r and s, 32 bytes each; OpenSSL reads and writes DER. Both are
ES256 (RFC 7518, section 3.4).
"""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from quarterdeck.errors import StartRefused
from quarterdeck.machine.private_files import PRIVATE_FILE, open_private

CURVE: Final = ec.SECP256R1()
_ES256: Final = ec.ECDSA(SHA256())
_HALF: Final = 32


def key_in_file(path: Path, *, remedy: str) -> ec.EllipticCurvePrivateKey:
    """Return the private key in a file; create the file if there is none.

    `remedy` says what to do if the file holds something else.

    Raises:
        StartRefused: if other users could read the file, or it does not hold a key.
    """
    try:
        return _create_key(path)
    except FileExistsError:
        open_private(path)
        return _read_key(path, remedy)
    except OSError as error:
        raise StartRefused(
            f"cannot write {path}: {error.strerror}", "check its permissions and the free space"
        ) from error


def _create_key(path: Path) -> ec.EllipticCurvePrivateKey:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(path, flags, PRIVATE_FILE)
    private = new_key()
    try:
        with os.fdopen(file, "w", encoding="ascii") as stream:
            stream.write(private_text(private) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
    except OSError:
        path.unlink(missing_ok=True)  # with half a key no later start would succeed
        raise
    return private


def _read_key(path: Path, remedy: str) -> ec.EllipticCurvePrivateKey:
    try:
        return private_key(path.read_text(encoding="ascii").strip())
    except ValueError as error:
        raise StartRefused(f"{path} does not hold a key", remedy) from error


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(CURVE)


def private_text(private: ec.EllipticCurvePrivateKey) -> str:
    """Return a private key as it is stored."""
    return to_base64url(private.private_numbers().private_value.to_bytes(_HALF, "big"))


def private_key(text: str) -> ec.EllipticCurvePrivateKey:
    """Read a private key as it is stored.

    Raises:
        ValueError: if it is not one.
    """
    content = from_base64url(text)
    if len(content) != _HALF:
        raise ValueError(len(content))  # such as a word: it could be guessed
    return ec.derive_private_key(int.from_bytes(content, "big"), CURVE)


def point(public: ec.EllipticCurvePublicKey) -> bytes:
    """Return a public key as 65 bytes, the uncompressed point."""
    return public.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def public_key(content: bytes) -> ec.EllipticCurvePublicKey:
    """Read an uncompressed point.

    Raises:
        ValueError: if it is not one, or not on the curve.
    """
    if len(content) != 1 + 2 * _HALF:
        raise ValueError("a public key has 65 bytes")
    return ec.EllipticCurvePublicKey.from_encoded_point(CURVE, content)


def sign(private: ec.EllipticCurvePrivateKey, content: bytes) -> bytes:
    """Return a signature of 64 bytes."""
    r, s = decode_dss_signature(private.sign(content, _ES256))
    return r.to_bytes(_HALF, "big") + s.to_bytes(_HALF, "big")


def is_signed(public: ec.EllipticCurvePublicKey, signature: bytes, content: bytes) -> bool:
    """Return whether a signature of 64 bytes was made with the private part of this key."""
    if len(signature) != 2 * _HALF:
        return False
    r, s = (int.from_bytes(half, "big") for half in (signature[:_HALF], signature[_HALF:]))
    try:
        public.verify(encode_dss_signature(r, s), content, _ES256)
    except InvalidSignature:
        return False
    return True


def to_base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def from_base64url(text: str) -> bytes:
    """Read base64url with or without padding; raises ValueError."""
    plain = text.rstrip("=")
    return base64.b64decode(plain + "=" * (-len(plain) % 4), altchars=b"-_", validate=True)
