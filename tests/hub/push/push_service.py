"""A push service on this computer, and a browser's end of it."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from quarterdeck.http.p256 import to_base64url

if TYPE_CHECKING:
    from typing_extensions import override  # in `typing` from Python 3.12 on
else:

    def override(method: object) -> object:
        return method


PATIENCE = 60


class Browser:
    """The keys of a subscription, and decryption with them."""

    def __init__(self, private: ec.EllipticCurvePrivateKey | None = None) -> None:
        self.private = private or ec.generate_private_key(ec.SECP256R1())
        self.secret = b"sixteen bytes it"

    @property
    def public(self) -> bytes:
        key = self.private.public_key()
        return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)

    def subscription(self, endpoint: str) -> dict[str, Any]:
        keys = {"p256dh": to_base64url(self.public), "auth": to_base64url(self.secret)}
        return {"endpoint": endpoint, "expirationTime": None, "keys": keys}

    def decrypted(self, body: bytes) -> bytes:
        salt, length = body[:16], body[20]
        theirs, record = body[21 : 21 + length], body[21 + length :]
        point = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), theirs)
        shared = self.private.exchange(ec.ECDH(), point)
        key = _derived(shared, self.secret, b"WebPush: info\0" + self.public + theirs, 32)
        content_key = _derived(key, salt, b"Content-Encoding: aes128gcm\0", 16)
        nonce = _derived(key, salt, b"Content-Encoding: nonce\0", 12)
        padded = AESGCM(content_key).decrypt(nonce, record, None)
        return padded.rstrip(b"\0")[:-1]


def _derived(material: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=salt, info=info).derive(material)


@dataclass
class LocalPushService:
    """Records messages; responds with each status once, then with the last one."""

    origin: str = ""
    statuses: list[int] = field(default_factory=lambda: [201])
    got: queue.Queue[tuple[dict[str, str], bytes]] = field(default_factory=queue.Queue)

    def next(self, browser: Browser) -> tuple[dict[str, str], Any]:
        headers, body = self.got.get(timeout=PATIENCE)
        return headers, json.loads(browser.decrypted(body))


@contextmanager
def push_service(*statuses: int) -> Iterator[LocalPushService]:
    service = LocalPushService(statuses=list(statuses or (201,)))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            names = {name.lower(): value for name, value in self.headers.items()}
            status = service.statuses.pop(0) if len(service.statuses) > 1 else service.statuses[0]
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()
            service.got.put((names, body))

        @override
        def log_message(self, *_arguments: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        service.origin = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()
