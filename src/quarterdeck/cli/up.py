"""`quarterdeck up`: the hub on a port, until Ctrl-C."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import webbrowser
from argparse import Namespace
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import anyio
from anyio import to_thread

from quarterdeck.bridge import acp_endpoints
from quarterdeck.cli.arguments import DONE, INTERRUPTED, read
from quarterdeck.cli.hub_config import hub_options, load_config
from quarterdeck.cli.hub_link import Place
from quarterdeck.cli.hub_log import hub_logging
from quarterdeck.cli.parsers import up_parser
from quarterdeck.cli.printing import print_json
from quarterdeck.cli.rereading import has_terminal, reread
from quarterdeck.cli.screen import Screen, say
from quarterdeck.errors import CommandFailed
from quarterdeck.http.certificates import CertificateUnusable, check_certificate
from quarterdeck.http.origins import is_loopback
from quarterdeck.server.hub import Hub
from quarterdeck.server.invitation import pairing_link, qr_text
from quarterdeck.server.options import HubOptions
from quarterdeck.server.running import serving

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Invitation:
    """How a first device gets in."""

    link: str
    code: str
    scope: str


def run(arguments: list[str]) -> int:
    chosen = read(up_parser(), arguments)
    if chosen is None:
        return DONE
    place = Place.of(chosen)
    config = load_config(place.environ, place.config_file)
    options = hub_options(
        config,
        home=place.home,
        environ=place.environ,
        host=chosen.host,
        port=chosen.port,
        certificate=chosen.tls_cert,
        private_key=chosen.tls_key,
        behind_proxy=chosen.behind_proxy,
        allowed_hosts=None if chosen.allow_host is None else tuple(chosen.allow_host),
    )
    _check_certificate(options)
    with hub_logging(chosen.log_file):
        again = partial(reread, place=place, began_with=config)
        fast = {"use_uvloop": find_spec("uvloop") is not None}
        return anyio.run(_up, options, chosen, again, backend_options=fast)


def _check_certificate(options: HubOptions) -> None:
    """Refuse a certificate that cannot be used, before anything is started.

    Raises:
        CommandFailed: with what is wrong.
    """
    certificate, key = options.certificate, options.private_key
    if certificate is None and key is None:
        return
    if certificate is None or key is None:
        raise CommandFailed("a certificate and its key belong together; give both or none")
    try:
        check_certificate(certificate, key)
    except CertificateUnusable as error:
        raise CommandFailed(
            f"the certificate {certificate} with the key {key} cannot be used: {error};"
            " check that both are PEM files, readable, and belong together"
        ) from error


async def _up(
    options: HubOptions, chosen: Namespace, read_again: Callable[[Hub], Awaitable[None]]
) -> int:
    async with Hub(options, parts=(acp_endpoints,)) as hub, serving(hub) as address:
        with anyio.open_signal_receiver(*_SIGNALS) as signals:
            had_terminal = has_terminal()
            invitation = await invite(hub, chosen)
            show(options.home, address.url, invitation, chosen, host=options.host)
            gc.freeze()  # what is loaded by now stays, and need not be looked through again
            if chosen.open and invitation is not None:
                await to_thread.run_sync(webbrowser.open, invitation.link)
            async for number in signals:
                if number != signal.SIGHUP or (had_terminal and not has_terminal()):
                    break
                await read_again(hub)
        # From here on a second Ctrl-C does not wait for anything.
        signal.signal(signal.SIGINT, _leave_at_once)
        say("parking the sessions; Ctrl-C again leaves at once")
    say("stopped; the sessions are kept")
    return INTERRUPTED if number == signal.SIGINT else DONE


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _leave_at_once(_number: int, _frame: FrameType | None) -> NoReturn:
    os._exit(INTERRUPTED)  # agents end with us: whatever guards them sees that we are gone


async def invite(hub: Hub, chosen: Namespace) -> Invitation | None:
    """Make a code for a first device, where somebody can see it."""
    if not (sys.stdout.isatty() or chosen.json or chosen.open):
        return None  # in the journal of a service it would be a secret in a log
    scope: Any = "admin" if is_loopback(hub.options.host) else "approve"
    _, codes = await hub.gate.pairings.create(scope=scope)
    link = pairing_link(hub.gate.public_origin, codes.long)
    return Invitation(link=link, code=codes.short, scope=scope)


def show(
    home: Path, url: str, invitation: Invitation | None, chosen: Namespace, *, host: str
) -> None:
    """Say where the hub is and how to come in."""
    if chosen.json:
        facts: dict[str, Any] = {"url": url, "pid": os.getpid(), "home": str(home)}
        if invitation is not None:
            facts["pairing"] = {
                "link": invitation.link,
                "code": invitation.code,
                "scope": invitation.scope,
            }
        print_json(facts)
        return
    screen = Screen(sys.stdout)
    screen.line(f"Quarterdeck is running at {url}", "strong")
    is_local = is_loopback(host)
    if invitation is not None:
        if not is_local and screen.is_terminal and screen.is_fancy and not chosen.no_qr:
            screen.line(qr_text(invitation.link).rstrip("\n"))
        screen.line(f"  link   {invitation.link}")
        screen.line(f"  code   {invitation.code}", "strong")
        screen.line(
            f"         for one device, which may {invitation.scope}; for ten minutes", "dim"
        )
    screen.line(f"  data   {home}")
    if is_local:
        screen.line(
            "  Only this computer can reach it; to pair a phone, see docs/use/security.md.",
            "dim",
        )
    screen.line("  quarterdeck run demo hello   in another terminal tries it", "dim")
    screen.line("  Ctrl-C stops it; sessions are kept.", "dim")
