"""Where a hub may listen, and by which names it is called. Pure.

On loopback nobody but this computer can listen in. Anywhere else the token would cross a network in
clear text, so TLS is needed there: our own, or that of a reverse proxy in front of us.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from quarterdeck.errors import HubRefused

LOOPBACK: Final = "127.0.0.1"
DEFAULT_PORT: Final = 7272

_LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_NAME: Final = re.compile(
    r"(?P<name>[a-z0-9]([a-z0-9_.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(:(?P<port>[1-9][0-9]{0,4}))?"
)


@dataclass(frozen=True, kw_only=True)
class Listening:
    """Where a hub listens and what is in front of it."""

    host: str = LOOPBACK
    port: int = DEFAULT_PORT
    allowed_hosts: tuple[str, ...] = ()
    """Names by which it is called beside its address, such as "desk.example" or "desk:8443"."""
    has_tls: bool = False
    is_behind_proxy: bool = False
    """A reverse proxy with TLS is in front; `allowed_hosts` are the names it serves us by."""
    trusted_proxies: tuple[str, ...] = ("127.0.0.1", "::1")
    """Addresses of such a proxy: what it says about whom it speaks for is believed."""


@dataclass(frozen=True, slots=True)
class Site:
    """One name of the hub, as browsers see it."""

    origin: str
    cookie: str
    is_secure: bool


def check_listening(listening: Listening) -> None:
    """Refuse to listen where tokens could be read by others.

    Raises:
        HubRefused: with what would do.
    """
    host, hosts = listening.host, listening.allowed_hosts
    for name in hosts:
        _split_name(name)
    if listening.is_behind_proxy and not hosts:
        reason = "behind a proxy, the hub has to know the names it is called by"
        raise HubRefused(reason, "add --allow-host NAME with the name that browsers use")
    if is_loopback(host):
        return
    if not listening.has_tls and not listening.is_behind_proxy:
        reason = f"{host} can be reached from the network, where tokens need TLS"
        remedy = (
            f"give --tls-cert and --tls-key, or --behind-proxy with --allow-host NAME,"
            f" or listen at {LOOPBACK}"
        )
        raise HubRefused(reason, remedy)
    if is_wildcard(host) and not hosts:
        reason = f"at {host} the hub has many names, and must know those that are its own"
        raise HubRefused(reason, "add --allow-host NAME for each name or address browsers use")


def sites(listening: Listening) -> dict[str, Site]:
    """Return every `Host` that we answer to, in lower case, with the origin pages have there."""
    named: dict[str, Site] = {}
    for scheme, name, port in _names(listening):
        default = _DEFAULT_PORTS[scheme]
        origin = f"{scheme}://{name}" if port == default else f"{scheme}://{name}:{port}"
        is_secure = scheme == "https"
        # A cookie is sent to every port of its host: the port in its name tells hubs apart, and
        # "__Host-" keeps pages of other names and of plain http from planting one.
        prefix = "__Host-" if is_secure else ""
        site = Site(origin, f"{prefix}quarterdeck-{port}", is_secure)
        named[f"{name}:{port}"] = site
        if port == default:
            named[name] = site
    return named


def public_origin(listening: Listening) -> str:
    """Return the address for other devices: the first name that was given, else our own."""
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


def is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return host == ""


def _names(listening: Listening) -> Iterator[tuple[str, str, int]]:
    """Yield the scheme, name and port of every address of ours."""
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
        raise HubRefused(reason, "give it as browsers show it: desk.example or desk.example:8443")
    return found["name"], int(found["port"]) if found["port"] else None


def _bracketed(host: str) -> str:
    return f"[{host.lower()}]" if ":" in host else host.lower()
