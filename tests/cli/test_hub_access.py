"""Which hub a command uses, and that no other program hears of it."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import anyio
import pytest

from quarterdeck.cli.hub_access import HubAddress, HubHandle, open_hub, running_hub
from quarterdeck.client import Client
from quarterdeck.errors import CommandFailed, StartRefused
from quarterdeck.http.unix_sockets import listening_unix
from quarterdeck.hub import Hub, HubOptions, serving
from quarterdeck.machine.home_locks import locked_home

pytestmark = pytest.mark.anyio


async def test_another_program_at_the_port_or_socket_of_a_killed_hub_gets_nothing(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    with locked_home(home, "hub"), socket.create_server(("127.0.0.1", 0)) as other_program:
        other_program.setblocking(False)
        # The hub has ended and its pid was reused; another command holds the lock.
        facts = {"url": f"http://127.0.0.1:{other_program.getsockname()[1]}", "pid": os.getppid()}
        (home / "hub.json").write_text(json.dumps(facts))
        with anyio.fail_after(30):
            assert await running_hub(home) is None
        with pytest.raises(BlockingIOError):
            other_program.accept()


def test_a_directory_in_use_by_another_command_is_reported(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with (
        locked_home(home, "hub"),
        pytest.raises(StartRefused, match=r"another command is using .*quarterdeck up"),
        locked_home(home, "hub"),
    ):
        raise AssertionError


async def test_open_hub_waits_for_a_hub_that_is_about_to_listen(tmp_path: Path) -> None:
    home = tmp_path / "home"
    found: list[HubHandle] = []

    async def command() -> None:
        async with open_hub(HubAddress(home=home, environ={})) as link:
            found.append(link)

    async with Hub(HubOptions(home=home, port=0)) as hub, anyio.create_task_group() as tasks:
        tasks.start_soon(command)
        await anyio.wait_all_tasks_blocked()  # it has seen the lock
        async with serving(hub) as address:
            with anyio.fail_after(30):
                while not found:  # noqa: ASYNC110 - a list has no event
                    await anyio.sleep(0.01)
            assert found[0].url == address.url


async def test_open_hub_does_not_wait_for_ever_for_a_command_that_never_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quarterdeck.cli.hub_access._START_SECONDS", 0.2)
    home = tmp_path / "home"
    with locked_home(home, "hub"), pytest.raises(StartRefused, match="another command is using"):
        async with open_hub(HubAddress(home=home, environ={})):
            raise AssertionError


def _facts(home: Path, **facts: object) -> None:
    (home / "hub.json").write_text(
        json.dumps({"url": "http://127.0.0.1:1", "pid": os.getpid(), **facts})
    )


async def test_a_hub_of_an_older_version_is_a_sentence(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with locked_home(home, "hub"):
        _facts(home)
        with pytest.raises(CommandFailed, match=r"an older version.*run quarterdeck up"):
            await running_hub(home)


async def test_a_socket_that_nothing_listens_at_is_a_sentence(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with locked_home(home, "hub"):
        _facts(home, socket=str(home / "hub.sock"))
        with pytest.raises(CommandFailed, match=r"does not answer at .*hub\.sock: No such file"):
            await running_hub(home)
        with socket.socket(socket.AF_UNIX) as killed:
            killed.bind(str(home / "hub.sock"))
        with pytest.raises(CommandFailed, match=r"hub\.sock: Connection refused; run quarterdeck"):
            await running_hub(home)


async def test_the_socket_of_another_user_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"

    def refused(_path: Path) -> socket.socket:
        raise PermissionError(13, "Permission denied")

    with locked_home(home, "hub"):
        _facts(home, socket=str(home / "hub.sock"))
        monkeypatch.setattr("quarterdeck.cli.hub_access.connected", refused)
        with pytest.raises(CommandFailed, match=r"belongs to another user.*run the command as"):
            await running_hub(home)


async def test_a_command_finds_a_hub_whose_data_folder_has_a_long_path(tmp_path: Path) -> None:
    home = tmp_path.joinpath(*["d" * 100] * 2)
    async with Hub(HubOptions(home=home, port=0)) as hub, serving(hub) as address:
        link = await running_hub(home)
        assert link is not None
        assert (link.url, link.socket) == (address.url, home / "hub.sock")
        assert (await link.api.get("/api/device"))["id"] == "owner"
        async with Client(link.transport()) as client:
            assert client.connection.status == "connected"


async def test_a_hub_that_does_not_answer_is_reported_with_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quarterdeck.cli.hub_access.ANSWER_SECONDS", 0.1)
    home = tmp_path / "home"
    with locked_home(home, "hub"), listening_unix(home / "hub.sock"):  # accepts nothing
        facts = {"url": "http://127.0.0.1:1", "pid": os.getpid(), "socket": str(home / "hub.sock")}
        (home / "hub.json").write_text(json.dumps(facts))
        with pytest.raises(CommandFailed, match=f"kill -9 {os.getpid()}, then quarterdeck up"):
            await running_hub(home)
