"""`quarterdeck join`: joins a hub on another machine, and shows or ends what was joined.

    1  ask the hub for a signature: is this a hub, and another one than this machine's own?
    2  start a runner, if none runs
    3  send the code with the public part of a new key; the hub answers with the machine's id
    4  write joined.json: the runner, which looks at it, dials the hub
    5  wait until it is connected

Whatever fails before 4 changes nothing on this machine; the code is valid still if the hub did not
accept it.
"""

from __future__ import annotations

import getpass
import os
import secrets
import socket
import ssl
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
from anyio import to_thread
from msgspec import to_builtins

from quarterdeck._version import __version__
from quarterdeck.cli.arguments import DONE, FAILED
from quarterdeck.cli.hub_access import HubAddress
from quarterdeck.cli.machines import duration
from quarterdeck.cli.runner_start import READY_SECONDS, StartingRunner
from quarterdeck.cli.running_processes import find_process
from quarterdeck.cli.services import start_by_service
from quarterdeck.cli.terminal.screen import Screen, print_json, print_note
from quarterdeck.errors import CommandFailed, HubDeclined, JsonInvalid, Misused, StartRefused
from quarterdeck.http.certificate_pins import pin_fingerprint
from quarterdeck.http.client import HttpExchange, HubApi
from quarterdeck.http.origins import is_loopback
from quarterdeck.http.p256 import (
    from_base64url,
    is_signed,
    key_in_file,
    new_key,
    point,
    private_text,
    public_key,
    sign,
    to_base64url,
)
from quarterdeck.machine.home_locks import lock_owner
from quarterdeck.machine.private_files import private_folder
from quarterdeck.machine.process_arguments import hide_argument
from quarterdeck.protocol.timestamps import iso_seconds, seconds_of
from quarterdeck.runner.link import (
    LINK_PROTOCOL,
    OLDEST_PROTOCOL,
    HubLink,
    Membership,
    changing_memberships,
    join_text,
    origin_of,
    read_links,
    read_memberships,
)
from quarterdeck.runner.link.hub_address import (
    certificate_problem,
    proxy_for,
    tls_context,
    tls_reason,
)
from quarterdeck.views.text import one_line

LINK_SECONDS: Final = 20.0
"""For the runner to be connected after this machine has joined."""
_ASK_SECONDS: Final = 30.0
"""For a hub to answer."""
_POLL_SECONDS: Final = 0.05
_HUB_KEY: Final = "identity.key"
_NEW_CODE: Final = "for a new one, at the hub: quarterdeck machines add"


@dataclass(frozen=True, kw_only=True)
class _Hub:
    """A hub to join, as it was typed."""

    url: str
    """Its origin."""
    code: str
    pin: str | None


def join_hub(chosen: Namespace) -> int:
    """Run the command."""
    if chosen.code is not None:
        hide_argument(chosen.code)  # before anything else: others can list processes
    address = HubAddress.of(chosen)
    if chosen.leave:
        return _leave(address.home, chosen)
    if chosen.url is None:
        return anyio.run(_show, address, chosen)
    return anyio.run(_join, address, _typed(chosen), chosen)


# ---- what was typed ------------------------------------------------------------------------------


def _typed(chosen: Namespace) -> _Hub:
    url = _origin(chosen.url)
    code = _ask_code() if chosen.code is None else chosen.code
    code, _, pin = code.strip().partition(".")
    pin = pin or urlsplit(chosen.url).fragment.removeprefix("pin=")
    if pin:
        try:
            pin_fingerprint(pin)
        except ValueError as error:
            raise Misused(f"the code is incomplete; copy it whole, {_NEW_CODE}") from error
    if not code:
        raise Misused(f"the code is empty; {_NEW_CODE}")
    return _Hub(url=url, code=code, pin=pin or None)


def _origin(text: str) -> str:
    """Return the origin of an address as people type it.

    Raises:
        Misused: if it is none, or not encrypted.
    """
    if "://" not in text:
        text = f"https://{text}"
    try:
        origin = origin_of(text)
        host = urlsplit(origin).hostname or ""
    except ValueError as error:
        raise Misused(
            f"{one_line(text)!r} is not the address of a hub; use one like https://hub.example:7272"
        ) from error
    if origin.startswith("http:") and not is_loopback(host):
        raise Misused(
            f"{origin} is not encrypted; use https://, which the hub must have for other machines:"
            " see quarterdeck up --help there"
        )
    return origin


def _ask_code() -> str:
    if sys.stdin.isatty():
        return getpass.getpass("code: ", sys.stderr)
    return sys.stdin.readline()


# ---- joining -------------------------------------------------------------------------------------


async def _join(address: HubAddress, hub: _Hub, chosen: Namespace) -> int:
    home = private_folder(address.home)
    _check_not_joined(home, hub.url)
    api = _api_of(hub, address)
    await _check_other_hub(api, hub, home)
    starting = _start_runner(address)
    try:
        await _await_runner(home, starting)
        membership = await _redeem(api, hub, chosen.name)
        _remember(home, membership)
        if starting is not None:
            starting.keep()
    finally:
        if starting is not None:
            starting.end_unless_kept()
    link = await _await_link(home, membership.machine_id)
    if chosen.json:
        print_json({"hubs": [_facts(membership, link, is_running=True)]})
    else:
        _print_joined(membership, link)
    return DONE if link is not None and link.state == "connected" else FAILED


def _check_not_joined(home: Path, url: str) -> None:
    states = {each.machine_id: each.state for each in read_links(home)[1]}
    for each in read_memberships(home):
        if each.url == url and states.get(each.machine_id) != "removed":
            raise CommandFailed(
                f"this machine has joined {url} already, as {one_line(each.name)}; to join again,"
                f" first run quarterdeck join --leave {url}"
            )


def _start_runner(address: HubAddress) -> StartingRunner | None:
    """Start a runner if none runs; `_await_runner` waits for it."""
    if lock_owner(address.home, "runner") is not None:
        return None
    if start_by_service("runner", address.home):
        return None
    return StartingRunner(address.home, address.config_file, address.environ)


def _is_starting(home: Path) -> bool:
    return find_process(home, "runner") is None and lock_owner(home, "runner") is not None


async def _await_runner(home: Path, starting: StartingRunner | None) -> None:
    if starting is not None:
        await to_thread.run_sync(starting.wait)
        return
    with anyio.move_on_after(READY_SECONDS):
        while _is_starting(home):  # noqa: ASYNC110 - of another process
            await anyio.sleep(_POLL_SECONDS)
    if find_process(home, "runner") is None:
        owner = lock_owner(home, "runner")
        raise StartRefused(
            f"process {owner} runs agents in {home}, but only until it ends"
            if owner
            else f"the runner of {home} has ended",
            "stop it, then join again" if owner else "try again; runner.log has the reason",
        )


def _api_of(hub: _Hub, address: HubAddress) -> HubApi:
    context = tls_context(hub.pin) if hub.url.startswith("https:") else None
    proxy = proxy_for(hub.url, address.environ)
    return HubApi(HttpExchange(hub.url, None, context=context, proxy=proxy))


async def _redeem(api: HubApi, hub: _Hub, name: str | None) -> Membership:
    """Use the code; return what this machine is at the hub then.

    Raises:
        CommandFailed: if that fails, with a sentence that says why.
    """
    key = new_key()
    public = to_base64url(point(key.public_key()))
    body = {
        "code": hub.code,
        "name": name or socket.gethostname().partition(".")[0],
        "isNameChosen": name is not None,
        "publicKey": public,
        "signature": to_base64url(sign(key, join_text(hub.url, hub.code, public))),
        "version": __version__,
        "oldest": OLDEST_PROTOCOL,
        "newest": LINK_PROTOCOL,
    }
    answer = await _asked(api, "POST", "/api/machines/join", body, hub)
    try:
        machine = answer["machine"]
        return Membership(
            url=hub.url,
            hub_key=str(answer["hubKey"]),
            machine_id=str(machine["id"]),
            name=str(machine["name"]),
            private_key=private_text(key),
            joined_at=iso_seconds(time.time()),
            pin=hub.pin,
        )
    except (KeyError, TypeError) as error:
        raise _not_a_hub(hub.url) from error


async def _check_other_hub(api: HubApi, hub: _Hub, home: Path) -> None:
    """Check that a hub answers, before the code is sent, and that it is not this machine's own.

    Raises:
        CommandFailed: if not.
    """
    challenge = secrets.token_urlsafe(32)
    found = await _asked(api, "GET", f"/api/nonce?challenge={challenge}", None, hub)
    try:
        lines = ("quarterdeck-hub-1", hub.url, challenge, found["nonce"], str(found["time"]))
        signature = from_base64url(found["signature"])
    except (KeyError, TypeError, ValueError) as error:
        raise _not_a_hub(hub.url) from error
    if (home / _HUB_KEY).exists():
        own = key_in_file(home / _HUB_KEY, remedy="restore it from a backup").public_key()
        if is_signed(own, signature, "\n".join(lines).encode()):
            raise CommandFailed(
                f"{hub.url} is this machine's own hub, which runs agents here already; run this on"
                " another machine, or with another --home"
            )


async def _asked(api: HubApi, method: str, path: str, body: Any, hub: _Hub) -> Any:
    try:
        with anyio.fail_after(_ASK_SECONDS):
            return await api.call(method, path, body)
    except TimeoutError as error:
        raise CommandFailed(
            f"the hub at {hub.url} does not answer; check its address, and that it runs"
        ) from error
    except HubDeclined as error:
        raise _declined(error, hub.url) from error
    except JsonInvalid as error:
        raise _not_a_hub(hub.url) from error
    except CommandFailed as error:
        raise _unreachable(error, hub) from error


def _declined(error: HubDeclined, url: str) -> CommandFailed:
    if not error.code:
        return _not_a_hub(url)
    if error.status in (401, 404, 405):  # it does not know the call
        return CommandFailed(
            f"the hub at {url} is too old for other machines; upgrade it there: quarterdeck upgrade"
        )
    return CommandFailed(one_line(error.message))


def _not_a_hub(url: str) -> CommandFailed:
    return CommandFailed(
        f"no hub answers at {url}; check the address with quarterdeck status at the hub"
    )


def _unreachable(error: CommandFailed, hub: _Hub) -> CommandFailed:
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            remedy = (
                "the code has the pin of another certificate, so this may be another server;"
                f" {_NEW_CODE}"
                if hub.pin is not None
                else "if the hub has a certificate of its own, use the whole code that quarterdeck"
                " machines add prints there; it has the pin of that certificate"
            )
            return CommandFailed(f"cannot trust {hub.url}: {certificate_problem(cause)}; {remedy}")
        if isinstance(cause, ssl.SSLError):
            return CommandFailed(
                f"{hub.url} does not speak TLS ({tls_reason(cause)}); check the address"
            )
    reason = str(error).partition(" does not answer: ")[2].partition("; run ")[0]
    return CommandFailed(
        f"cannot reach {hub.url}: {reason or error}; check the address, and that the hub runs"
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__


def _remember(home: Path, membership: Membership) -> None:
    public_key(from_base64url(membership.hub_key))  # what cannot be used is not stored
    with changing_memberships(home) as hubs:
        hubs[:] = [each for each in hubs if each.url != membership.url]
        hubs.append(membership)


async def _await_link(home: Path, machine_id: str) -> HubLink | None:
    """Wait until the runner is connected, or the hub refuses it; return how it is."""
    link: HubLink | None = None
    with anyio.move_on_after(LINK_SECONDS):
        while link is None or link.state == "connecting":
            link = _current_links(home).get(machine_id)
            await anyio.sleep(_POLL_SECONDS)
    return link


def _print_joined(membership: Membership, link: HubLink | None) -> None:
    name, url = one_line(membership.name), membership.url
    screen = Screen(sys.stdout)
    if link is not None and link.state == "connected":
        screen.line(f"joined {url} as {name}", "strong")
    elif link is None:
        screen.line(f"joined {url} as {name}; the runner does not dial it", "warn")
        screen.line("it may have an older version; restart it: quarterdeck down, quarterdeck join")
    else:
        screen.line(f"joined {url} as {name}; it is not connected yet: {link.reason}", "warn")
    print_note(
        f"that hub can now run agents and commands on this machine as {_user()}, and read your"
        f" files; to undo this: quarterdeck join --leave {url}"
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


# ---- showing and leaving -------------------------------------------------------------------------


async def _show(address: HubAddress, chosen: Namespace) -> int:
    memberships = read_memberships(address.home)
    if memberships:
        starting = _start_runner(address)
        await _await_runner(address.home, starting)
        if starting is not None:
            starting.keep()
            for each in memberships:
                await _await_link(address.home, each.machine_id)
    facts = joined_hubs(address.home)
    if chosen.json:
        print_json({"hubs": facts})
    elif facts:
        print_hubs(Screen(sys.stdout), facts)
    else:
        print_note(
            "this machine has joined no hub; for a code, at the hub: quarterdeck machines add"
        )
    return DONE


def joined_hubs(home: Path) -> list[dict[str, Any]]:
    """Return the hubs that a machine has joined, each with the state of its link.

    Raises:
        StartRefused: if joined.json cannot be read.
    """
    links = _current_links(home)
    is_running = find_process(home, "runner") is not None
    return [
        _facts(each, links.get(each.machine_id), is_running=is_running)
        for each in read_memberships(home)
    ]


def _current_links(home: Path) -> dict[str, HubLink]:
    """Return the links of the runner that runs, by machine; of an earlier one, what is final."""
    pid, links = read_links(home)
    found = find_process(home, "runner")
    is_current = found is not None and found.pid == pid
    return {each.machine_id: each for each in links if is_current or each.state == "removed"}


def _facts(membership: Membership, link: HubLink | None, *, is_running: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "url": membership.url,
        "machineId": membership.machine_id,
        "name": membership.name,
        "state": "connecting" if is_running else "not running",
        "since": None,
        "reason": "" if is_running else "the runner is not running; start it: quarterdeck join",
        "hubVersion": "",
    }
    return facts if link is None else {**facts, **to_builtins(link)}


def print_hubs(screen: Screen, hubs: list[dict[str, Any]]) -> None:
    """Print a line for each hub that this machine has joined, and why it is not connected."""
    screen.table(
        [("joined", each["url"], f"as {one_line(each['name'])}", _state(each)) for each in hubs],
        ("", "strong", "", ""),
    )
    for each in hubs:
        if each["state"] != "connected" and each["reason"]:
            style = "bad" if each["state"] == "removed" else "warn"
            screen.line(f"{each['url']}: {one_line(each['reason'])}", style)


def _state(facts: dict[str, Any]) -> str:
    if facts["since"] is None:
        return str(facts["state"])
    return f"{facts['state']} for {duration(time.time() - seconds_of(facts['since']))}"


def _leave(home: Path, chosen: Namespace) -> int:
    memberships = read_memberships(home)
    if not memberships:
        raise CommandFailed("this machine has joined no hub")
    if chosen.url is None and len(memberships) > 1:
        names = ", ".join(each.url for each in memberships)
        raise Misused(f"this machine has joined {names}; name the one to leave")
    url = memberships[0].url if chosen.url is None else _origin(chosen.url)
    left = [each for each in memberships if each.url == url]
    if not left:
        raise CommandFailed(f"this machine has not joined {url}; quarterdeck join lists its hubs")
    with changing_memberships(home) as hubs:
        hubs[:] = [each for each in hubs if each.url != url]
    if chosen.json:
        print_json({"left": url})
    else:
        print_note(
            f"left {url}; it lists this machine as away until, at the hub: quarterdeck machines"
            f" remove {one_line(left[0].name)}"
        )
    return DONE
