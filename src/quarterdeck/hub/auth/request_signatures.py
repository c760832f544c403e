"""Signed requests: how a browser proves, for each request, that it holds the key of its device.

A browser has no secret that it sends: a cookie would go to every port of its host, and whatever
listens at the port of a stopped hub would receive it. Instead it signs each request with a key that
cannot leave it (`device_keys`), in the manner of DPoP (RFC 9449). A *proof* is one line:

    Authorization: QuarterdeckKey DEVICE.NONCE.TIME.ID.DIGEST.SIGNATURE
    Sec-WebSocket-Protocol: quarterdeck, quarterdeck.proof.DEVICE.NONCE.…     (a WebSocket)

    DEVICE     the id of the device
    NONCE      from GET /api/nonce
    TIME       milliseconds of the hub's clock, which GET /api/nonce returns, too
    ID         128 random bits, used once
    DIGEST     SHA-256 of the body, also of an empty one
    SIGNATURE  ECDSA with P-256 and SHA-256 over these lines, joined by a line feed:

        quarterdeck-request-1, METHOD, ORIGIN, TARGET, DEVICE, NONCE, TIME, ID, DIGEST

METHOD is WEBSOCKET for a WebSocket. ORIGIN is the address in the browser, TARGET the path and the
query as they are sent. The hub takes these three from the request that it received, never from the
proof: a proof for another method, address or origin does not verify.

What makes a proof worthless to a program that receives one:

- The nonce is random, made at the start of the hub and again every few minutes. What was sent to
  the port of a stopped hub carries a nonce that no later start knows.
- An id is accepted once. Ids are stored as long as their nonce is valid, and only for proofs that
  verify, so that only devices fill that memory. When a nonce has its full number of ids, the next
  nonce begins early. Two nonces are valid at any time: memory is bounded.
- The time must be within a minute of the hub's. It is a monotonic clock that begins with the hub,
  so that neither a wrong clock of the device nor a change of the hub's matters.

The body is read after the proof has verified; its digest is compared then (`guard`).
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec

from quarterdeck.http.p256 import from_base64url, is_signed

PROOF_SCHEME: Final = "QuarterdeckKey"
PROOF_SUBPROTOCOL: Final = "quarterdeck.proof."

NONCE_SECONDS: Final = 300.0
"""How long a nonce is the newest; after that, it is valid for as long again."""
LATE_SECONDS: Final = 60.0
"""How far the time of a proof may differ from the hub's."""
_FIRST_SECONDS: Final = 3_600.0  # of the clock at the start: no time of a proof is negative
IDS_PER_NONCE: Final = 65_536

_PROOF: Final = re.compile(
    r"(?P<device>[A-Za-z0-9_-]{1,64})\.(?P<nonce>[A-Za-z0-9_-]{22})\.(?P<time>[0-9]{1,15})"
    r"\.(?P<id>[A-Za-z0-9_-]{22})\.(?P<digest>[A-Za-z0-9_-]{43})\.(?P<signature>[A-Za-z0-9_-]{86})"
)


@dataclass(frozen=True, slots=True)
class Proof:
    """The parts of a proof, as they were sent."""

    device_id: str
    nonce: str
    time: str
    id: str
    digest: str
    signature: str


def read_proof(text: str) -> Proof | None:
    """Return the parts of a proof; None if it does not have the form of one."""
    found = _PROOF.fullmatch(text)
    return None if found is None else Proof(*found.groups())


@dataclass(frozen=True, slots=True)
class SignedTarget:
    """What a proof is for, as the hub received it."""

    method: str
    origin: str
    target: str


def signed_text(wanted: SignedTarget, proof: Proof) -> bytes:
    """Return what the device has signed."""
    lines = (
        "quarterdeck-request-1",
        wanted.method,
        wanted.origin,
        wanted.target,
        proof.device_id,
        proof.nonce,
        proof.time,
        proof.id,
        proof.digest,
    )
    return "\n".join(lines).encode()


def is_proof_of(key: ec.EllipticCurvePublicKey, proof: Proof, wanted: SignedTarget) -> bool:
    """Return whether `proof` was signed for this request with this key."""
    return is_signed(key, from_base64url(proof.signature), signed_text(wanted, proof))


@dataclass(frozen=True, slots=True)
class NonceAndTime:
    """What a device needs to sign."""

    nonce: str
    milliseconds: int


class _Nonce:
    def __init__(self, began: float) -> None:
        self.text = secrets.token_urlsafe(16)
        self.began = began
        self.ids: set[str] = set()


class Nonces:
    """The two nonces that are valid, and the ids that were used with each."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        ids_per_nonce: int = IDS_PER_NONCE,
    ) -> None:
        self._clock = clock
        self._zero = clock() - _FIRST_SECONDS
        self._ids_per_nonce = ids_per_nonce
        self._newest = _Nonce(clock())
        self._before: _Nonce | None = None

    def newest(self) -> NonceAndTime:
        """Return the nonce that devices are to use now."""
        self._rotate()
        return NonceAndTime(self._newest.text, self._milliseconds())

    def is_valid(self, nonce: str) -> bool:
        """Return whether a nonce is one of this start, and not too old."""
        return self._find(nonce) is not None

    def is_fresh(self, proof: Proof) -> bool:
        """Return whether the nonce and the time are valid and the id is new."""
        nonce = self._find(proof.nonce)
        late = abs(self._milliseconds() - int(proof.time))
        return nonce is not None and late <= LATE_SECONDS * 1000 and proof.id not in nonce.ids

    def use(self, proof: Proof) -> bool:
        """Store the id of a proof that has verified; return False if it is not fresh any more."""
        nonce = self._find(proof.nonce)
        if nonce is None or proof.id in nonce.ids:
            return False  # verifying takes a moment, in which a nonce can end
        nonce.ids.add(proof.id)
        if len(self._newest.ids) >= self._ids_per_nonce:
            self._begin_next()
        return True

    @property
    def stored_ids(self) -> int:
        """How many ids are in memory."""
        return len(self._newest.ids) + (0 if self._before is None else len(self._before.ids))

    def _find(self, text: str) -> _Nonce | None:
        self._rotate()
        valid = (self._newest, self._before)
        return next((each for each in valid if each is not None and each.text == text), None)

    def _rotate(self) -> None:
        age = self._clock() - self._newest.began
        if age >= NONCE_SECONDS:
            self._begin_next()
            if age >= 2 * NONCE_SECONDS:  # nothing was sent for long: both are too old
                self._before = None

    def _begin_next(self) -> None:
        self._before, self._newest = self._newest, _Nonce(self._clock())

    def _milliseconds(self) -> int:
        return int((self._clock() - self._zero) * 1000)
