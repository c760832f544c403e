"""How phones reach the hub, as `up --phone` and `devices pair` print it.

The sentences are the hub's own (`hub.reach.ways`), the same as in `doctor` and on the page. A QR
code is printed only for what a phone can open.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from quarterdeck.cli.terminal.screen import Screen
from quarterdeck.hub.auth.pairing import qr_text
from quarterdeck.hub.reach import Reach, Way
from quarterdeck.views.text import wrapped

_INDENT: Final = 9  # the width of the names


@dataclass(frozen=True, kw_only=True)
class PairingOffer:
    """A link and a code that pair one device."""

    link: str
    code: str
    scope: str


def print_phone(screen: Screen, reach: Reach, offer: PairingOffer, *, with_qr: bool) -> None:
    """Print how to pair a phone, which can reach the hub."""
    has_code = with_qr and screen.is_terminal and screen.is_fancy
    screen.line(f"A phone can connect from {_used(reach).works_from}: {reach.url}", "strong")
    _print_named(screen, "found", reach.found)
    if reach.trust_steps and reach.trust_url is not None and reach.fingerprint is not None:
        _print_trust(screen, reach, has_code=has_code)
        screen.line("  2. Pair the phone: scan this code, or open the link." if has_code else "")
    if has_code:
        screen.line(qr_text(offer.link).rstrip("\n"))
    print_pairing(screen, offer)
    used = _used(reach)
    for step in dict.fromkeys((used.next_step, reach.next_step)):
        if step:
            _print_named(screen, "hint", step)


def print_unreachable(screen: Screen, reach: Reach) -> None:
    """Print why no phone can reach the hub, and what to do."""
    screen.line(f"{reach.found}.", "strong")
    for way in reach.ways:
        _print_named(screen, "", f"{way.found}.")
    _print_named(screen, "next", reach.next_step)


def print_pairing(screen: Screen, offer: PairingOffer) -> None:
    screen.line(f"  link   {offer.link}")
    screen.line(f"  code   {offer.code}", "strong")
    screen.line(f"         pairs one device with scope {offer.scope}; valid for 10 min", "dim")


def _print_trust(screen: Screen, reach: Reach, *, has_code: bool) -> None:
    how = "scan this code, or open the address" if has_code else "open the address"
    screen.line(f"  1. Trust the hub on the phone, once ({reach.trust_steps} steps): {how}.")
    if has_code and reach.trust_url is not None:
        screen.line(qr_text(reach.trust_url).rstrip("\n"))
    screen.line(f"  open   {reach.trust_url}", "strong")
    for number, part in enumerate(_halves(reach.fingerprint or "")):
        screen.line(f"  {'' if number else 'check':5}  {part}")
    screen.line("         must be the fingerprint (SHA-256) of the certificate on the phone", "dim")


def _halves(fingerprint: str) -> Iterator[str]:
    half = len(fingerprint) // 2 + 1
    yield fingerprint[:half]
    yield fingerprint[half:]


def _used(reach: Reach) -> Way:
    return next(way for way in reach.ways if way.url == reach.url and way.state == "usable")


def _print_named(screen: Screen, name: str, text: str) -> None:
    """Print a text under a name; commands in it stay whole on the last line."""
    first, *rest = wrapped(text, screen.width - _INDENT)
    screen.line(f"  {name:5}  {first}")
    for line in rest:
        screen.line(" " * _INDENT + line)
