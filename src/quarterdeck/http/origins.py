"""The addresses a server may listen at, and the Host and Origin it accepts. Pure.

A server on this computer can be reached by every web page its user visits: a page can send it
requests without permission (a form, an image), and read the responses by DNS rebinding. So a
request must name the server by a host name of its own, must not come from a page of another origin,
and must bring a token. Each of the three stops most attacks; together they hold when one fails.

On loopback no other computer can read the traffic. Anywhere else a token would cross a network in
clear text, so TLS is required there: our own, or that of a reverse proxy in front.

Two servers use this. A hub answers at the exact `Site`s that follow from where it listens, port
included, since browsers sign their requests for one of them (`sites`; `hub.auth.admission` applies
them). An agent may be mounted behind any port, and accepts names alone (`OriginCheck`).
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from quarterdeck.errors import AgentError, StartRefused

LOOPBACK: Final = "127.0.0.1"
LOOPBACK_IPV6: Final = "::1"
DEFAULT_PORT: Final = 7272
SHORTEST_TOKEN: Final = 16

_LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_NAME: Final = re.compile(
    r"(?P<name>[a-z0-9]([a-z0-9_.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(:(?P<port>[1-9][0-9]{0,4}))?"
)
_TOKEN: Final = re.compile(r"[!-~]+")
OWN_FETCHES: Final = frozenset({"none", "same-origin"})
"""Values of `Sec-Fetch-Site` for requests that no page of another origin makes."""


LOCAL_PROXIES: Final = ("127.0.0.1", "::1")


@dataclass(frozen=True, kw_only=True)
class Listening:
    """Where a hub listens, and what is in front of it."""

    host: str = LOOPBACK
    port: int = DEFAULT_PORT
    allowed_hosts: tuple[str, ...] = ()
    """Names beside its address, such as "desk.example" or "desk.example:8443"."""
    has_tls: bool = False
    is_behind_proxy: bool = False
    """A reverse proxy with TLS is in front; `allowed_hosts` are the names it serves us by."""
    trusted_proxies: tuple[str, ...] = LOCAL_PROXIES
    """Addresses or networks of such a proxy; its claim about the client is accepted. With other
    addresses than loopback, the hub may listen where those can reach it, and takes connections from
    them and from this computer only."""

    @property
    def proxies(self) -> tuple[str, ...] | None:
        """The trusted proxies, if there is one in front."""
        return self.trusted_proxies if self.is_behind_proxy else None


IpNetwork: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


def is_in(address: str, networks: Iterable[IpNetwork]) -> bool:
    """Return whether an address is in one of the networks."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False  # a Unix socket has no address
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return any((mapped or ip) in each for each in networks)


@dataclass(frozen=True, slots=True)
class Site:
    """One name of the hub, as browsers see it."""

    origin: str
    is_secure: bool


def check_listening(listening: Listening) -> None:
    """Reject an address where tokens could be read on the way.

    Raises:
        StartRefused: with what to change.
    """
    host, hosts = listening.host, listening.allowed_hosts
    for name in hosts:
        _split_name(name)
    if listening.is_behind_proxy and not hosts:
        reason = "behind a proxy, the hub must know its public host name"
        raise StartRefused(reason, "add --allow-host NAME, the name that browsers use")
    if is_loopback(host):
        return
    if not listening.has_tls and not listening.is_behind_proxy:
        reason = f"{host} is reachable from the network, where tokens need TLS"
        remedy = (
            f"add --tls-cert and --tls-key, or --behind-proxy with --allow-host NAME,"
            f" or listen at {LOOPBACK}"
        )
        raise StartRefused(reason, remedy)
    if not listening.has_tls and not _has_remote_proxy(listening):
        reason = f"{host} can be reached past the proxy, where tokens need TLS"
        remedy = (
            f"listen at {LOOPBACK} if the proxy runs on this computer, else name its address with"
            " --trusted-proxy ADDRESS, or add --tls-cert and --tls-key"
        )
        raise StartRefused(reason, remedy)
    if is_wildcard(host) and not hosts:
        reason = f"on {host} the hub is reachable by many names and must know which are its own"
        raise StartRefused(reason, "add --allow-host NAME for each name or address browsers use")


def _has_remote_proxy(listening: Listening) -> bool:
    return any(not is_loopback(each) for each in listening.trusted_proxies)


def accepted_peers(listening: Listening) -> tuple[IpNetwork, ...] | None:
    """Return the networks that may connect; None for all.

    Raises:
        StartRefused: if a trusted proxy is not an address.
    """
    networks = tuple(_network(each) for each in listening.trusted_proxies)
    if not listening.is_behind_proxy or listening.has_tls or is_loopback(listening.host):
        return None
    return (*networks, *map(ipaddress.ip_network, ("127.0.0.0/8", "::1/128")))


def _network(address: str) -> IpNetwork:
    try:
        return ipaddress.ip_network(address)
    except ValueError as error:
        reason = f"{address!r} is not the address or network of a proxy ({error})"
        raise StartRefused(reason, "give it as 10.0.0.5 or 10.0.0.0/24") from error


def sites(listening: Listening) -> dict[str, Site]:
    """Return every accepted `Host`, in lower case, with the origin of its pages."""
    named: dict[str, Site] = {}
    for scheme, name, port in _names(listening):
        named |= _hosts(scheme, name, port)
    return named


def sites_of(origin: str) -> dict[str, Site]:
    """Return the same for one origin, such as `https://desk.example:7272`."""
    scheme, _, authority = origin.partition("://")
    name, port = _split_name(authority)
    return _hosts(scheme, name, port or _DEFAULT_PORTS[scheme])


def _hosts(scheme: str, name: str, port: int) -> dict[str, Site]:
    default = _DEFAULT_PORTS[scheme]
    origin = f"{scheme}://{name}" if port == default else f"{scheme}://{name}:{port}"
    site = Site(origin, scheme == "https")
    hosts = {f"{name}:{port}": site}
    return hosts | {name: site} if port == default else hosts


def public_origin(listening: Listening) -> str:
    """Return the address for other devices: the first allowed host, else the listening address."""
    named = sites(listening)
    if listening.allowed_hosts:
        name, port = _split_name(listening.allowed_hosts[0])
        return named[f"{name}:{port or _public_port(listening)}"].origin
    own = _LOOPBACK_NAMES[0] if is_wildcard(listening.host) else _bracketed(listening.host)
    return named[f"{own}:{listening.port}"].origin


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_ip(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return host == ""


def _names(listening: Listening) -> Iterator[tuple[str, str, int]]:
    """Yield the scheme, name and port of every address of the hub."""
    direct = "https" if listening.has_tls else "http"
    if is_loopback(listening.host) or is_wildcard(listening.host):
        for name in _LOOPBACK_NAMES:
            yield direct, name, listening.port
    if not is_wildcard(listening.host):
        yield direct, _bracketed(listening.host), listening.port
    public = "https" if listening.is_behind_proxy else direct
    for allowed in listening.allowed_hosts:
        name, port = _split_name(allowed)
        yield public, name, port or _public_port(listening)


def _public_port(listening: Listening) -> int:
    return _DEFAULT_PORTS["https"] if listening.is_behind_proxy else listening.port


def _split_name(allowed: str) -> tuple[str, int | None]:
    found = _NAME.fullmatch(allowed.lower())
    if found is None or int(found["port"] or 0) > 65_535:
        reason = f"{allowed!r} is not a host name"
        raise StartRefused(reason, "give it as browsers show it: desk.example or desk.example:8443")
    return found["name"], int(found["port"]) if found["port"] else None


def _bracketed(host: str) -> str:
    return f"[{host.lower()}]" if ":" in host else host.lower()


@dataclass(frozen=True, slots=True)
class RejectedRequest:
    """The response to a request that is rejected."""

    status: int
    reason: str
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class OriginCheck:
    """The names, origins and token that one server accepts."""

    token: str | None
    """None requires none: the other two rules remain."""
    hosts: frozenset[str]
    """Accepted host names, without a port; "*" is every IP address."""
    origins: frozenset[str] = frozenset()
    """Origins besides our own whose pages are accepted, such as "https://desk.example"."""

    def rejection(self, headers: Mapping[str, str]) -> RejectedRequest | None:
        """Return why a request is rejected; None if it is accepted."""
        host = headers.get("host", "")
        if not self._is_accepted_host(host):
            reason = f"this server is not called {host!r}; start it with --allow-host"
            return RejectedRequest(403, reason)
        if not self._is_accepted_origin(headers.get("origin"), headers, host):
            return RejectedRequest(403, "web pages of other origins may not use this server")
        if self.token is not None and not _has_token(headers.get("authorization", ""), self.token):
            reason = "this needs the token: send Authorization: Bearer TOKEN"
            return RejectedRequest(401, reason, (("www-authenticate", "Bearer"),))
        return None

    def page(self, headers: Mapping[str, str]) -> str | None:
        """Return the origin of the page that sends this, if it is one of `origins`."""
        origin = headers.get("origin")
        is_named = origin in self.origins and self._is_accepted_host(headers.get("host", ""))
        return origin if is_named else None

    def _is_accepted_host(self, host: str) -> bool:
        name = host_name(host)
        return name is not None and (name in self.hosts or ("*" in self.hosts and is_ip(name)))

    def _is_accepted_origin(
        self, origin: str | None, headers: Mapping[str, str], host: str
    ) -> bool:
        if origin is None:
            # A browser leaves Origin out of some requests, but sends this with all of them.
            return headers.get("sec-fetch-site", "none") in OWN_FETCHES
        return origin in self.origins or origin in (f"http://{host}", f"https://{host}")


def origin_check(
    host: str, *, token: str | None, allowed_hosts: Iterable[str] = (), origins: Iterable[str] = ()
) -> OriginCheck:
    """Return the check of a server that listens at `host`."""
    names = {name.lower() for name in (*_LOOPBACK_NAMES, "::1", host, *allowed_hosts)}
    if is_wildcard(host):
        names.add("*")
    return OriginCheck(token, frozenset(names), frozenset(origins))


def check_token(token: str | None, host: str, *, needs_token: bool) -> None:
    """Reject a token that protects nothing.

    Raises:
        AgentError: with what to change.
    """
    if token is None and needs_token:
        raise AgentError("a token is needed; give one, or say that none is wanted")
    if token is None:
        if not is_loopback(host):
            raise AgentError(f"{host} can be reached by others; a token is needed there")
    elif len(token) < SHORTEST_TOKEN or not _TOKEN.fullmatch(token):
        raise AgentError(f"a token has at least {SHORTEST_TOKEN} plain characters and no blanks")


def host_name(host: str) -> str | None:
    """Return the name in a Host header, lower-cased, without port and brackets."""
    try:
        parts = urlsplit(f"//{host}")
        is_plain = parts.netloc == host and "@" not in host and (parts.port or 1) > 0
        return parts.hostname if is_plain else None
    except ValueError:  # a port that is none, brackets that do not match
        return None


def bearer_token(authorization: str) -> str:
    """Return the token of an Authorization header; empty if it carries none."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _has_token(authorization: str, token: str) -> bool:
    given = bearer_token(authorization).encode("utf-8", "replace")
    return hmac.compare_digest(given, token.encode())
