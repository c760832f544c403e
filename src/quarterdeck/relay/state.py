"""`RelayState`: whether phones reach this hub through its relay, and what to do if not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

CertificateKind: TypeAlias = Literal["none", "own", "files", "acme"]
"""none: not issued yet; own: of the hub's own authority, which a phone has to trust first; files:
given by the owner; acme: of a public authority."""


@dataclass(frozen=True, kw_only=True)
class CertificateState:
    """The certificate for the hub's name at the relay."""

    kind: CertificateKind = "none"
    expires_at: float | None = None
    """Unix time."""
    problem: str | None = None
    """Why the last attempt to obtain or renew it failed."""
    remedy: str | None = None
    """What the owner should do about that; None: see that the name leads to the relay."""
    account: str | None = None
    """The address of the ACME account, which a CAA record can name; None: not known yet."""
    is_test: bool = False
    """Of a staging authority: phones do not accept it."""

    @property
    def is_trusted(self) -> bool:
        """Whether every phone accepts it without further steps."""
        return self.kind in ("files", "acme") and not self.is_test


@dataclass(frozen=True, kw_only=True)
class RelayState:
    """The tunnel of a hub to its relay, as people should see it."""

    relay: str
    """Its name, such as "relay.example.org"."""
    public_url: str
    """The address of this hub for phones; it is the same after every restart."""
    is_connected: bool = False
    since: float | None = None
    """Unix time: connected or disconnected since then; None: never tried."""
    problem: str | None = None
    """Why it is not connected."""
    certificate: CertificateState = field(default_factory=CertificateState)

    @property
    def is_usable(self) -> bool:
        """Whether a phone that opens `public_url` reaches the hub without a warning."""
        return self.is_connected and self.certificate.is_trusted

    @property
    def next_step(self) -> str | None:
        """What the owner should do; None if nothing."""
        if not self.is_connected:
            return (
                f"check that the relay runs and that this computer reaches {self.relay};"
                " the hub tries again by itself"
            )
        if self.certificate.kind == "none":
            if self.certificate.problem is not None:
                return self.certificate.remedy or (
                    f"check that the DNS name *.{self.relay} leads to the relay;"
                    " the hub tries again by itself"
                )
            return None  # it is being issued
        if self.certificate.kind == "own":
            return (
                "phones do not trust the hub's own certificate; let an authority issue one:"
                " quarterdeck up --agree-terms, or give one: --relay-cert FILE --relay-key FILE"
            )
        if not self.certificate.is_trusted:
            return "phones do not trust this authority; use another one: --acme-directory URL"
        return None
