"""Claude Code, Codex and OpenCode in terminals of their own, beside a hub that has adopted them.

Install them into `QUARTERDECK_REAL_AGENTS`: `npm install --prefix FOLDER/PLACE PACKAGE`, with the
places and packages of `PROGRAMS`.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import anyio

from quarterdeck.agents import AgentSettings
from tests.hub.api.kit import Client, options, running
from tests.real_agents.agents import AGENTS, agents_folder, codex_config
from tests.real_agents.model_server import model_server
from tests.real_agents.terminal import PATIENCE, AgentTerminal

Json = dict[str, Any]
Said = list[tuple[str, str]]
_KEY: Final = "sk-ant-" + "0" * 20
_KINDS: Final = {"user-message-chunk": "user", "agent-message-chunk": "assistant"}


@dataclass(frozen=True, kw_only=True)
class Program:
    """One program, as it is started in a folder that is the home of its user."""

    name: str
    place: str
    package: str
    file: str
    words: tuple[str, ...] = ()
    environ: Callable[[str, Path], Mapping[str, str]] = lambda url, home: {}
    prepare: Callable[[str, Path], None] = lambda url, home: None
    """Answers what it asks when it is started for the first time."""
    is_ready: str = "for shortcuts"
    asks: str
    """What its dialog says."""
    allow: str
    """The option of a request that allows it once."""
    key: str
    """The key that allows it in the terminal."""
    said: Callable[[Path], Said] = field(default=lambda home: [])
    """Who said what by its own record; nothing while there is none."""

    @property
    def path(self) -> Path:
        return agents_folder() / self.place / "node_modules" / self.file


def environ_of(program: Program, url: str, home: Path) -> dict[str, str]:
    known = {"HOME": str(home), "PATH": os.environ["PATH"], "TERM": "xterm-256color"}
    return {**known, **program.environ(url, home)}


@contextmanager
def short_home() -> Iterator[Path]:
    """A folder with a short name: sockets are in it."""
    with tempfile.TemporaryDirectory(prefix="qd-real-", ignore_cleanup_errors=True) as name:
        (Path(name) / "work").mkdir()
        yield Path(name)


@contextmanager
def in_terminal(
    program: Program, url: str, home: Path, *words: str, **more: str
) -> Iterator[AgentTerminal]:
    """Run a program on a screen; `words` instead of its own, `more` for its environment."""
    command = home / "start"
    line = shlex.join([str(program.path), *(words or program.words)])
    command.write_text(f"#!/bin/sh\nexec {line}\n")
    command.chmod(0o700)
    environ = {**environ_of(program, url, home), **more}
    terminal = AgentTerminal(command, "start", home / "work", environ)
    try:
        yield terminal
    finally:
        terminal.end()
        kill_daemons(home)


@asynccontextmanager
async def hub_beside(
    program: Program, url: str, home: Path, claude: AgentSettings | None = None, /, **more: str
) -> AsyncIterator[Client]:
    """Run a hub; `claude` is the agent that continues sessions of Claude Code."""
    environ = {**environ_of(program, url, home), **more}
    folder = home / "hub"
    given = options(folder) if claude is None else options(folder, claude=claude)
    given = replace(given, environ=environ)
    async with running(given) as (_hub, client):
        await client.post(f"/api/adoption/{program.name}", {"hook": program.name == "claude"})
        yield client


@asynccontextmanager
async def adopted(
    program: Program, home: Path, *words: str
) -> AsyncIterator[tuple[Client, AgentTerminal]]:
    with model_server() as url:
        program.prepare(url, home)
        async with hub_beside(program, url, home) as client:
            with in_terminal(program, url, home, *words) as terminal:
                await terminal.until(program.is_ready)
                yield client, terminal


async def begin(program: Program, terminal: AgentTerminal, home: Path, words: str) -> float:
    """Send the first prompt; return when."""
    await anyio.sleep(1)  # Codex drops an Enter that comes while it starts
    terminal.type(words)
    await anyio.sleep(0.5)  # pasted text and Enter at once would be one paste
    return await terminal.press("\r", lambda: ("user", words) in program.said(home))


# ---- the hub -----------------------------------------------------------------------------------


async def session_of(client: Client, *, is_running: bool = True) -> Json:
    def found(answer: Any) -> bool:
        listed = answer["sessions"]
        return bool(listed) and listed[0]["foreign"]["isRunning"] is is_running

    with anyio.fail_after(PATIENCE):
        listed = await client.until("/api/sessions", found)
    (session,) = listed["sessions"]
    return dict(session)


async def request_of(client: Client) -> Json:
    with anyio.fail_after(PATIENCE):
        (pending,) = await client.pending_permissions()
    return pending


async def answer(client: Client, pending: Json, option: str, reason: str = "") -> None:
    body = {"optionId": option, "digest": pending["digest"], "reason": reason}
    await client.post(f"/api/permissions/{pending['requestId']}/answer", body)


async def until_none_pending(client: Client) -> None:
    with anyio.fail_after(PATIENCE):
        await client.until("/api/permissions", lambda answer: not answer["permissions"])


async def until_made(path: Path) -> None:
    began = time.monotonic()
    while not await anyio.Path(path).exists():
        assert time.monotonic() < began + PATIENCE, f"{path} is not there"
        await anyio.sleep(0.05)


def said_here(events: list[Json]) -> Said:
    """Return who said what by the log; the pieces of one message are joined."""
    said: Said = []
    last = None
    for each in events:
        if each["type"] not in _KINDS:
            continue
        who, text = _KINDS[each["type"]], each["payload"]["content"]["text"]
        message_id = each["payload"].get("messageId")
        if said and message_id is not None and message_id == last:
            said[-1] = (who, said[-1][1] + text)
        else:
            said.append((who, text))
        last = message_id
    return said


async def until_said(client: Client, session_id: str, words: str) -> None:
    """Wait until an answer in the log has these words, in however many pieces."""
    began = time.monotonic()
    while True:
        said = said_here(await client.events(session_id))
        if any(who == "assistant" and words in text for who, text in said):
            return
        assert time.monotonic() < began + PATIENCE, said
        await anyio.sleep(0.05)


async def until_equal(client: Client, program: Program, home: Path, session_id: str) -> list[Json]:
    """Wait until the log says what the program's own record does; return its events."""
    began = time.monotonic()
    while True:
        events, there = await client.events(session_id), program.said(home)
        if time.monotonic() - began > PATIENCE:
            assert said_here(events) == there
        if there and said_here(events) == there:
            assert [each["seq"] for each in events] == list(range(1, len(events) + 1))
            return events
        await anyio.sleep(0.1)


def resolved(events: list[Json]) -> list[str]:
    kind = "permission-request-resolved"
    return [each["payload"]["status"] for each in events if each["type"] == kind]


# ---- the programs --------------------------------------------------------------------------------


def _lines(folder: Path) -> list[Json]:
    """Return the lines of the one session below a folder; a half-written one is left out."""
    lines = []
    for path in folder.rglob("*.jsonl"):
        for line in path.read_text().splitlines():
            with suppress(ValueError):
                lines.append(json.loads(line))
    return lines


def _claude_environ(url: str, home: Path) -> Mapping[str, str]:
    return {
        "CLAUDE_CONFIG_DIR": str(home / "claude"),
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": _KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "ENABLE_TOOL_SEARCH": "false",
    }


def _prepare_claude(_url: str, home: Path) -> None:
    facts = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": [_KEY[-20:]], "rejected": []},
        "projects": {str(home / "work"): {"hasTrustDialogAccepted": True}},
    }
    (home / "claude").mkdir()
    (home / "claude" / ".claude.json").write_text(json.dumps(facts))


def _said_in_claude(home: Path) -> Said:
    said: Said = []
    lines = _lines(home / "claude" / "projects")
    # Claude Code does not always write them in this order.
    for line in sorted(lines, key=lambda line: str(line.get("timestamp", ""))):
        content = (line.get("message") or {}).get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        texts = [each["text"] for each in blocks if each.get("type") == "text"]
        said += [(line["type"], text) for text in texts if not text.startswith("[Request interr")]
    return said


def _prepare_codex(url: str, home: Path) -> None:
    trusted = f'[projects."{home / "work"}"]\ntrust_level = "trusted"\n'
    quiet = (
        '[notice.model_migrations]\n"gpt-5.5" = "gpt-6-sol"\n'
        "[tui]\nscreen_reader_detection_done = true\n"
    )
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_text(codex_config(url) + trusted + quiet)


def _said_in_codex(home: Path) -> Said:
    said: Said = []
    for line in _lines(home / ".codex" / "sessions"):
        payload = line["payload"]
        if line["type"] == "response_item" and payload["type"] == "message":
            texts = [each.get("text", "") for each in payload["content"]]
            is_shown = payload["role"] in ("user", "assistant") and not texts[0].startswith("<")
            said += [(payload["role"], text) for text in texts if is_shown]
    return said


def kill_daemons(home: Path) -> None:
    """Kill the daemon that a Codex with this home has started."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                command = (entry / "cmdline").read_bytes()
                if command.startswith(str(home / ".codex").encode()):
                    os.kill(int(entry.name), signal.SIGKILL)


(_OPENCODE,) = (each for each in AGENTS if each.name == "opencode")


def _said_in_opencode(home: Path) -> Said:
    path = home / ".local" / "share" / "opencode" / "opencode.db"
    query = (
        "SELECT message.data, part.data FROM part JOIN message ON message.id = part.message_id"
        " ORDER BY message.id, part.id"
    )
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            rows = connection.execute(query).fetchall()
    except sqlite3.OperationalError:  # not there yet
        return []
    parts = [(json.loads(message)["role"], json.loads(part)) for message, part in rows]
    return [(role, part["text"]) for role, part in parts if part["type"] == "text" and part["text"]]


CLAUDE: Final = Program(
    name="claude",
    place="claude-code",
    package="@anthropic-ai/claude-code@2.1.197",
    file="@anthropic-ai/claude-code-linux-x64/claude",
    environ=_claude_environ,
    prepare=_prepare_claude,
    asks="Do you want to proceed",
    allow="allow",
    key="1",
    said=_said_in_claude,
)
CODEX: Final = Program(
    name="codex",
    place="codex-cli",
    package="@openai/codex@0.166.0",
    file="@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex",
    prepare=_prepare_codex,
    asks="Yes, proceed",
    allow="accept",
    key="y",
    said=_said_in_codex,
)
OPENCODE: Final = Program(
    name="opencode",
    place="opencode",
    package="opencode-ai@1.18.33",
    file="opencode-linux-x64/bin/opencode",
    words=("--port", "0"),
    environ=lambda url, home: _OPENCODE.environ(url),
    prepare=lambda url, home: _OPENCODE.settle(home, url),
    is_ready="commands",
    asks="Permission required",
    allow="once",
    key="\r",
    said=_said_in_opencode,
)
PROGRAMS: Final = (CLAUDE, CODEX, OPENCODE)
