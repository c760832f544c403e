"""Who may come in: decided from the request's headers alone. Pure.

A server on this computer is within reach of every web page its user visits: a page can send it
requests without asking (a form, an image), and by DNS rebinding even read the answers. So a request
has to name us by a host name of ours, must not come from a page of another origin, and must bring
the token. Each of the three would do against most attacks; together they hold when one fails.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from quarterdeck.errors import AgentError

SHORTEST_TOKEN: Final = 16

_TOKEN: Final = re.compile(r"[!-~]+")
_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a request gets instead of an answer."""

    status: int
    reason: str
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Guard:
    """The rules of one server."""

    token: str | None
    """None lets everybody in who passes the other two rules."""
    hosts: frozenset[str]
    """Names, without a port, that we answer to; "*" stands for every IP address."""
    origins: frozenset[str] = frozenset()
    """Origins besides our own whose pages may come in, such as "https://desk.example"."""

    def refusal(self, headers: Mapping[str, str]) -> Refusal | None:
        """Say why a request is refused; None if it may come in."""
        host = headers.get("host", "")
        if not self._is_ours(host):
            return Refusal(403, f"this server is not called {host!r}; start it with --allow-host")
        if not self._may_come_from(headers.get("origin"), headers, host):
            return Refusal(403, "web pages of other origins may not use this server")
        if self.token is not None and not _has_token(headers.get("authorization", ""), self.token):
            reason = "this needs the token: send Authorization: Bearer TOKEN"
            return Refusal(401, reason, (("www-authenticate", "Bearer"),))
        return None

    def page(self, headers: Mapping[str, str]) -> str | None:
        """Return the origin, one of those named, whose page sends this to us."""
        origin = headers.get("origin")
        is_named = origin in self.origins and self._is_ours(headers.get("host", ""))
        return origin if is_named else None

    def _is_ours(self, host: str) -> bool:
        name = host_name(host)
        return name is not None and (name in self.hosts or ("*" in self.hosts and is_ip(name)))

    def _may_come_from(self, origin: str | None, headers: Mapping[str, str], host: str) -> bool:
        if origin is None:
            # A browser leaves Origin out of some requests, but tells this of all of them.
            return headers.get("sec-fetch-site", "none") in ("none", "same-origin")
        return origin in self.origins or origin in (f"http://{host}", f"https://{host}")


def make_guard(
    host: str, *, token: str | None, allowed_hosts: Iterable[str] = (), origins: Iterable[str] = ()
) -> Guard:
    """Make the rules for a server that listens at `host`."""
    names = {*_LOOPBACK_NAMES, host.lower(), *(name.lower() for name in allowed_hosts)}
    if host in ("0.0.0.0", "::", ""):  # noqa: S104 - asked about, not listened at
        names.add("*")
    return Guard(token, frozenset(names), frozenset(origins))


def check_token(token: str | None, host: str, *, needs_token: bool) -> None:
    """Refuse a token that protects nothing.

    Raises:
        AgentError: with what would do.
    """
    if token is None and needs_token:
        raise AgentError("a token is needed; give one, or say that none is wanted")
    if token is None:
        if not is_loopback(host):
            raise AgentError(f"{host} can be reached by others; a token is needed there")
    elif len(token) < SHORTEST_TOKEN or not _TOKEN.fullmatch(token):
        raise AgentError(f"a token has at least {SHORTEST_TOKEN} plain characters and no blanks")


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_name(host: str) -> str | None:
    """Return the name in a Host header, lower-cased, without port and brackets."""
    try:
        parts = urlsplit(f"//{host}")
        is_plain = parts.netloc == host and "@" not in host and (parts.port or 1) > 0
        return parts.hostname if is_plain else None
    except ValueError:  # a port that is none, brackets that do not match
        return None


def is_ip(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _has_token(authorization: str, token: str) -> bool:
    scheme, _, given = authorization.partition(" ")
    is_same = hmac.compare_digest(given.strip().encode("utf-8", "replace"), token.encode())
    return scheme.lower() == "bearer" and is_same
