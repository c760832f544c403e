"""`ReachService`: listens where phones can reach the hub, tries it, and reports what works.

With `up --phone` it listens, besides the hub's own address, at those of `ways.targets`, each with
TLS. It looks again when the addresses of this machine change, and now and then for the sake of
certificates; a new certificate is used for the next connection, without a restart. Without
`--phone` it listens nowhere, and only reports.
"""

from __future__ import annotations

import errno
import logging
import socket
import ssl
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import anyio
import msgspec
from anyio import to_thread

from quarterdeck.errors import StartRefused
from quarterdeck.http.certificate_pins import pin_fingerprint
from quarterdeck.http.origins import Listening
from quarterdeck.http.server import (
    RunningServer,
    ServerOptions,
    listening as listening_socket,
    running_server,
    server_config,
    text_error,
)
from quarterdeck.hub.auth.accepted_sites import AcceptedSites
from quarterdeck.hub.auth.device_keys import HubKey
from quarterdeck.hub.certificates import PrivateAuthority, open_authority
from quarterdeck.hub.certificates.authority import AUTHORITY_FILE, FOLDER
from quarterdeck.hub.reach.machine_facts import MachineFacts, look_at_machine
from quarterdeck.hub.reach.probe import try_target
from quarterdeck.hub.reach.tailscale import TailscaleRefused, tailscale_certificate
from quarterdeck.hub.reach.trust_page import TrustPage
from quarterdeck.hub.reach.ways import (
    AGAIN,
    Outcome,
    Reach,
    ReachFacts,
    Target,
    describe,
    is_wanted,
    targets,
)
from quarterdeck.machine.network_interfaces import InterfaceAddress, interface_addresses
from quarterdeck.machine.private_files import private_folder, replace_private
from quarterdeck.relay.state import RelayState
from quarterdeck.wire import background_tasks

logger = logging.getLogger(__name__)

FRESH_SECONDS: Final = 10.0
"""For so long a report is not made again."""
_LOOK_SECONDS: Final = 10.0
_RENEW_SECONDS: Final = 6 * 3_600.0
_ORDER_SECONDS: Final = (
    0.9 * _RENEW_SECONDS
)  # for which a certificate of Tailscale is not requested again
_TAILSCALE_FILE: Final = "tailscale.pem"
_SOURCE: Final = "reach"

LookAtMachine: TypeAlias = Callable[[], Awaitable[MachineFacts]]
FindRelay: TypeAlias = Callable[[], RelayState | None]


@dataclass(frozen=True, kw_only=True)
class ReachOptions:
    """What the service knows of its hub."""

    home: Path
    environ: Mapping[str, str]
    listening: Listening
    """With the port that the hub has."""
    is_for_phones: bool
    key: HubKey
    relay: FindRelay = lambda: None


@dataclass
class _Listener:
    certificate: str
    close: ExitStack


class ReachService:
    """Phones' access to one hub."""

    def __init__(
        self,
        options: ReachOptions,
        sites: AcceptedSites,
        server: RunningServer,
        pages: RunningServer | None,
        look: LookAtMachine | None = None,
    ) -> None:
        """`pages` serves `trust_page`; None for a hub that listens nowhere else."""
        self._options = options
        self._sites = sites
        self._server = server
        self._pages = pages
        self._look = look or (lambda: look_at_machine(options.environ))
        self.trust_page = TrustPage()
        self._listeners: dict[str, _Listener] = {}
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._authority: PrivateAuthority | None = None
        self._ordered, self._ordered_at = "", 0.0
        self._trust_url: str | None = None
        self._trust_listener = ExitStack()
        self._trust_address = ""
        self._report: Reach | None = None
        self._seen: tuple[InterfaceAddress, ...] | None = None
        self._made_at = float("-inf")
        self._lock = anyio.Lock()

    async def report(self) -> Reach:
        """Return how phones can reach the hub.

        It is tried again if the last report is not recent, or this machine has other addresses.
        """
        async with self._lock:
            is_old = time.monotonic() - self._made_at > FRESH_SECONDS
            addresses = await to_thread.run_sync(interface_addresses)
            if self._report is None or is_old or addresses != self._seen:
                self._seen = addresses
                self._report = await self._renewed()
                self._made_at = time.monotonic()
            return self._report

    async def watch(self) -> None:
        """Follow the addresses of this machine, until cancelled."""
        while True:
            try:
                await self._look_again()
            except Exception:  # the edge of a task: the hub must not end because of it
                logger.exception("phones' access could not be checked")
            await anyio.sleep(_LOOK_SECONDS)

    async def _look_again(self) -> None:
        found = await to_thread.run_sync(interface_addresses)
        if found != self._seen or time.monotonic() - self._made_at > _RENEW_SECONDS:
            report = await self.report()
            logger.info("phones", extra={"url": report.url, "found": report.found})

    def close(self) -> None:
        """Stop listening at further addresses."""
        self._sites.set_further(_SOURCE, ())
        for each in self._listeners.values():
            each.close.close()
        self._listeners.clear()
        self._trust_listener.close()

    # ---- one look --------------------------------------------------------------------------

    async def _renewed(self) -> Reach:
        options, machine = self._options, await self._look()
        facts = ReachFacts(
            listening=options.listening,
            is_for_phones=options.is_for_phones,
            addresses=machine.addresses,
            default_address=machine.default_address,
            tailscale=machine.tailscale,
            relay=options.relay(),
            has_authority=(options.home / AUTHORITY_FILE).exists(),
            is_in_container=machine.is_in_container,
            firewall=machine.firewall,
        )
        found = targets(facts)
        # A relay and a proxy have their names from the configuration.
        ours = [each.origin for each in found if each.kind not in ("public", "relay")]
        self._sites.set_further(_SOURCE, ours)
        outcomes: dict[str, Outcome] = {}
        used: list[Target] = []
        for target in found:
            if is_wanted(target, facts, has_better=_has_usable(outcomes)):
                used.append(target)
                outcomes[target.origin] = await self._try(target, found)
        self._close_except(used)
        return self._completed(describe(facts, outcomes))

    async def _try(self, target: Target, found: Sequence[Target]) -> Outcome:
        try:
            await self._open(target, found)
        except TailscaleRefused as error:
            return _refused_words(str(error))
        except StartRefused as error:
            return Outcome(problem=str(error))
        except OSError as error:
            return _unbound_words(error)
        context = None
        if target.certificate == "own" and self._authority is not None:
            context = ssl.create_default_context(cadata=self._authority.pem)
        outcome = await try_target(target, self._options.key, context=context)
        if outcome.problem and target.certificate == "tailscale":
            self._ordered = ""  # its certificate may be the reason
        return outcome

    def _completed(self, report: Reach) -> Reach:
        if report.trust_steps == 0 or self._authority is None:
            return report
        return msgspec.structs.replace(
            report,
            trust_url=self._trust_url,
            pin=self._authority.pin,
            fingerprint=pin_fingerprint(self._authority.pin),
        )

    # ---- sockets and certificates ----------------------------------------------------------

    async def _open(self, target: Target, found: Sequence[Target]) -> None:
        if not target.listens_at:
            return
        owned = [each for each in found if each.certificate == "own"]
        if target.certificate == "own":
            await self._certify_own(owned)
        else:
            await self._certify_by_tailscale(target)
        await self._listen(target)
        if owned and target is owned[0]:
            await self._serve_trust_page(target)

    async def _certify_own(self, owned: Iterable[Target]) -> None:
        addresses = [each for target in owned for each in target.listens_at]
        now = time.time()

        def certify() -> tuple[PrivateAuthority, Path]:
            authority = self._authority or open_authority(self._options.home, now)
            return authority, authority.certified(addresses, now)

        self._authority, path = await to_thread.run_sync(certify)
        self._load("own", path)

    async def _certify_by_tailscale(self, target: Target) -> None:
        name = target.origin.removeprefix("https://").rpartition(":")[0]
        if self._ordered == name and time.monotonic() - self._ordered_at < _ORDER_SECONDS:
            return
        self._ordered = ""
        content = await tailscale_certificate(self._options.environ, name)
        path = private_folder(self._options.home / FOLDER) / _TAILSCALE_FILE
        await to_thread.run_sync(replace_private, path, content)
        try:
            self._load("tailscale", path)
        except ssl.SSLError as error:
            raise TailscaleRefused(f"its certificate cannot be used ({error})") from error
        self._ordered, self._ordered_at = name, time.monotonic()

    def _load(self, source: str, path: Path) -> None:
        """Use a certificate from the next connection on."""
        context = self._contexts.get(source)
        if context is None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(path)
        self._contexts[source] = context

    async def _listen(self, target: Target) -> None:
        """Listen at the addresses of a target; one of them is enough.

        Raises:
            OSError: if it is possible at none.
        """
        refused: OSError | None = None
        for address in target.listens_at:
            try:
                await self._listen_at(address, target.certificate)
            except OSError as error:
                refused = error
        if refused is not None and not any(each in self._listeners for each in target.listens_at):
            raise refused

    async def _listen_at(self, address: str, certificate: str) -> None:
        found = self._listeners.get(address)
        if found is not None and found.certificate == certificate:
            return
        if found is not None:
            del self._listeners[address]
            found.close.close()
        with ExitStack() as stack:
            port = self._options.listening.port
            opened = stack.enter_context(listening_socket(address, port))
            ended = await self._server.accept_at(opened, self._contexts[certificate])
            stack.callback(ended)
            self._listeners[address] = _Listener(certificate, stack.pop_all())

    def _close_except(self, used: Iterable[Target]) -> None:
        kept = {address for each in used for address in each.listens_at}
        for address in set(self._listeners) - kept:
            self._listeners.pop(address).close.close()
        if self._trust_address not in kept:
            self._trust_listener.close()
            self._trust_address, self._trust_url = "", None

    async def _serve_trust_page(self, target: Target) -> None:
        address = target.listens_at[0]
        if self._pages is None or self._authority is None:
            return
        self.trust_page.fill(self._authority, target.origin)
        if self._trust_address == address:
            return
        self._trust_listener.close()
        with ExitStack() as stack:
            opened = stack.enter_context(_any_port(address, self._options.listening.port + 1))
            stack.callback(await self._pages.accept_at(opened))
            port = opened.getsockname()[1]
            self._trust_listener = stack.pop_all()
        host = f"[{address}]" if ":" in address else address
        self._trust_address, self._trust_url = address, f"http://{host}:{port}"


def _has_usable(outcomes: Mapping[str, Outcome]) -> bool:
    return any(not each.problem for each in outcomes.values())


@contextmanager
def _any_port(address: str, port: int) -> Iterator[socket.socket]:
    """Listen at a port, or at any other one if that is taken."""
    with ExitStack() as stack:
        try:
            opened = stack.enter_context(listening_socket(address, port))
        except (OSError, OverflowError):
            opened = stack.enter_context(listening_socket(address, 0))
        yield opened


def _refused_words(said: str) -> Outcome:
    """Return why Tailscale gave no certificate, and what to do."""
    if "denied" in said.lower() or "operator" in said.lower():
        step = f"Run: sudo tailscale set --operator=$USER && {AGAIN}"
        return Outcome(problem="Tailscale issues certificates only to its operator", next_step=step)
    return Outcome(problem=f"Tailscale issued no certificate ({said})")


def _unbound_words(error: OSError) -> Outcome:
    place = error.filename or "its address"
    if error.errno == errno.EADDRINUSE:
        return Outcome(problem=f"another program is listening on {place}")
    return Outcome(problem=f"cannot listen on {place} ({error.strerror or error})")


@asynccontextmanager
async def open_reach(
    options: ReachOptions,
    sites: AcceptedSites,
    server: RunningServer,
    look: LookAtMachine | None = None,
) -> AsyncIterator[ReachService]:
    """Give phones access while the body runs, if the options say so; else only report."""
    if not options.is_for_phones:
        yield ReachService(options, sites, server, None, look)
        return
    page = TrustPage()
    config = server_config(
        page, ServerOptions(has_websockets=False, error_format=text_error), end_seconds=1
    )

    async def nothing() -> None:
        """Do nothing: the page has no streams."""

    async with running_server(config, before_end=nothing) as pages, background_tasks() as tasks:
        service = ReachService(options, sites, server, pages, look)
        service.trust_page = page
        tasks.start_soon(service.watch)
        try:
            yield service
        finally:
            service.close()
