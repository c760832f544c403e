"""What the `tailscale` program reports about this computer.

The functions `read_…` are pure; `ask_tailscale` and `tailscale_certificate` run the program.

`tailscale status --json` has the state of the daemon and this computer's names and addresses;
`CertDomains` are the names that the tailnet lets it have certificates for, none while HTTPS is off.
`tailscale serve status --json` has what the daemon passes on, by `NAME:PORT`. `tailscale cert`
prints a certificate and its key; the daemon keeps them, and renews them in time.
"""

from __future__ import annotations

import logging
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

import anyio

from quarterdeck.errors import JsonInvalid
from quarterdeck.http.origins import is_loopback
from quarterdeck.jsontext import decode_json

logger = logging.getLogger(__name__)

_ON_MACOS: Final = "/Applications/Tailscale.app/Contents/MacOS/Tailscale"
_ASK_SECONDS: Final = 10.0
CERTIFICATE_SECONDS: Final = 120.0
"""The first certificate of a name is ordered from a public authority, which takes a while."""
_PEM_KEY: Final = "PRIVATE KEY-----"
_PEM_CERTIFICATE: Final = "-----BEGIN CERTIFICATE-----"

DaemonState: TypeAlias = Literal["absent", "unreadable", "stopped", "signed-out", "running"]
_STATES: Final[Mapping[str, DaemonState]] = {
    "Running": "running",
    "Stopped": "stopped",
    "Starting": "stopped",
    "NoState": "stopped",
    "NeedsLogin": "signed-out",
    "NeedsMachineAuth": "signed-out",
}


@dataclass(frozen=True, kw_only=True)
class TailscaleFacts:
    """Tailscale on this computer."""

    state: DaemonState = "absent"
    problem: str = ""
    """What the program said, if it is unreadable."""
    name: str = ""
    """Such as `desk.tail1234.ts.net`; empty if the tailnet has no names."""
    addresses: tuple[str, ...] = ()
    certified: tuple[str, ...] = ()
    """Names that it can have certificates for."""
    served: Mapping[str, str] = field(default_factory=dict)
    """By `NAME:PORT` with TLS: what the daemon passes the whole site on to."""

    def served_at(self, port: int) -> str | None:
        """Return the `NAME:PORT` that leads to a port of this computer; None if there is none."""
        for authority, target in self.served.items():
            parts = urlsplit(target)
            if parts.port == port and is_loopback(parts.hostname or ""):
                return authority
        return None


def read_status(text: bytes) -> TailscaleFacts:
    """Read what `tailscale status --json` printed."""
    document = _object(text)
    if document is None:
        return TailscaleFacts(state="unreadable", problem="its status cannot be read")
    here = document.get("Self")
    here = here if isinstance(here, dict) else {}
    addresses = _texts(here.get("TailscaleIPs")) or _texts(document.get("TailscaleIPs"))
    return TailscaleFacts(
        state=_STATES.get(str(document.get("BackendState")), "unreadable"),
        problem=f"its state is {str(document.get('BackendState'))[:40]}",
        name=_name(here.get("DNSName")),
        addresses=addresses,
        certified=tuple(map(_name, _texts(document.get("CertDomains")))),
    )


def read_served(text: bytes) -> dict[str, str]:
    """Read what `tailscale serve status --json` printed: TLS sites that are passed on whole."""
    document = _object(text) or {}
    listed, sites = document.get("TCP"), document.get("Web")
    found: dict[str, str] = {}
    for authority, site in (sites if isinstance(sites, dict) else {}).items():
        port = str(authority).rpartition(":")[2]
        listener = listed.get(port) if isinstance(listed, dict) else None
        handlers = site.get("Handlers") if isinstance(site, dict) else None
        whole = handlers.get("/") if isinstance(handlers, dict) else None
        target = whole.get("Proxy") if isinstance(whole, dict) else None
        has_tls = isinstance(listener, dict) and listener.get("HTTPS") is True
        if has_tls and isinstance(target, str):
            found[str(authority).lower()] = target
    return found


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        document = decode_json(text)
    except JsonInvalid:
        return None
    return document if isinstance(document, dict) else None


def _texts(found: Any) -> tuple[str, ...]:
    return tuple(each for each in found if isinstance(each, str)) if isinstance(found, list) else ()


def _name(found: Any) -> str:
    return found.rstrip(".").lower() if isinstance(found, str) else ""


class TailscaleRefused(Exception):
    """The program gave no certificate; `str()` is what it said."""


async def ask_tailscale(environ: Mapping[str, str]) -> TailscaleFacts:
    """Return what Tailscale is on this computer."""
    program = find_tailscale(environ)
    if program is None:
        return TailscaleFacts()
    try:
        found = read_status(await _run(program, "status", "--json"))
        if found.state == "running":
            served = read_served(await _run(program, "serve", "status", "--json"))
            found = replace(found, served=served)
    except TailscaleRefused as error:
        return TailscaleFacts(state="unreadable", problem=str(error))
    return found


async def tailscale_certificate(environ: Mapping[str, str], name: str) -> bytes:
    """Return a certificate for a name of this computer, with its key, as PEM.

    Raises:
        TailscaleRefused: with what the program said.
    """
    program = find_tailscale(environ)
    if program is None:
        raise TailscaleRefused("tailscale is not installed")
    # To standard output: on macOS the program cannot write to other folders.
    arguments = ("cert", "--cert-file=-", "--key-file=-", name)
    found = await _run(program, *arguments, seconds=CERTIFICATE_SECONDS)
    text = found.decode("ascii", "replace")
    if _PEM_CERTIFICATE not in text or _PEM_KEY not in text:
        raise TailscaleRefused("it printed no certificate")
    return found


def find_tailscale(environ: Mapping[str, str]) -> str | None:
    """Return the path of the program; None if it is not installed."""
    return shutil.which("tailscale", path=environ.get("PATH", "")) or shutil.which(_ON_MACOS)


async def _run(program: str, *arguments: str, seconds: float = _ASK_SECONDS) -> bytes:
    try:
        with anyio.fail_after(seconds):
            ended = await anyio.run_process(
                [program, *arguments], stdin=subprocess.DEVNULL, check=False
            )
    except (OSError, TimeoutError) as error:
        raise TailscaleRefused(str(error) or "it did not answer") from error
    if ended.returncode != 0:
        said = ended.stderr.decode(errors="replace").strip() or ended.stdout.decode(
            errors="replace"
        )
        raise TailscaleRefused((said.strip().splitlines() or ["it failed"])[-1][:200])
    return ended.stdout
