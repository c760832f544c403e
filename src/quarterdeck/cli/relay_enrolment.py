"""`quarterdeck up --relay LINK`: remember a relay, and keep its token out of the process list.

The line is stored in the data directory. If it was an argument, the process is replaced by itself
with an address that has no secret: others on this computer can read arguments for as long as a
process runs.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from quarterdeck.cli.runner_start import program
from quarterdeck.errors import CommandFailed, Misused
from quarterdeck.machine.home_locks import lock_owner
from quarterdeck.machine.private_files import private_folder
from quarterdeck.relay.settings import (
    AcmeSettings,
    RelaySettings,
    enrolled,
    forget_relay,
    load_relay,
    save_relay,
)


def enrol(chosen: Namespace, home: Path) -> None:
    """Remember what was chosen; return only when the arguments have no secret any more.

    Raises:
        StartRefused: if it is not the address of a relay.
        Misused: if the options contradict each other.
    """
    if lock_owner(home, "hub") is not None:
        return  # a hub runs there: starting another one fails, with a reason
    private_folder(home)
    if chosen.no_relay:
        if chosen.relay is not None:
            raise Misused("--relay and --no-relay contradict each other; use one of them")
        forget_relay(home)
        return
    before = load_relay(home)
    line = sys.stdin.readline().strip() if chosen.relay == "-" else chosen.relay
    if line is None and before is None:
        raise Misused("these options are for a relay; name it with --relay LINK")
    settings = before if line is None else enrolled(before, line)
    assert settings is not None
    settings = _with_options(settings, chosen)
    if _asks(settings):
        is_agreed = _agrees(settings.acme)
        settings = replace(settings, acme=replace(settings.acme, is_agreed=is_agreed))
    save_relay(home, settings)
    if line is not None:
        _hide(chosen.relay, settings.address.url)


def _with_options(settings: RelaySettings, chosen: Namespace) -> RelaySettings:
    if (chosen.relay_cert is None) != (chosen.relay_key is None):
        raise Misused("a certificate needs its key; pass both --relay-cert and --relay-key")
    acme = settings.acme
    if chosen.acme_directory is not None and chosen.acme_directory != acme.directory:
        if not chosen.acme_directory.startswith("https://"):
            raise Misused("--acme-directory needs an https:// address")
        acme = AcmeSettings(directory=chosen.acme_directory)
    if chosen.acme_ca is not None:
        acme = replace(acme, trusted=chosen.acme_ca.absolute())
    if chosen.agree_terms:
        acme = replace(acme, is_agreed=True)
    if chosen.relay_cert is None:
        return replace(settings, acme=acme)
    certificate, key = chosen.relay_cert.absolute(), chosen.relay_key.absolute()
    return replace(settings, acme=acme, certificate=certificate, private_key=key)


def _asks(settings: RelaySettings) -> bool:
    is_needed = settings.certificate is None and not settings.acme.is_agreed
    return is_needed and sys.stdin.isatty() and sys.stdout.isatty()


def _agrees(acme: AcmeSettings) -> bool:
    host = urlsplit(acme.directory).hostname
    print(
        f"A phone needs a certificate for this hub, which {host} can issue.\n"
        "It publishes the name of the hub in logs that everyone can read.\n"
        f"Do you accept the terms of service of {host}? [y/N] ",
        end="",
        flush=True,
    )
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _hide(given: str, url: str) -> None:
    """Replace a secret in the arguments of this process."""
    was_secret = "#" in given
    arguments = [each.replace(given, url) if given in each else each for each in sys.argv[1:]]
    if given == "-":
        arguments = [url if each == "-" else each for each in sys.argv[1:]]
    sys.argv[1:] = arguments  # for a restart
    if was_secret:
        command = program(*arguments)
        sys.stdout.flush()
        try:
            os.execv(command[0], command)  # noqa: S606 - without a shell is the point
        except OSError as error:
            raise CommandFailed(f"cannot start again ({error.strerror}); try again") from error
