"""Agents of a runner are confined: their processes, terminals, and where sessions can work."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.acp import schema
from quarterdeck.agents import AgentSettings, KnownAgents, SandboxSettings
from quarterdeck.errors import AcpError, RequestRejected
from quarterdeck.machine import DefaultTerminalHandler, SandboxLimits, confinement
from quarterdeck.machine.confinement import Way
from quarterdeck.runner import Runner, RunnerOptions
from quarterdeck.runner.confinement import AgentConfinement

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="Linux has the mechanisms"),
]

PATIENCE = 60
AGENT = str(Path(__file__).with_name("shell_agent.py"))


def shell_agent(**settings: Any) -> AgentSettings:
    return AgentSettings(command=sys.executable, args=("-I", AGENT), **settings)


class Place:
    """A runner's data folder beside a project, in a user's folder."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "user" / "data"
        self.config = folder / "user" / "config"
        self.project = folder / "user" / "project"
        self.other = folder / "user" / "other"
        for path in (self.home, self.config, self.project, self.other):
            path.mkdir(parents=True)
        self.home.chmod(0o700)
        (self.home / "token").write_text("owner-token")
        (self.config / "hub.toml").write_text("secret-rules")

    @asynccontextmanager
    async def running(self, **options: Any) -> AsyncIterator[Runner]:
        options.setdefault("agents", {"shell": shell_agent()})
        given = RunnerOptions(home=self.home, hidden=(self.config,), **options)
        with anyio.fail_after(PATIENCE):
            async with Runner(given) as runner:
                yield runner


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def output(runner: Runner, session_id: str, script: str, key: str = "k") -> str:
    """Have the agent run a script; return what it printed."""
    await runner.add_prompt(session_id, key, [{"type": "text", "text": script}])
    await runner.wait_prompt(session_id, key)
    texts = [
        event.payload["content"]["text"]
        for event in [each async for each in _until_idle(runner, session_id)]
        if event.type == "agent-message-chunk"
    ]
    return str(texts[-1])


async def _until_idle(runner: Runner, session_id: str) -> AsyncIterator[Any]:
    last = runner.last_seq(session_id)
    async for event in runner.events(session_id):
        yield event
        if event.seq == last:
            return


async def test_an_agent_cannot_read_or_change_the_folders_of_the_hub(place: Place) -> None:
    async with place.running() as runner:
        session = await runner.create_session("shell", cwd=str(place.project))
        script = (
            f"cat {place.home}/token {place.config}/hub.toml; ls {place.home};"
            f" echo allow >> {place.config}/hub.toml; echo x > {place.home}/new; echo END"
        )
        text = await output(runner, session.session_id, script)
        assert "owner-token" not in text
        assert "secret-rules" not in text
        assert "log.db" not in text
        assert "END" in text
        assert (place.config / "hub.toml").read_text() == "secret-rules"
        (agent,) = runner.agents()
        found = await runner.agent_confinement(agent.agent_id)
        assert found is not None
        assert found.how
        known = await runner.known_agents()
        assert all(each.confinement is not None for each in known)


async def test_a_terminal_is_confined_like_its_agent(place: Place) -> None:
    async with place.running() as runner:
        session = await runner.create_session("shell", cwd=str(place.project))
        terminals = runner.host.options.terminal
        assert isinstance(terminals, DefaultTerminalHandler)
        request = schema.CreateTerminalRequest(
            session_id=session.session_id,
            command="/bin/sh",
            args=("-c", f"cat {place.home}/token; ls -A {place.home} {place.config}; echo END"),
            cwd=str(place.project),
        )
        terminal = await terminals.create_terminal(session.session_id, request)
        await terminals.wait_for_terminal_exit(session.session_id, terminal)
        text = (await terminals.terminal_output(session.session_id, terminal))["output"]
        assert "owner-token" not in text
        assert "log.db" not in text
        assert "hub.toml" not in text
        assert "END" in text


async def test_variables_of_a_terminal_do_not_reach_its_guard(place: Place) -> None:
    # The guard is not confined; the loader would run code of the agent in it.
    async with place.running() as runner:
        session = await runner.create_session("shell", cwd=str(place.project))
        terminals = runner.host.options.terminal
        assert isinstance(terminals, DefaultTerminalHandler)
        given = {"LD_PRELOAD": "/project/code.so", "MINE": "my value", "LC_CTYPE": "C"}
        request = schema.CreateTerminalRequest(
            session_id=session.session_id,
            command="/usr/bin/env",
            cwd=str(place.project),
            env=tuple(schema.EnvVariable(name=name, value=given[name]) for name in given),
        )
        terminal = await terminals.create_terminal(session.session_id, request)
        await terminals.wait_for_terminal_exit(session.session_id, terminal)
        text = (await terminals.terminal_output(session.session_id, terminal))["output"]
        assert text.count("ERROR: ld.so") == 1  # of the command itself
        lines = text.splitlines()
        assert "MINE=my value" in lines
        assert "LC_CTYPE=C" in lines
        assert not any(line.startswith("QUARTERDECK_GUARDED") for line in lines)


async def test_no_session_works_in_a_folder_of_the_hub(place: Place) -> None:
    link = place.project / "link"
    link.symlink_to(place.home)
    inside = place.home / "inside"
    inside.mkdir()
    folders = [place.home, inside, link, place.config, Path(f"{place.project}/../data")]
    async with place.running() as runner:
        agent = await runner.start_agent("shell")
        for folder in folders:
            for call in (
                runner.create_session("shell", cwd=str(folder)),
                runner.create_session(
                    "shell", cwd=str(place.project), additional_directories=[str(folder)]
                ),
                runner.load_session(agent.agent_id, "x", cwd=str(folder)),
                runner.resume_session(agent.agent_id, "x", cwd=str(folder)),
            ):
                with pytest.raises(AcpError, match="folder of the hub itself"):
                    await call
        session = await runner.create_session("shell", cwd=str(place.home.parent))
        found = await runner.find_files(session.session_id, "token", 10)
        assert found == []


async def test_git_of_the_hub_is_confined(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    # An agent can put a program of that name on the user's PATH.
    programs, stolen = place.other / "bin", place.other / "stolen"
    programs.mkdir()
    (programs / "git").write_text(f"#!/bin/sh\ncat {place.home}/token > {stolen}\necho done\n")
    (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    async with place.running() as runner:
        session = await runner.create_session("shell", cwd=str(place.project))
        await runner.find_files(session.session_id, "", 10)
    assert stolen.read_text() == ""


async def test_off_confines_nothing_and_says_so(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async with place.running(confine="off") as runner:
        session = await runner.create_session("shell", cwd=str(place.project))
        text = await output(runner, session.session_id, f"cat {place.home}/token")
        assert "owner-token" in text
        (agent,) = runner.agents()
        found = await runner.agent_confinement(agent.agent_id)
        assert found is not None
        assert found.status == "advisory"
    assert any('confine = "off"' in str(record.__dict__.get("reason")) for record in caplog.records)


async def test_one_agent_can_be_left_out(place: Place) -> None:
    agents = {"shell": shell_agent(), "free": shell_agent(confine="off")}
    async with place.running(agents=agents) as runner:
        session = await runner.create_session("free", cwd=str(place.project))
        assert "owner-token" in await output(runner, session.session_id, f"cat {place.home}/token")
        session = await runner.create_session("shell", cwd=str(place.project))
        text = await output(runner, session.session_id, f"cat {place.home}/token")
        assert "owner-token" not in text
        known = {each.name: each.confinement for each in await runner.known_agents()}
        assert known["free"] is not None
        assert known["free"].status == "advisory"


async def test_a_machine_that_cannot_runs_agents_unless_required(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = Way(name=None, reason="this machine cannot confine agents; buy another")
    monkeypatch.setattr(confinement, "find_way", lambda: way)
    agents = {"shell": shell_agent(), "strict": shell_agent(confine="require")}
    async with place.running(agents=agents) as runner:
        await runner.create_session("shell", cwd=str(place.project))
        with pytest.raises(AcpError, match="buy another"):
            await runner.create_session("strict", cwd=str(place.project))


async def test_a_sandboxed_agent_writes_only_in_its_workspace(place: Place) -> None:
    extra = place.other / "state"
    extra.mkdir()
    agents = {"shell": shell_agent(sandbox="workspace", sandbox_write=(str(extra),))}
    script = (
        f"echo a > {place.project}/written; echo b > {extra}/written;"
        f" echo c > {place.other}/not; echo d > /etc/quarterdeck-not; echo e > /tmp/private;"
        " test -s /tmp/private && echo PRIVATE; cat /proc/net/dev | wc -l; echo END"
    )
    async with place.running(agents=agents) as runner:
        session = await runner.create_session("shell", cwd=str(place.project))
        text = await output(runner, session.session_id, script)
        assert "PRIVATE" in text
        assert "\n3\nEND" in text  # two lines of headings, and the loopback device
        second = await runner.create_session("shell", cwd=str(place.other))
        agents_running = runner.agents()
        assert len(agents_running) == 2
        await output(runner, second.session_id, f"echo x > {place.project}/second; true")
        third = await runner.create_session("shell", cwd=str(place.project))
        assert third.agent_id == session.agent_id
        found = await runner.agent_confinement(agents_running[0].agent_id)
        assert found is not None
        assert str(place.project) in found.reason
    assert (place.project / "written").read_text() == "a\n"
    assert (extra / "written").read_text() == "b\n"
    assert sorted(path.name for path in place.other.iterdir()) == ["state"]
    assert [path.name for path in place.project.iterdir()] == ["written"]
    assert not Path("/etc/quarterdeck-not").exists()  # noqa: ASYNC240 - it takes no time


async def test_the_sandbox_of_a_project_is_not_avoided_by_a_folder_above_it(place: Place) -> None:
    settings = SandboxSettings(sandbox="workspace", sandbox_hosts=("a.example", "b.example"))
    projects = {
        str(place.project): settings,
        str(place.other): SandboxSettings(sandbox="workspace", sandbox_hosts=("b.example",)),
    }
    link = place.home.parent.parent / "link"
    link.symlink_to(place.home.parent)
    async with place.running(projects=projects) as runner:
        for cwd in (place.home.parent, link, place.project / ".."):
            held = await runner.create_session("shell", cwd=str(cwd))
            folder = place.home.parent
            script = f"echo x > {folder.parent}/held; echo y > {folder}/mine"
            text = await output(runner, held.session_id, script)
            assert (place.home.parent / "mine").exists(), text
            assert not (place.home.parent.parent / "held").exists()
        found = runner.confinement._sandbox("shell", str(place.home.parent))  # noqa: SLF001
        assert found is not None
        assert found.hosts == ("b.example",)
        beside = place.home.parent / "beside"
        beside.mkdir()
        for further in (place.project, place.project / "inner", place.home.parent):
            with pytest.raises(RequestRejected, match="has a project with a sandbox"):
                await runner.create_session(
                    "shell", cwd=str(beside), additional_directories=[str(further)]
                )


@pytest.mark.parametrize(
    ("first", "second", "lowest"), [(5, 3, 3), (3, 5, 3), (0, 5, 5), (5, 0, 5), (0, 0, 0)]
)
def test_of_two_sandboxes_the_lower_limits_count(
    place: Place, first: int, second: int, lowest: int
) -> None:
    def limits(number: int) -> SandboxLimits:
        return SandboxLimits(processes=number, memory_mb=number, file_size_mb=number)

    agent = shell_agent(sandbox="workspace", sandbox_limits=limits(first))
    project = SandboxSettings(sandbox="workspace", sandbox_limits=limits(second))
    options = RunnerOptions(
        home=place.home, agents={"shell": agent}, projects={str(place.project): project}
    )
    known = KnownAgents(options.agents, options.environ, options.pass_env)
    confined = AgentConfinement(options, known)
    found = confined._sandbox("shell", str(place.project))  # noqa: SLF001
    assert found is not None
    assert found.limits == limits(lowest)


async def test_a_project_can_be_sandboxed_for_every_agent(place: Place) -> None:
    projects = {str(place.project): SandboxSettings(sandbox="workspace")}
    inner = place.project / "inner"
    inner.mkdir()
    async with place.running(projects=projects) as runner:
        free = await runner.create_session("shell", cwd=str(place.other))
        await output(runner, free.session_id, f"echo x > {place.home.parent}/free; true")
        held = await runner.create_session("shell", cwd=str(inner))
        assert held.agent_id != free.agent_id
        await output(runner, held.session_id, f"echo x > {place.home.parent}/held; echo y > mine")
        # A client that names a process that is not sandboxed gets another one, or a refusal.
        agent_id = str(free.agent_id)
        named = await runner.create_session(agent_id=agent_id, cwd=str(inner))
        assert named.agent_id == held.agent_id
        with pytest.raises(AcpError, match="needs a sandboxed agent"):
            await runner.host.create_session(agent_id, cwd=str(inner))
        with pytest.raises(AcpError, match="is sandboxed to"):
            await runner.host.create_session(str(held.agent_id), cwd=str(place.other))
    assert (place.home.parent / "free").exists()
    assert not (place.home.parent / "held").exists()
