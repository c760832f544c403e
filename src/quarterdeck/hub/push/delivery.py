"""Delivery of one push message: the address check, the encryption, the request.

**Address.** The browser supplies the URL of its push service, so it could be anything that this
computer can reach. Only public addresses are used (`http.public_addresses`), except for the origins
that the hub is configured with. An address literal is rejected when the browser subscribes, a host
name when it is resolved, and the request goes to the address that was checked.

**Encryption.** Only the browser can read a message (RFC 8291: ECDH with its key, HKDF, one
aes128gcm record), and a signed token identifies this hub to the push service (RFC 8292, VAPID).
`pywebpush` does the same, with an HTTP client and nine more packages (docs/adr/0019).
"""

from __future__ import annotations

import binascii
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

import anyio
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from quarterdeck.http.client import DEFAULT_PORTS, OutgoingRequest, RequestFailed, send_request
from quarterdeck.http.p256 import (
    CURVE,
    from_base64url,
    key_in_file,
    point,
    sign,
    to_base64url,
)
from quarterdeck.http.public_addresses import (
    AddressNotPublic,
    is_public,
    literal_address,
    resolve_in_thread,
    resolve_public,
)

DELIVERY_SECONDS: Final = 15.0
_MAX_RESPONSE_BYTES: Final = 2000
_GONE: Final = frozenset({404, 410})
_RETRYABLE: Final = frozenset({408, 425, 429})


class AddressRefused(Exception):
    """An address that cannot be a push service; `str()` is the reason."""


@dataclass(frozen=True)
class Delivery:
    """The result of a delivery."""

    status: int
    """The HTTP status; 0 if the push service was not reached."""
    reason: str
    retry_after: float | None = None

    @property
    def is_done(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_gone(self) -> bool:
        """Whether the subscription has ended; it must be removed."""
        return self.status in _GONE

    @property
    def is_retryable(self) -> bool:
        return self.status == 0 or self.status >= 500 or self.status in _RETRYABLE


def origin_of(endpoint: str, trusted: frozenset[str]) -> str:
    """Return the origin of a push service.

    Raises:
        AddressRefused: if it is not https, or not public.
    """
    parts = _split(endpoint)
    origin = f"{parts.scheme}://{parts.netloc}"
    if origin in trusted:
        return origin
    if parts.scheme != "https":
        raise AddressRefused("the endpoint of the subscription is not https")
    host = parts.hostname or ""
    if literal_address(host) is not None and not is_public(host):
        raise AddressRefused("the endpoint of the subscription is not a public address")
    return origin


def _split(endpoint: str) -> SplitResult:
    try:
        parts = urlsplit(endpoint)
        _ = parts.port
    except ValueError as error:
        raise AddressRefused("the endpoint of the subscription is not a valid URL") from error
    is_plain = endpoint.isascii() and endpoint.isprintable() and " " not in endpoint
    if not (is_plain and parts.hostname) or parts.username is not None or parts.fragment:
        raise AddressRefused("the endpoint of the subscription is not a valid URL")
    return parts


async def deliver(
    endpoint: str, headers: Mapping[str, str], body: bytes, trusted: frozenset[str]
) -> Delivery:
    """Send an encrypted message; takes up to `DELIVERY_SECONDS` and does not raise."""
    request = OutgoingRequest(method="POST", url=endpoint, headers=headers, body=body)
    try:
        with anyio.fail_after(DELIVERY_SECONDS):
            addresses = await _addresses(endpoint, trusted)
            response = await send_request(
                request, addresses, max_bytes=_MAX_RESPONSE_BYTES, seconds=DELIVERY_SECONDS
            )
    except AddressRefused as error:
        return Delivery(400, str(error))
    except (OSError, RequestFailed) as error:
        return Delivery(0, str(error) or type(error).__name__)
    explanation = response.body.decode("utf-8", "replace").strip()
    retry_after = _seconds(response.headers.get("retry-after"))
    return Delivery(response.status, explanation or response.reason, retry_after)


async def _addresses(endpoint: str, trusted: frozenset[str]) -> list[str]:
    """Resolve a push service, and check the addresses."""
    origin = origin_of(endpoint, trusted)
    parts = urlsplit(endpoint)
    port = parts.port or DEFAULT_PORTS[parts.scheme]
    host = parts.hostname or ""
    if origin in trusted:
        return await resolve_in_thread(host, port)
    try:
        return await resolve_public(host, port)
    except AddressNotPublic as error:
        raise AddressRefused("the push service is not at a public address") from error


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdecimal() else None


# ---- encryption --------------------------------------------------------------------------------

RECORD_SIZE: Final = 4096
MAX_MESSAGE_BYTES: Final = 3000
"""Before encryption; push services accept 4096 bytes in all."""
TOKEN_SECONDS: Final = 12 * 3600
"""The lifetime of a VAPID token; RFC 8292 allows up to a day."""


class KeyInvalid(Exception):
    """The keys of a subscription are not valid; `str()` is the reason."""


@dataclass(frozen=True)
class Recipient:
    """The keys of a browser's subscription."""

    public: bytes
    secret: bytes

    @classmethod
    def read(cls, p256dh: str, auth: str) -> Recipient:
        """Read the two keys of a subscription.

        Raises:
            KeyInvalid: if they are not valid.
        """
        try:
            public, secret = from_base64url(p256dh), from_base64url(auth)
            ec.EllipticCurvePublicKey.from_encoded_point(CURVE, public)
        except (ValueError, binascii.Error) as error:
            raise KeyInvalid("the keys of the subscription are not valid") from error
        if len(secret) != 16:
            raise KeyInvalid("the secret of the subscription must have 16 bytes")
        return cls(public, secret)


def encrypted(
    message: bytes,
    recipient: Recipient,
    *,
    private: ec.EllipticCurvePrivateKey | None = None,
    salt: bytes | None = None,
) -> bytes:
    """Return the encrypted body; key and salt are random unless a test passes them."""
    assert len(message) <= MAX_MESSAGE_BYTES
    private = private or ec.generate_private_key(CURVE)
    salt = salt or secrets.token_bytes(16)
    theirs = ec.EllipticCurvePublicKey.from_encoded_point(CURVE, recipient.public)
    ours = point(private.public_key())
    shared = private.exchange(ec.ECDH(), theirs)
    info = b"WebPush: info\0" + recipient.public + ours
    key = _derived(shared, recipient.secret, info, 32)
    content_key = _derived(key, salt, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _derived(key, salt, b"Content-Encoding: nonce\0", 12)
    record = AESGCM(content_key).encrypt(nonce, message + b"\x02", None)
    header = salt + RECORD_SIZE.to_bytes(4, "big") + bytes([len(ours)]) + ours
    return header + record


def _derived(material: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=salt, info=info).derive(material)


# ---- the key of this hub -----------------------------------------------------------------------


class PushKey:
    """The VAPID key of this hub; a browser's subscription is bound to it."""

    def __init__(self, private: ec.EllipticCurvePrivateKey) -> None:
        self._private = private
        self.public: Final = to_base64url(point(private.public_key()))

    def authorization(self, origin: str, subject: str, now: float) -> str:
        """Return the Authorization header for the push service at `origin`."""
        claims = {"aud": origin, "exp": int(now) + TOKEN_SECONDS, "sub": subject}
        parts = ({"typ": "JWT", "alg": "ES256"}, claims)
        text = ".".join(to_base64url(json.dumps(each).encode()) for each in parts)
        signature = to_base64url(sign(self._private, text.encode()))
        return f"vapid t={text}.{signature}, k={self.public}"


def push_key(path: Path) -> PushKey:
    """Return the key in a file; create the file if there is none.

    Raises:
        StartRefused: if other users could read the file, or it does not hold a key.
    """
    remedy = f"remove it, then turn notifications on again on each device: rm {path}"
    return PushKey(key_in_file(path, remedy=remedy))
