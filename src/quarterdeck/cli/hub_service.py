"""`quarterdeck up`: the hub on a port, until Ctrl-C or SIGTERM; its runner stays.

SIGHUP reloads the configuration (`config_reload`). A terminal that is closed sends the same signal:
then the hub stops. A hub can replace itself by the installed version (`hub_processes`): it hands
its sockets and its lock over, so that no client is refused.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import webbrowser
from argparse import Namespace
from contextlib import AbstractContextManager
from dataclasses import replace
from importlib.util import find_spec
from types import FrameType
from typing import Any, Final, NoReturn

import anyio
from anyio import to_thread

from quarterdeck._version import __version__
from quarterdeck.cli.arguments import DONE, INTERRUPTED
from quarterdeck.cli.config import HubConfig, hub_options, load_config
from quarterdeck.cli.config_reload import reload_config
from quarterdeck.cli.first_steps import agent_lines
from quarterdeck.cli.hub_access import HubAddress
from quarterdeck.cli.hub_processes import HubProcesses, replace_process, runner_ready
from quarterdeck.cli.hub_start import HubStart
from quarterdeck.cli.init_process import BELOW_INIT
from quarterdeck.cli.log_output import hub_logging
from quarterdeck.cli.phone_output import (
    PairingOffer,
    print_pairing,
    print_phone,
    print_unreachable,
)
from quarterdeck.cli.runner_start import RUNNER_SOCKET, reap
from quarterdeck.cli.running_processes import find_process
from quarterdeck.cli.terminal.screen import Screen, print_json, print_note
from quarterdeck.errors import CommandFailed
from quarterdeck.http.certificates import CertificateUnusable, check_certificate
from quarterdeck.http.origins import LOCAL_PROXIES, is_loopback
from quarterdeck.hub.api.processes import process_endpoints
from quarterdeck.hub.auth.pairing import pairing_link
from quarterdeck.hub.editors import acp_endpoints
from quarterdeck.hub.hub import Hub
from quarterdeck.hub.listeners import Listeners, open_listeners
from quarterdeck.hub.options import HubOptions
from quarterdeck.hub.reach import Reach
from quarterdeck.hub.server import Address, serving
from quarterdeck.relay.settings import load_relay
from quarterdeck.runner.link import RemoteRunner, connected_runner

RELAY_SECONDS: Final = 45.0
"""For the first certificate of an authority; a hub that has one is ready in less than a second."""


def serve_hub(chosen: Namespace, start: HubStart) -> int:
    """Run the command."""
    address, config, options = _configured(chosen)
    with hub_logging(chosen.log_file), _listeners(options, start) as listeners:
        was_handed_over = start.restarted_host is not None and bool(
            start.inherited and start.inherited.tcp
        )
        options = replace(options, keeps_codes=was_handed_over)
        service = HubService(chosen, start, address, config, options, listeners)
        backend = {"use_uvloop": find_spec("uvloop") is not None}
        status = anyio.run(service.run, backend_options=backend)
        if listeners.is_handed_over:
            replace_process(listeners, start.lock, options.host)
    return status


def check_start(chosen: Namespace) -> int:
    """Run `up --check`: print the version if a hub could start."""
    _configured(chosen)
    print(__version__)
    return DONE


def _configured(chosen: Namespace) -> tuple[HubAddress, HubConfig, HubOptions]:
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
        phone=chosen.phone,
        relay=load_relay(address.home),
    )
    _check_certificate(options)
    return address, config, options


def _listeners(options: HubOptions, start: HubStart) -> AbstractContextManager[Listeners]:
    """Open the sockets, or use those of the process that this one has replaced."""
    given = start.inherited
    if given is not None and given.tcp and start.restarted_host is not None:
        ports = (0, given.tcp[0].getsockname()[1])
        if start.restarted_host != options.host or options.port not in ports:
            given.close_tcp()  # the configuration has another address now
    return open_listeners(options.home, options.host, options.port, given)


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


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class HubService:
    """A hub on its sockets, with a runner in another process."""

    def __init__(
        self,
        chosen: Namespace,
        start: HubStart,
        address: HubAddress,
        config: HubConfig,
        options: HubOptions,
        listeners: Listeners,
    ) -> None:
        self._chosen = chosen
        self._start = start
        self._address = address
        self._config = config
        self._options = options
        self._listeners = listeners

    async def run(self) -> int:
        """Serve until a signal ends the hub, or it replaces itself; return the exit status."""
        home = self._options.home
        await runner_ready(home, self._start.runner)
        async with connected_runner(home / RUNNER_SOCKET) as runner:
            self._adopt(runner)
            processes = HubProcesses(self._address, runner)
            number = await self._serve(runner, processes)
        if processes.is_restarting:
            print_note("restarting")
        elif BELOW_INIT in os.environ:
            print_note("stopped; agents end with the container")
        else:
            print_note("stopped; agents keep running; to stop them, too: quarterdeck down")
        return INTERRUPTED if number == signal.SIGINT else DONE

    async def _serve(self, runner: RemoteRunner, processes: HubProcesses) -> int | None:
        """Serve; return the signal that has ended it."""
        parts = (acp_endpoints, process_endpoints(processes))
        hub = Hub(self._options, runner, parts=parts, is_locked=True)
        async with hub, serving(hub, self._listeners) as address:
            processes.start(hub.start_in_background)
            if self._start.runner is not None:
                self._start.runner.keep()
            number = await self._until_ended(hub, address, processes)
            processes.end()
            self._listeners.is_handed_over = processes.is_restarting
            # From here on a second Ctrl-C exits without waiting.
            signal.signal(signal.SIGINT, _exit_at_once)
            if not processes.is_restarting:
                print_note("stopping; press Ctrl-C again to exit at once")
        return number

    def _adopt(self, runner: RemoteRunner) -> None:
        """Use a runner that was running already, and say in what it differs from a new one."""
        if self._start.runner is not None:
            return
        reap(runner.identity.pid)
        runner.reconfigure(self._options.runner)
        if runner.identity.version != __version__:
            print_note(
                f"the runner has version {runner.identity.version}, this hub {__version__};"
                " to replace it when running turns have ended: quarterdeck upgrade"
            )
        found = find_process(self._options.home, "runner")
        if found is not None and found.facts.get("path") != self._options.environ.get("PATH", ""):
            print_note(
                "the runner was started with another PATH, which agents use until:"
                " quarterdeck restart --runner"
            )

    async def _until_ended(self, hub: Hub, address: Address, processes: HubProcesses) -> int | None:
        """Return the signal that ends the hub; None if it replaces itself."""
        ended: list[int] = []
        with anyio.open_signal_receiver(*_SIGNALS) as signals:
            had_terminal = has_terminal()
            if self._start.restarted_host is None:
                await self._print_start(hub, address)
            else:
                print_note(f"restarted: version {__version__} at {address.url}")
            gc.freeze()  # what is loaded by now stays: the collector need not scan it again

            async def on_signals() -> None:
                async for number in signals:
                    if number != signal.SIGHUP or (had_terminal and not has_terminal()):
                        ended.append(number)
                        tasks.cancel_scope.cancel()
                        return
                    apply = hub.reconfigure
                    print_note(await reload_config(self._address, self._config, apply))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(on_signals)
                await processes.restart_wanted.wait()
                tasks.cancel_scope.cancel()
        return ended[0] if ended else None

    async def _print_start(self, hub: Hub, address: Address) -> None:
        reach: Reach | None = None
        await _relay_ready(hub)
        has_relay = hub.relay is not None
        if self._options.phone or has_relay or not is_loopback(self._options.host):
            if self._options.phone and sys.stderr.isatty():
                print_note("looking for a way for phones to connect")
            reach = await hub.reach_report()
        pairing = await offer_pairing(hub, self._chosen, reach)
        _print_start(self._options, address.url, pairing, reach, self._chosen)
        if self._chosen.open:
            # The browser of this computer, which may always be an admin.
            local = await offer_pairing(hub, self._chosen, None) if reach else pairing
            if local is not None:
                await to_thread.run_sync(webbrowser.open, local.link)


def _exit_at_once(_number: int, _frame: FrameType | None) -> NoReturn:
    os._exit(INTERRUPTED)  # the hub has nothing that is not stored


async def _relay_ready(hub: Hub) -> None:
    """Wait for the relay, if there is one, and for the first certificate."""
    with anyio.move_on_after(RELAY_SECONDS):
        while hub.relay is not None and not hub.relay.is_settled:  # noqa: ASYNC110 - two objects
            await anyio.sleep(0.05)


async def offer_pairing(hub: Hub, chosen: Namespace, reach: Reach | None) -> PairingOffer | None:
    """Create a pairing code for a first device, if the output is for a person or a program.

    With a `reach` that is usable it is for a phone, else for a browser on this computer.
    """
    if not (sys.stdout.isatty() or chosen.json or chosen.open):
        return None  # the output of a service is a log, where a code would be a leaked secret
    is_local = is_loopback(hub.options.host) and (reach is None or not reach.is_usable)
    scope: Any = "admin" if is_local else "approve"
    _, codes = await hub.auth.pairings.create(scope=scope)
    origin = hub.auth.public_origin if reach is None or reach.url is None else reach.url
    link = pairing_link(origin, codes.long, None if reach is None else reach.pin)
    return PairingOffer(link=link, code=codes.short, scope=scope)


def _print_start(
    options: HubOptions,
    url: str,
    pairing: PairingOffer | None,
    reach: Reach | None,
    chosen: Namespace,
) -> None:
    """Print where the hub is and how to pair a device."""
    if chosen.json:
        print_json(_start_facts(options, url, pairing, reach))
        return
    screen = Screen(sys.stdout)
    screen.line(f"Quarterdeck is running at {url}", "strong")
    if reach is not None and not reach.is_usable:
        print_unreachable(screen, reach)
    if pairing is not None:
        if reach is not None and reach.is_usable:
            print_phone(screen, reach, pairing, with_qr=not chosen.no_qr)
        else:
            print_pairing(screen, pairing)
    elif reach is not None and reach.is_usable:
        screen.line(f"Phones can connect at {reach.url}; to pair one: quarterdeck devices pair")
    screen.line(f"  data   {options.home}")
    if reach is None:
        screen.line(
            "  Only this computer can connect; to add a phone: quarterdeck up --phone", "dim"
        )
    agents, start = agent_lines(options.runner.known_agents().all())
    screen.line(agents)
    screen.line(start, "dim")
    screen.line(
        "  Press Ctrl-C to stop the hub; agents keep running until: quarterdeck down", "dim"
    )


def _start_facts(
    options: HubOptions, url: str, pairing: PairingOffer | None, reach: Reach | None
) -> dict[str, Any]:
    facts: dict[str, Any] = {"url": url, "pid": os.getpid(), "home": str(options.home)}
    if pairing is not None:
        facts["pairing"] = {"link": pairing.link, "code": pairing.code, "scope": pairing.scope}
    if reach is not None:
        facts["reach"] = reach
    return facts


def has_terminal() -> bool:
    """Whether this process has a terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
