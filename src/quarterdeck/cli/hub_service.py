"""`quarterdeck up`: the hub on a port, until Ctrl-C or SIGTERM.

SIGHUP reloads the configuration, as for other services; an invalid one changes nothing. A terminal
that is closed sends the same signal: then the hub stops.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import webbrowser
from argparse import Namespace
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from types import FrameType
from typing import Any, NoReturn

import anyio
from anyio import to_thread

from quarterdeck.cli.arguments import DONE, INTERRUPTED
from quarterdeck.cli.config import NOT_A_FILE, HubConfig, config_path, hub_options, load_config
from quarterdeck.cli.hub_access import HubAddress
from quarterdeck.cli.log_output import hub_logging
from quarterdeck.cli.terminal.screen import Screen, print_json, print_note
from quarterdeck.errors import CommandFailed, SettingsInvalid
from quarterdeck.http.certificates import CertificateUnusable, check_certificate
from quarterdeck.http.origins import LOCAL_PROXIES, is_loopback
from quarterdeck.hub.auth.pairing import pairing_link, qr_text
from quarterdeck.hub.editors import acp_endpoints
from quarterdeck.hub.hub import Hub
from quarterdeck.hub.options import HubOptions
from quarterdeck.hub.server import serving


@dataclass(frozen=True, kw_only=True)
class PairingOffer:
    """A link and a code that pair one device."""

    link: str
    code: str
    scope: str


def serve_hub(chosen: Namespace) -> int:
    """Run the command."""
    address = HubAddress.of(chosen)
    config = load_config(address.environ, address.config_file)
    options = hub_options(
        config,
        home=address.home,
        environ=address.environ,
        config_file=address.config_file,
        host=chosen.host,
        port=chosen.port,
        certificate=chosen.tls_cert,
        private_key=chosen.tls_key,
        behind_proxy=chosen.behind_proxy,
        trusted_proxies=(
            None if chosen.trusted_proxy is None else (*LOCAL_PROXIES, *chosen.trusted_proxy)
        ),
        allowed_hosts=None if chosen.allow_host is None else tuple(chosen.allow_host),
    )
    _check_certificate(options)
    with hub_logging(chosen.log_file):
        reload = partial(reload_config, address=address, started_with=config)
        backend = {"use_uvloop": find_spec("uvloop") is not None}
        return anyio.run(_serve, options, chosen, reload, backend_options=backend)


def _check_certificate(options: HubOptions) -> None:
    """Check the certificate and its key before anything is started.

    Raises:
        CommandFailed: if they cannot be used.
    """
    certificate, key = options.certificate, options.private_key
    if certificate is None and key is None:
        return
    if certificate is None or key is None:
        raise CommandFailed(
            "a certificate needs its key; pass both --tls-cert and --tls-key, or none"
        )
    try:
        check_certificate(certificate, key)
    except CertificateUnusable as error:
        raise CommandFailed(
            f"cannot use the certificate {certificate} with the key {key}: {error};"
            " check that both are readable PEM files and belong together"
        ) from error


async def _serve(
    options: HubOptions, chosen: Namespace, reload: Callable[[Hub], Awaitable[None]]
) -> int:
    async with Hub(options, parts=(acp_endpoints,)) as hub, serving(hub) as address:
        with anyio.open_signal_receiver(*_SIGNALS) as signals:
            had_terminal = has_terminal()
            pairing = await offer_pairing(hub, chosen)
            _print_start(options, address.url, pairing, chosen)
            gc.freeze()  # what is loaded by now stays: the collector need not scan it again
            if chosen.open and pairing is not None:
                await to_thread.run_sync(webbrowser.open, pairing.link)
            async for number in signals:
                if number != signal.SIGHUP or (had_terminal and not has_terminal()):
                    break
                await reload(hub)
        # From here on a second Ctrl-C exits without waiting for the agents.
        signal.signal(signal.SIGINT, _exit_at_once)
        print_note("stopping; press Ctrl-C again to exit at once")
    print_note("stopped; your sessions are stored")
    return INTERRUPTED if number == signal.SIGINT else DONE


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _exit_at_once(_number: int, _frame: FrameType | None) -> NoReturn:
    os._exit(INTERRUPTED)  # agents end too: their guard notices that this process is gone


async def offer_pairing(hub: Hub, chosen: Namespace) -> PairingOffer | None:
    """Create a pairing code for a first device, if the output is for a person or a program."""
    if not (sys.stdout.isatty() or chosen.json or chosen.open):
        return None  # the output of a service is a log, where a code would be a leaked secret
    scope: Any = "admin" if is_loopback(hub.options.host) else "approve"
    _, codes = await hub.auth.pairings.create(scope=scope)
    link = pairing_link(hub.auth.public_origin, codes.long)
    return PairingOffer(link=link, code=codes.short, scope=scope)


def _print_start(
    options: HubOptions, url: str, pairing: PairingOffer | None, chosen: Namespace
) -> None:
    """Print where the hub is and how to pair a device."""
    if chosen.json:
        print_json(_start_facts(options, url, pairing))
        return
    screen = Screen(sys.stdout)
    screen.line(f"Quarterdeck is running at {url}", "strong")
    is_local = is_loopback(options.host)
    if pairing is not None:
        if not is_local and screen.is_terminal and screen.is_fancy and not chosen.no_qr:
            screen.line(qr_text(pairing.link).rstrip("\n"))
        screen.line(f"  link   {pairing.link}")
        screen.line(f"  code   {pairing.code}", "strong")
        screen.line(
            f"         pairs one device with scope {pairing.scope}; valid for 10 min", "dim"
        )
    screen.line(f"  data   {options.home}")
    if is_local:
        screen.line(
            "  Only this computer can connect; to add a phone, see quarterdeck up --help.", "dim"
        )
    screen.line("  Try it in another terminal: quarterdeck run demo hello", "dim")
    screen.line("  Press Ctrl-C to stop; sessions are kept.", "dim")


def _start_facts(options: HubOptions, url: str, pairing: PairingOffer | None) -> dict[str, Any]:
    facts: dict[str, Any] = {"url": url, "pid": os.getpid(), "home": str(options.home)}
    if pairing is not None:
        facts["pairing"] = {"link": pairing.link, "code": pairing.code, "scope": pairing.scope}
    return facts


# ---- reload ------------------------------------------------------------------------------------

_LIVE = ("agents", "policy", "approvals", "sessions", "retention", "confine", "projects")


def has_terminal() -> bool:
    """Whether this process has a terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


async def reload_config(hub: Hub, address: HubAddress, started_with: HubConfig) -> None:
    """Apply what can change while the hub runs, and report what needs a restart."""
    path, _ = config_path(address.environ, address.config_file)
    if started_with != HubConfig() and path is not None and not path.exists():
        print_note(f"{path} does not exist any more; the configuration is unchanged")
        return
    if path is not None and path.exists() and not path.is_file():
        print_note(f"{path} {NOT_A_FILE}; the configuration is unchanged")
        return  # reading a pipe without a writer would block, and signals with it
    try:
        config = await to_thread.run_sync(load_config, address.environ, address.config_file)
    except SettingsInvalid as error:
        print_note(f"{error}; the configuration is unchanged")
        return
    hub.reconfigure(hub_options(config, home=address.home, environ=address.environ))
    fixed = [
        name
        for name in HubConfig.__struct_fields__
        if name not in _LIVE and getattr(config, name) != getattr(started_with, name)
    ]
    later = f"; [{'], ['.join(fixed)}] take effect at the next start" if fixed else ""
    print_note(f"configuration reloaded: {_summary(config)}{later}")


def _summary(config: HubConfig) -> str:
    agents, rules = len(config.agents), len(config.policy.rule)
    return f"{agents} agent{'s' * (agents != 1)}, {rules} rule{'s' * (rules != 1)}"
