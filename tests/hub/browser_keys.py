"""A browser that is a device of a hub: its key, and the requests that it signs.

Written from the description in docs/adr/0033-browser-keys.md, without the code of the hub.
"""

from __future__ import annotations

import base64
import hashlib
import json as json_
import secrets
from dataclasses import dataclass, field, replace
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.hub.served import UPGRADE, Reply, Served


def base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def random_text() -> str:
    return base64url(secrets.token_bytes(16))


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@dataclass(frozen=True)
class Signing:
    """What a proof says, and what it is signed for."""

    method: str
    origin: str
    target: str
    device_id: str
    nonce: str
    time: int
    body: bytes = b""
    id: str = field(default_factory=random_text)


@dataclass(frozen=True)
class SigningBrowser:
    """A paired browser."""

    served: Served
    device_id: str
    key: ec.EllipticCurvePrivateKey
    host: str
    origin: str

    async def nonce(self) -> tuple[str, int]:
        """Return a nonce and the time of the hub."""
        first = f"GET /api/nonce?challenge={random_text()} HTTP/1.1"
        answer = (await self.served.ask(first, host=self.host)).json
        return answer["nonce"], answer["time"]

    async def signing(self, method: str, target: str, body: bytes = b"") -> Signing:
        """Return what a proof of a request says."""
        nonce, time = await self.nonce()
        return Signing(method, self.origin, target, self.device_id, nonce, time, body)

    def proof(self, signing: Signing) -> str:
        return proof(self.key, signing)

    async def line(self, method: str, target: str, body: bytes = b"") -> str:
        """Return the Authorization line of a request."""
        return authorization(self.proof(await self.signing(method, target, body)))

    async def call(self, method: str, path: str, *lines: str, json: Any = None) -> Reply:
        """Make a request as the page of the hub does."""
        body = b"" if json is None else json_.dumps(json).encode()
        signed = await self.line(method, path, body)
        lines = (f"Origin: {self.origin}", "Sec-Fetch-Site: same-origin", *lines, signed)
        first = f"{method} {path} HTTP/1.1"
        if json is None:
            return await self.served.ask(first, *lines, host=self.host)
        lines = (*lines, "Content-Type: application/json")
        return await self.served.ask(first, *lines, host=self.host, body=body)

    async def upgrade(self, path: str) -> Reply:
        """Open a WebSocket as a page does: with subprotocols and no other header."""
        made = self.proof(await self.signing("WEBSOCKET", path))
        offered = f"Sec-WebSocket-Protocol: quarterdeck, quarterdeck.proof.{made}"
        first = f"GET {path} HTTP/1.1"
        lines = (*UPGRADE, f"Origin: {self.origin}", offered)
        return await self.served.ask(first, *lines, host=self.host)


def proof(key: ec.EllipticCurvePrivateKey, signing: Signing) -> str:
    """Return the proof that says and is signed for `signing`."""
    digest = base64url(hashlib.sha256(signing.body).digest())
    parts = (signing.device_id, signing.nonce, str(signing.time), signing.id, digest)
    wanted = (signing.method, signing.origin, signing.target)
    return ".".join((*parts, sign(key, "quarterdeck-request-1", *wanted, *parts)))


def authorization(made: str) -> str:
    return f"Authorization: QuarterdeckKey {made}"


def sign(key: ec.EllipticCurvePrivateKey, *lines: str) -> str:
    r, s = decode_dss_signature(key.sign("\n".join(lines).encode(), ec.ECDSA(SHA256())))
    return base64url(r.to_bytes(32, "big") + s.to_bytes(32, "big"))


def point(key: ec.EllipticCurvePrivateKey) -> str:
    public = key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    return base64url(public)


def registration(
    key: ec.EllipticCurvePrivateKey, code: str, origin: str, nonce: str
) -> dict[str, str]:
    """Return the `key` of a pairing."""
    public = point(key)
    signature = sign(key, "quarterdeck-pairing-1", origin, code, public, nonce)
    return {"publicKey": public, "nonce": nonce, "signature": signature}


async def pair_browser(
    served: Served,
    code: str,
    *,
    host: str | None = None,
    origin: str | None = None,
    before: SigningBrowser | None = None,
) -> tuple[SigningBrowser, Reply]:
    """Pair a browser as the page does; `before` is what it was until now."""
    new = SigningBrowser(served, "", _new_key(), host or served.host, origin or served.origin)
    nonce, _ = await new.nonce()
    wanted = {"code": code, "key": registration(new.key, code, new.origin, nonce)}
    body = json_.dumps(wanted).encode()
    lines = [f"Origin: {new.origin}", "Content-Type: application/json"]
    if before is not None:
        lines.append(await before.line("POST", "/api/pair", body))
    reply = await served.ask("POST /api/pair HTTP/1.1", *lines, host=new.host, body=body)
    assert reply.status == 200, reply
    return replace(new, device_id=reply.json["device"]["id"]), reply
