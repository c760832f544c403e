"""`quarterdeck relay`: the relay on a port, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import anyio
from typing_extensions import override

from quarterdeck.cli.arguments import DONE, INTERRUPTED
from quarterdeck.cli.terminal.screen import Screen, print_json, print_note
from quarterdeck.errors import Misused, StartRefused
from quarterdeck.http.limits import raise_file_limit
from quarterdeck.http.server import listening
from quarterdeck.machine.private_files import private_folder
from quarterdeck.relay import Relay, RelayAddress, RelayIdentity, RelayLimits, relay_identity
from quarterdeck.relay.addresses import checked_domain

_SPARE_FILES = 64


def serve_relay(chosen: Namespace) -> int:
    """Run the command."""
    domain = checked_domain(chosen.domain)
    home = _folder(os.environ) if chosen.home is None else chosen.home.absolute()
    identity = relay_identity(private_folder(home), domain)
    if chosen.open:
        identity = replace(identity, token="")
    if chosen.show:
        if chosen.port == 0:
            raise Misused("--show needs the port that the relay has; name it with --port")
        print(_address(domain, chosen.port, identity).enrolment)
        return DONE
    relay = Relay(domain, identity, _limits(chosen))
    logging.basicConfig(level=logging.INFO if chosen.verbose else logging.WARNING)
    logging.getLogger().handlers[0].setFormatter(_Lines())
    with _listening(chosen.host, chosen.port) as listener:
        port: int = listener.getsockname()[1]
        serve = partial(_serve, relay, listener, chosen, _address(domain, port, identity))
        backend = {"use_uvloop": find_spec("uvloop") is not None}
        return anyio.run(serve, backend_options=backend)


class _Lines(logging.Formatter):
    """One line per record; a relay knows nothing that would have to be removed from it."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        facts = [getattr(record, name) for name in ("hub", "reason") if hasattr(record, name)]
        return " ".join(map(str, ("quarterdeck:", record.getMessage(), *facts)))


async def _serve(
    relay: Relay, listener: socket.socket, chosen: Namespace, address: RelayAddress
) -> int:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with relay.serving([listener]):
            _print_start(chosen, address)
            gc.freeze()  # what is loaded by now stays: the collector need not scan it again
            async for number in signals:
                print_note("stopped")
                return INTERRUPTED if number == signal.SIGINT else DONE
    return DONE  # pragma: no cover - the receiver never ends


def _print_start(chosen: Namespace, address: RelayAddress) -> None:
    if chosen.json:
        print_json({"enrolment": address.enrolment, "port": address.port, "pid": os.getpid()})
        sys.stdout.flush()
        return
    screen = Screen(sys.stdout)
    screen.line(f"The relay for *.{address.domain} is running on port {address.port}", "strong")
    if screen.is_terminal:
        screen.line("  To let phones reach a hub, run this on the hub's computer:")
        screen.line(f"  quarterdeck up --relay '{address.enrolment}'")
        screen.line("  Keep this link secret: it lets hubs use this relay.", "dim")
    else:  # the output of a service is a log, where the token would be a leaked secret
        screen.line("  To print the link that hubs need: quarterdeck relay --show", "dim")
    sys.stdout.flush()


def _address(domain: str, port: int, identity: RelayIdentity) -> RelayAddress:
    return RelayAddress(
        domain=domain, port=port, fingerprint=identity.fingerprint, token=identity.token
    )


def _limits(chosen: Namespace) -> RelayLimits:
    named = {
        "hubs": chosen.max_hubs,
        "hubs_per_address": chosen.max_hubs_per_address,
        "clients_per_hub": chosen.max_clients,
        "bytes_per_second": None if chosen.max_rate is None else chosen.max_rate << 10,
    }
    given = {name: value for name, value in named.items() if value is not None}
    if 0 in given.values():
        raise Misused("a limit of 0 admits nothing; use 1 or more")
    limits = RelayLimits(**given)
    files = raise_file_limit() - _SPARE_FILES
    return replace(limits, connections=max(16, min(limits.connections, files)))


def _folder(environ: Mapping[str, str]) -> Path:
    share = environ.get("XDG_DATA_HOME")
    if share and Path(share).is_absolute():
        return Path(share) / "quarterdeck-relay"
    home = Path(environ.get("HOME") or os.curdir).absolute()
    return home / ".local" / "share" / "quarterdeck-relay"


@contextmanager
def _listening(host: str | None, port: int) -> Iterator[socket.socket]:
    """Listen at an address, by default at all of them.

    Raises:
        StartRefused: if it is not available.
    """
    last: OSError | None = None
    for each in ("::", "0.0.0.0") if host is None else (host,):  # noqa: S104 - a public server
        try:
            with listening(each, port) as listener:
                yield listener
                return
        except OSError as error:
            if error.filename is None:
                raise
            last = error
    assert last is not None
    remedy = "choose another port with --port"
    if isinstance(last, PermissionError):
        remedy = f"run it as root, allow it (setcap cap_net_bind_service=+ep), or {remedy}"
    raise StartRefused(f"cannot listen at port {port} ({last.strerror})", remedy) from last
