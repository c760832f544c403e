"""What there is on this machine for phones to reach it: addresses, Tailscale, a firewall."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from anyio import to_thread

from quarterdeck.hub.reach.tailscale import TailscaleFacts, ask_tailscale
from quarterdeck.machine.network_interfaces import (
    InterfaceAddress,
    default_address,
    interface_addresses,
)

_CONTAINER_MARKS: Final = ("/.dockerenv", "/run/.containerenv")
_CONTAINER_INTERFACES: Final = ("eth0", "tap0")  # as Docker and Podman name them
_INTERFACES: Final = "/sys/class/net"
_UFW: Final = Path("/etc/ufw/ufw.conf")
_FIREWALLD: Final = Path("/run/firewalld")


@dataclass(frozen=True, kw_only=True)
class MachineFacts:
    """Everything about a machine that decides how phones reach it."""

    addresses: tuple[InterfaceAddress, ...] = ()
    default_address: str | None = None
    tailscale: TailscaleFacts = field(default_factory=TailscaleFacts)
    is_in_container: bool = False
    firewall: str = ""


async def look_at_machine(environ: Mapping[str, str]) -> MachineFacts:
    """Return what this machine has."""
    tailscale = await ask_tailscale(environ)
    return await to_thread.run_sync(_facts, tailscale)


def _facts(tailscale: TailscaleFacts) -> MachineFacts:
    addresses, default = interface_addresses(), default_address()
    return MachineFacts(
        addresses=addresses,
        default_address=default,
        tailscale=tailscale,
        is_in_container=_is_in_container(addresses, default),
        firewall=_firewall(),
    )


def _is_in_container(addresses: Iterable[InterfaceAddress], default: str | None) -> bool:
    """Return whether a container has a network of its own: in the host's it is like any program."""
    if not any(Path(each).exists() for each in _CONTAINER_MARKS):
        return False
    names = {each.interface for each in addresses if each.address == default}
    return bool(names) and all(
        name in _CONTAINER_INTERFACES and not Path(_INTERFACES, name, "device").exists()
        for name in names
    )


def _firewall() -> str:
    """Return the name of a firewall that is turned on, as far as every user can see that."""
    try:
        if "ENABLED=yes" in _UFW.read_text(encoding="utf-8", errors="replace"):
            return "ufw"
    except OSError:
        pass  # it is not installed
    return "firewalld" if _FIREWALLD.exists() else ""
