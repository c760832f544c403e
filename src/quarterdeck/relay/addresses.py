"""Where a relay is, and how a hub recognises it: the address that `quarterdeck relay` prints. Pure.

    https://relay.example.org:8443#CERTIFICATE.TOKEN

`CERTIFICATE` is the digest of the relay's own certificate: a hub talks to no other server. `TOKEN`
admits hubs to the relay; a relay that is open to all has none. With `?at=192.0.2.7` before `#`, the
hub connects to that address and does not ask DNS.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlsplit

from quarterdeck.errors import StartRefused
from quarterdeck.http.origins import is_ip

DEFAULT_PORT: Final = 443
_DOMAIN: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_LONGEST_DOMAIN: Final = 200
_FRAGMENT: Final = re.compile(r"(?P<fingerprint>[A-Za-z0-9_-]{43})(\.(?P<token>[A-Za-z0-9_-]*))?")
_REMEDY: Final = "copy the link that `quarterdeck relay` prints on the relay"


@dataclass(frozen=True, kw_only=True)
class RelayAddress:
    """A relay, as a hub knows it."""

    domain: str
    port: int = DEFAULT_PORT
    fingerprint: str = ""
    """Of its certificate: SHA-256, base64url; empty in an address that is only a name."""
    token: str = ""
    at: str = ""
    """The IP address to connect to; empty asks DNS for `domain`."""

    @property
    def url(self) -> str:
        """The address without its secret."""
        port = "" if self.port == DEFAULT_PORT else f":{self.port}"
        return f"https://{self.domain}{port}"

    @property
    def enrolment(self) -> str:
        """The whole address, for the owner of a hub."""
        token = f".{self.token}" if self.token else ""
        at = f"?at={self.at}" if self.at else ""
        return f"{self.url}{at}#{self.fingerprint}{token}"

    def host_of(self, label: str) -> str:
        """Return the host name of a hub."""
        return f"{label}.{self.domain}"

    def origin_of(self, label: str) -> str:
        """Return the address of a hub for browsers."""
        return replace(self, domain=self.host_of(label)).url


def checked_domain(text: str) -> str:
    """Return the name of a relay in lower case.

    Raises:
        StartRefused: if it is not a DNS name.
    """
    name = text.lower().rstrip(".")
    if len(name) > _LONGEST_DOMAIN or _DOMAIN.fullmatch(name) is None or is_ip(name):
        reason = f"{text!r} is not a DNS name for a relay"
        raise StartRefused(reason, "give one whose subdomains lead to it, as relay.example.org")
    return name


def relay_address(text: str) -> RelayAddress:
    """Read an address of a relay, with or without its secret.

    Raises:
        StartRefused: if it is not one.
    """
    try:
        parts = urlsplit(text if "://" in text else f"https://{text}")
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise StartRefused("this is not the address of a relay", _REMEDY) from error
    at = parts.query.removeprefix("at=")
    is_plain = parts.path in ("", "/") and "@" not in parts.netloc
    if parts.query and (at == parts.query or not is_ip(at)):
        is_plain = False
    fragment = _FRAGMENT.fullmatch(parts.fragment) if parts.fragment else None
    if parts.scheme != "https" or not is_plain or (parts.fragment and fragment is None):
        raise StartRefused("this is not the address of a relay", _REMEDY)
    return RelayAddress(
        domain=checked_domain(host),
        port=DEFAULT_PORT if port is None else port,
        fingerprint="" if fragment is None else fragment["fingerprint"],
        token="" if fragment is None else fragment["token"] or "",
        at=at,
    )
