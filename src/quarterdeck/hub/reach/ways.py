"""The ways for a phone to reach the hub, which of them is the best, and the next step. Pure.

    way         address that a phone opens            certificate          steps on the phone
    public      the configured name (proxy, own TLS)  of its owner         none
    relay       the hub's name at a relay             of a public one      none
    tailscale   this computer's name in the tailnet   of a public one      none; it has Tailscale
    vpn         its address in another VPN            the hub's own        trust it, once
    network     its address in the local network      the hub's own        trust it, once

The first in this order that works is used. What the owner has configured is first, because the
owner chose it. Then come names with a certificate that phones trust already, then addresses: first
those that also work outside of this network.

A way is *usable* only if the hub has connected to its address itself, over TLS, accepting what a
phone accepts, and the answer was signed with its own key. Only then is a QR code drawn. Everything
that is shown about ways, by `up`, `doctor` and the page, is text of this module.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from quarterdeck.http.origins import Listening, is_loopback, is_wildcard, public_origin
from quarterdeck.http.public_addresses import PRIVATE_NETWORKS
from quarterdeck.hub.reach.tailscale import TailscaleFacts
from quarterdeck.machine.network_interfaces import InterfaceAddress
from quarterdeck.relay.state import RelayState

WayKind: TypeAlias = Literal["public", "relay", "tailscale", "vpn", "network"]
WayState: TypeAlias = Literal["usable", "possible", "unavailable"]
CertificateSource: TypeAlias = Literal["trusted", "tailscale", "own"]

TRUST_STEPS: Final = 3
"""Of the page where a phone gets the certificate: download it, install it, turn on trust in it."""
AGAIN: Final = "quarterdeck up --phone"
_HTTPS_PAGE: Final = "https://login.tailscale.com/admin/dns"

# Names of interfaces, as the programs that make them choose them.
_BRIDGES: Final = re.compile(
    r"docker|br-[0-9a-f]{12}$|veth|virbr|vnet|lxc|lxdbr|incusbr|cni|flannel|cali|podman|vmnet|vboxnet"
    r"|kube|nerdctl|bridge1[0-9][0-9]$|awdl|llw|anpi"
)
_VPNS: Final = re.compile(r"tailscale|wg|zt|nebula|utun|tun|tap|ppp|ipsec|nordlynx|proton|mullvad")
_TAILNET: Final = tuple(map(ipaddress.ip_network, ("100.64.0.0/10", "fd7a:115c:a1e0::/48")))


@dataclass(frozen=True, kw_only=True)
class ReachFacts:
    """What is known about the hub and its machine."""

    listening: Listening
    is_for_phones: bool = False
    """Whether it may listen at further addresses: `up --phone`."""
    addresses: tuple[InterfaceAddress, ...] = ()
    default_address: str | None = None
    tailscale: TailscaleFacts = field(default_factory=TailscaleFacts)
    relay: RelayState | None = None
    has_authority: bool = False
    """Whether phones may trust the hub's own authority already: then their addresses stay open."""
    is_in_container: bool = False
    firewall: str = ""
    """The name of one that is turned on."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """An address that a phone could open, before it was tried."""

    kind: WayKind
    origin: str
    certificate: CertificateSource = "trusted"
    listens_at: tuple[str, ...] = ()
    """Addresses that the hub has to listen at for it."""
    leads_to: tuple[str, ...] = ()
    """Addresses of its name, as far as they are known without asking."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of trying a target."""

    problem: str = ""
    """Why it does not work, in a clause; empty if it does."""
    next_step: str = ""
    is_skipped: bool = False
    """Whether it was not tried, because a better way works."""


class Way(Struct, frozen=True, kw_only=True, rename="camel"):
    """One way for a phone to reach the hub."""

    kind: WayKind
    state: WayState
    """Usable: the hub has connected to it itself. Possible: after the next step."""
    url: str | None
    """What a phone opens."""
    found: str
    """What was found, in a sentence."""
    next_step: str
    """What to do to make it usable; empty if it is."""
    works_from: str
    """Where the phone may be."""
    trust_steps: int
    """What has to be done on the phone before, once: it must trust the hub's own certificate."""


class Reach(Struct, frozen=True, kw_only=True, rename="camel"):
    """How phones can reach the hub."""

    is_enabled: bool
    """Whether the hub listens for phones: `up --phone`."""
    is_usable: bool
    """Whether a phone can open `url`: only then a QR code is worth drawing."""
    url: str | None
    """Of the best way that is usable."""
    found: str
    next_step: str
    trust_steps: int
    ways: tuple[Way, ...]
    """The best first."""
    trust_url: str | None = None
    """Where a phone gets the hub's own certificate, if it needs it."""
    fingerprint: str | None = None
    """Of that certificate (SHA-256), to compare with what the phone shows."""
    pin: str | None = None
    """The same as programs write it; see `http.certificate_pins`."""


# ---- what to try -------------------------------------------------------------------------------


def targets(facts: ReachFacts) -> tuple[Target, ...]:
    """Return the addresses to listen at and to try, the best first."""
    return tuple(_targets(facts))


def is_wanted(target: Target, facts: ReachFacts, *, has_better: bool) -> bool:
    """Return whether a target is to be opened and tried, given whether a better one works.

    The hub listens at no more addresses than needed, but a phone that uses its own certificate
    already must not lose its address because of a better one.
    """
    return not has_better or (target.certificate == "own" and facts.has_authority)


def _targets(facts: ReachFacts) -> Iterator[Target]:
    if (origin := _configured_origin(facts.listening)) is not None:
        yield Target(kind="public", origin=origin)
    if facts.relay is not None and facts.relay.is_usable:
        yield Target(kind="relay", origin=facts.relay.public_url.rstrip("/"))
    if not facts.is_for_phones or not is_loopback(facts.listening.host):
        return
    if (served := _tailscale_target(facts)) is not None:
        yield served
    for kind in ("vpn", "network"):
        address = _own_address(facts, kind)
        if address is not None:
            yield Target(
                kind=kind,
                origin=f"https://{_bracketed(address.address)}:{facts.listening.port}",
                certificate="own",
                listens_at=(address.address,),
                leads_to=(address.address,),
            )


def _configured_origin(listening: Listening) -> str | None:
    """Return the address that the owner has given the hub; None if it is this computer's only."""
    if listening.allowed_hosts:
        return public_origin(listening)
    if is_loopback(listening.host) or is_wildcard(listening.host):
        return None
    return public_origin(listening)


def _tailscale_target(facts: ReachFacts) -> Target | None:
    found, port = facts.tailscale, facts.listening.port
    if found.state != "running" or not found.name or found.name not in found.certified:
        return None
    served = found.served_at(port)
    if served is not None:
        name, _, public = served.rpartition(":")
        authority = name if public == "443" else served
        origin = f"https://{authority}"
        return Target(kind="tailscale", origin=origin, leads_to=found.addresses)
    return Target(
        kind="tailscale",
        origin=f"https://{found.name}:{port}",
        certificate="tailscale",
        listens_at=found.addresses,
        leads_to=found.addresses,
    )


def _own_address(facts: ReachFacts, kind: str) -> InterfaceAddress | None:
    """Return the address of a kind that a phone most probably reaches."""
    if facts.is_in_container:
        return None
    found = [each for each in facts.addresses if address_kind(each) == kind]
    found = [each for each in found if not (kind == "vpn" and _is_taken(each, facts))]

    def rank(each: InterfaceAddress) -> tuple[bool, bool, InterfaceAddress]:
        return each.address != facts.default_address, ":" in each.address, each

    return min(found, key=rank, default=None)


def _is_taken(address: InterfaceAddress, facts: ReachFacts) -> bool:
    """Whether the hub listens there already, under its name in the tailnet."""
    target = _tailscale_target(facts)
    return target is not None and address.address in facts.tailscale.addresses


def address_kind(found: InterfaceAddress) -> Literal["vpn", "network", "bridge", "public", "none"]:
    """Return what an address of this machine is for.

    A bridge is of containers or virtual machines: no other computer reaches it. A public one is not
    offered: with it the hub would listen to the whole internet.
    """
    ip = ipaddress.ip_address(found.address)
    if ip.is_loopback or ip.is_link_local or ip.is_unspecified or ip.is_multicast:
        return "none"
    if _BRIDGES.match(found.interface):
        return "bridge"
    if not any(ip in each for each in PRIVATE_NETWORKS):
        return "public"
    in_tailnet = any(ip in each for each in _TAILNET)
    return "vpn" if in_tailnet or _VPNS.match(found.interface) else "network"


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


# ---- what came of it ---------------------------------------------------------------------------


def describe(facts: ReachFacts, outcomes: Mapping[str, Outcome]) -> Reach:
    """Return all ways, given what came of each target's origin."""
    tried = {each.kind: each for each in targets(facts)}
    ways = tuple(
        way
        for kind in _DESCRIBED
        if (way := _described(kind, facts, tried.get(kind), outcomes)) is not None
    )
    usable = next((each for each in ways if each.state == "usable"), None)
    if usable is not None:
        return Reach(
            is_enabled=facts.is_for_phones,
            is_usable=True,
            url=usable.url,
            found=usable.found,
            next_step=_better(usable, ways),
            trust_steps=usable.trust_steps,
            ways=ways,
        )
    return Reach(
        is_enabled=facts.is_for_phones,
        is_usable=False,
        url=None,
        found=_nothing_found(facts, ways),
        next_step=_first_step(facts, ways),
        trust_steps=0,
        ways=ways,
    )


_DESCRIBED: Final[tuple[WayKind, ...]] = ("public", "relay", "tailscale", "vpn", "network")
_FROM: Final[Mapping[WayKind, str]] = {
    "public": "wherever that address can be reached",
    "relay": "anywhere",
    "tailscale": "anywhere, with Tailscale on the phone",
    "vpn": "anywhere, with the VPN on the phone",
    "network": "this network",
}


def _described(
    kind: WayKind, facts: ReachFacts, target: Target | None, outcomes: Mapping[str, Outcome]
) -> Way | None:
    if target is None:
        missing = _MISSING[kind](facts)
        return None if missing is None else _way(kind, *missing)
    outcome = outcomes.get(target.origin, Outcome(is_skipped=True))
    if outcome.is_skipped:
        found = f"{_subject(target, facts)} is not used, because a better option works"
        return _way(kind, "unavailable", found, "")
    if outcome.problem:
        step = outcome.next_step or _repair(kind, facts)
        found = f"{_subject(target, facts)} does not work: {outcome.problem}"
        return _way(kind, "possible", found, step, url=target.origin)
    is_own = target.certificate == "own"
    found = f"{_subject(target, facts)}, with {_certificate_words(target)}"
    return _way(
        kind,
        "usable",
        found,
        _firewall_words(facts) if target.listens_at else "",
        url=target.origin,
        trust_steps=TRUST_STEPS if is_own else 0,
    )


def _way(
    kind: WayKind,
    state: WayState,
    found: str,
    next_step: str,
    *,
    url: str | None = None,
    trust_steps: int = 0,
) -> Way:
    return Way(
        kind=kind,
        state=state,
        url=url,
        found=found[:1].upper() + found[1:],
        next_step=next_step,
        works_from=_FROM[kind],
        trust_steps=trust_steps,
    )


def _subject(target: Target, facts: ReachFacts) -> str:
    match target.kind:
        case "public":
            return f"the configured address {target.origin}"
        case "relay":
            return f"the relay's address {target.origin}"
        case "tailscale":
            how = "" if target.listens_at else ", forwarded by tailscale serve"
            return f"Tailscale: {target.origin}{how}"
        case "vpn" | "network":
            names = {each.address: each.interface for each in facts.addresses}
            what = "VPN" if target.kind == "vpn" else "network"
            return f"the {what} address {target.origin} ({names[target.listens_at[0]]})"


def _certificate_words(target: Target) -> str:
    if target.certificate == "own":
        return "the hub's own certificate, which each phone has to trust once"
    return "a certificate that phones trust"


def _firewall_words(facts: ReachFacts) -> str:
    """Return what may still be in the way: the hub cannot try that from outside."""
    if facts.firewall == "ufw":
        return (
            f"If the phone cannot connect, open the port: sudo ufw allow {facts.listening.port}/tcp"
        )
    if facts.firewall:
        return f"If the phone cannot connect, open port {facts.listening.port} in {facts.firewall}"
    return ""


def _repair(kind: WayKind, facts: ReachFacts) -> str:
    if kind == "public":
        return (
            "Check that this name reaches the hub's port and has a certificate that phones trust,"
            " then: quarterdeck doctor"
        )
    if kind in ("vpn", "network"):
        return f"Choose another port: {AGAIN} --port {facts.listening.port + 10}"
    return f"Try again: {AGAIN}"


# ---- ways that are not there -------------------------------------------------------------------

_Missing: TypeAlias = tuple[WayState, str, str] | None


def _no_public(_facts: ReachFacts) -> _Missing:
    return None  # a proxy is for those who know that they want one


def _no_relay(facts: ReachFacts) -> _Missing:
    relay = facts.relay
    if relay is None:
        return (
            "unavailable",
            "no relay is configured",
            f"To reach the hub from anywhere through a relay: {AGAIN} --relay LINK",
        )
    problem = relay.problem or relay.certificate.problem
    if problem is None and relay.is_connected:
        problem = "the hub's name there has no certificate that phones trust"
    step = relay.next_step or "wait a moment, then: quarterdeck doctor"
    found = f"the relay {relay.relay} cannot be used yet: {problem or 'it is still connecting'}"
    return "possible", found, step[:1].upper() + step[1:]


def _no_tailscale(facts: ReachFacts) -> _Missing:
    found = facts.tailscale
    sentences: dict[str, tuple[str, str]] = {
        "absent": (
            "Tailscale is not installed on this computer",
            "To reach the hub from anywhere, install Tailscale here and on the phone"
            f" (https://tailscale.com/download), then: {AGAIN}",
        ),
        "unreadable": (
            f"Tailscale is installed but does not respond ({found.problem})",
            f"Start it, then: {AGAIN}",
        ),
        "stopped": ("Tailscale is installed but not connected", f"Run: tailscale up && {AGAIN}"),
        "signed-out": (
            "Tailscale is installed, but this computer is not signed in or not approved",
            f"Sign in: tailscale up. Then: {AGAIN}",
        ),
    }
    if found.state != "running":
        return "possible" if found.state != "absent" else "unavailable", *sentences[found.state]
    if not found.name or found.name not in found.certified:
        return (
            "possible",
            "Tailscale is connected, but its network issues no HTTPS certificates",
            f"Turn on MagicDNS and HTTPS certificates at {_HTTPS_PAGE}, then: {AGAIN}",
        )
    return _not_listening(facts, f"Tailscale is connected: {found.name}")


def _no_vpn(facts: ReachFacts) -> _Missing:
    found = _own_address(facts, "vpn")
    if found is None:
        return None
    return _not_listening(
        facts, f"this computer has a VPN address: {found.address} ({found.interface})"
    )


def _no_network(facts: ReachFacts) -> _Missing:
    if facts.is_in_container:
        return (
            "unavailable",
            "the hub runs in a container, whose addresses phones cannot reach",
            "Publish the port, and give the hub its public name: --behind-proxy --allow-host NAME",
        )
    found = _own_address(facts, "network")
    if found is not None:
        place = f"this computer has a network address: {found.address} ({found.interface})"
        return _not_listening(facts, place)
    if any(address_kind(each) == "public" for each in facts.addresses):
        return (
            "unavailable",
            "this computer has only a public address, which would expose the hub to the internet",
            f"Use Tailscale or a relay: {AGAIN} --relay LINK",
        )
    return (
        "unavailable",
        "this computer has no address on a local network",
        f"Connect it to the phone's network, then: {AGAIN}",
    )


def _not_listening(facts: ReachFacts, found: str) -> _Missing:
    if not is_loopback(facts.listening.host):
        return (
            "unavailable",
            f"{found}; it is not used, because the hub has its own address (--host)",
            f"To use it, start the hub without --host and --tls-cert: {AGAIN}",
        )
    return "possible", f"{found}; the hub listens on this computer only", f"Run: {AGAIN}"


_MISSING: Final = {
    "public": _no_public,
    "relay": _no_relay,
    "tailscale": _no_tailscale,
    "vpn": _no_vpn,
    "network": _no_network,
}


# ---- the sum -----------------------------------------------------------------------------------


def _nothing_found(facts: ReachFacts, ways: Sequence[Way]) -> str:
    if facts.is_for_phones or any(each.url is not None for each in ways):
        return "No phone can reach this hub yet"
    return "Only this computer can reach the hub"


def _first_step(facts: ReachFacts, ways: Sequence[Way]) -> str:
    """Return the step of the best way that one step would make usable."""
    possible = [each for each in ways if each.state == "possible"]
    if not facts.is_for_phones and any(each.next_step.endswith(AGAIN) for each in possible):
        return f"Run: {AGAIN}"
    offered = possible or sorted(ways, key=lambda each: each.kind != "tailscale")
    return next((each.next_step for each in offered if each.next_step), f"Run: {AGAIN}")


def _better(usable: Way, ways: Sequence[Way]) -> str:
    """Return the step to a way with less to do on the phone, if the phone has to trust the hub."""
    if usable.trust_steps == 0:
        return usable.next_step
    offered = [
        each for each in ways if each.kind in ("tailscale", "relay") and each.state != "usable"
    ]
    offered.sort(key=lambda each: (each.state != "possible", each.kind != "tailscale"))
    return offered[0].next_step if offered else usable.next_step
