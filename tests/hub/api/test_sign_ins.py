"""Signing in to agents: what they offer, terminals, and what to do when it is missing."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.agents import AgentSettings
from quarterdeck.hub import HubOptions
from quarterdeck.runner.sign_in.methods import advice, offered_methods, terminal_command
from tests.hub.api.kit import PATIENCE, options, running, scripted

CODE = "horse-battery-42"
# Asks for a code at its terminal, as a person's password; the marker shows that it was right.
ASKS = f"""
import getpass, sys
if not sys.stdin.isatty(): sys.exit(3)
print("open https://a.example/device", flush=True)
typed = getpass.getpass("Code: ")
if typed != "{CODE}": sys.exit(4)
open(sys.argv[1], "w").close()
print("welcome")
"""


def method(marker: Path) -> dict[str, Any]:
    program = marker.with_name("asks.py")  # not in the command line, which is stored
    program.write_text(ASKS)
    command = {"command": sys.executable, "args": [str(program), str(marker)]}
    return {"id": "tty", "name": "Log in", "_meta": {"terminal-auth": command}}


def mine(tmp_path: Path, *steps: Any, **more: Any) -> HubOptions:
    offered = [method(tmp_path / "marker"), {"id": "browser", "name": "Browser"}]
    agent = scripted(*(steps or ({"say": "hi"},)), initialize={"authMethods": offered}, **more)
    return options(tmp_path / "home", mine=agent)


async def shown(client: Any, sign_in: str, until: str) -> tuple[str, Any]:
    """Read a terminal until it shows a text, or has ended."""
    text, position = "", 0
    while True:
        found = await client.get(f"/api/sign-ins/{sign_in}?after={position}")
        text, position = text + found["text"], found["position"]
        if until in text or found["signIn"]["state"] != "running":
            return text, found["signIn"]


async def ended(client: Any, sign_in: str) -> Any:
    _, state = await shown(client, sign_in, "\0never")
    return state


async def test_a_terminal_is_shown_and_typed_into_and_nothing_of_it_is_kept(tmp_path: Path) -> None:
    with anyio.fail_after(PATIENCE):
        async with running(mine(tmp_path)) as (_, client):
            path = "/api/agents/known/mine/sign-in"
            methods = (await client.get(path))["methods"]
            assert [(each["id"], each["kind"]) for each in methods] == [
                ("tty", "terminal"),
                ("browser", "agent"),
            ]
            assert "asks.py" not in json.dumps(methods)
            begun = await client.post(path, {"methodId": "tty"}, status=202)
            text, _ = await shown(client, begun["id"], "Code: ")
            assert "https://a.example/device" in text
            await client.post(
                f"/api/sign-ins/{begun['id']}/input", {"text": f"{CODE}\n"}, status=204
            )
            state = await ended(client, begun["id"])
            assert (state["state"], (tmp_path / "marker").exists()) == ("done", True), state
            text, _ = await shown(client, begun["id"], "welcome")
            assert CODE not in text  # a password has no echo
        stored = b"".join(
            each.read_bytes() for each in (tmp_path / "home").rglob("*") if each.is_file()
        )
        assert (CODE.encode() in stored, b"a.example/device" in stored) == (False, False)


async def test_a_sign_in_that_fails_or_is_ended_says_so(tmp_path: Path) -> None:
    with anyio.fail_after(PATIENCE):
        async with running(mine(tmp_path)) as (_, client):
            path = "/api/agents/known/mine/sign-in"
            begun = await client.post(path, {"methodId": "tty"}, status=202)
            await shown(client, begun["id"], "Code: ")
            await client.post(f"/api/sign-ins/{begun['id']}/input", {"text": "wrong\n"}, status=204)
            state = await ended(client, begun["id"])
            assert (state["state"], "status 4" in state["reason"]) == ("failed", True)
            begun = await client.post(path, {"methodId": "tty"}, status=202)
            await client.call("DELETE", f"/api/sign-ins/{begun['id']}", status=204)
            assert (await ended(client, begun["id"]))["reason"] == "it was cancelled"
            refused = await client.post(path, {"methodId": "none"}, status=400)
            assert "choose one of: tty, browser" in refused["error"]["message"]
            await client.get("/api/sign-ins/none", status=404)


async def test_a_sign_in_that_reads_nothing_does_not_stop_the_hub(tmp_path: Path) -> None:
    program = tmp_path / "hangs.py"
    program.write_text(
        "import time, tty; tty.setraw(0); print('ready', flush=True); time.sleep(60)"
    )
    command = {"command": sys.executable, "args": [str(program)]}
    offered = [{"id": "tty", "name": "Log in", "_meta": {"terminal-auth": command}}]
    agent = scripted({"say": "hi"}, initialize={"authMethods": offered})
    with anyio.fail_after(PATIENCE):
        async with running(options(tmp_path / "home", mine=agent)) as (_, client):
            begun = await client.post(
                "/api/agents/known/mine/sign-in", {"methodId": "tty"}, status=202
            )
            await shown(client, begun["id"], "ready")
            path = f"/api/sign-ins/{begun['id']}"
            while True:
                typed = await client.http.post(f"{path}/input", json={"text": "x" * 4096})
                if typed.status_code != 204:
                    break
            assert "does not read what you type" in typed.json()["error"]["message"]
            await client.call("DELETE", path, status=204)
            assert (await ended(client, begun["id"]))["reason"] == "it was cancelled"


async def test_what_failed_for_want_of_a_sign_in_is_repeated(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    given = mine(tmp_path, {"fail": "Authentication required", "code": -32000})
    signed_in = mine(tmp_path, {"say": "now it works"}).agents["mine"]
    before = given.agents["mine"]
    chooser = tmp_path / "agent.sh"
    words = [" ".join(map(_quoted, (a.command, *a.args))) for a in (before, signed_in)]
    chooser.write_text(
        f"#!/bin/sh\nif [ -e {marker} ]; then exec {words[1]}; else exec {words[0]}; fi\n"
    )
    chooser.chmod(0o755)
    given = replace(given, agents={"mine": AgentSettings(command=str(chooser))})
    with anyio.fail_after(PATIENCE):
        async with running(given) as (_, client):
            session = await client.session("mine", tmp_path)
            await client.prompt(session, "k1")
            failed = await client.ended(session, "k1")
            assert failed["error"]["code"] == "quarterdeck/sign-in-required"
            assert "quarterdeck login mine" in failed["error"]["message"]
            path = "/api/agents/known/mine/sign-in"
            begun = await client.post(path, {"methodId": "tty"}, status=202)
            await shown(client, begun["id"], "Code: ")
            await client.post(
                f"/api/sign-ins/{begun['id']}/input", {"text": f"{CODE}\n"}, status=204
            )
            state = await ended(client, begun["id"])
            assert state["retried"] == [session]

            def has_answer(found: Any) -> bool:
                return any("now it works" in json.dumps(each) for each in found["events"])

            await client.until(f"/api/sessions/{session}/history", has_answer)


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


async def test_a_session_that_is_refused_names_the_command(tmp_path: Path) -> None:
    new = [{"fail": "Authentication required", "code": -32000}]
    given = mine(tmp_path, methods={"session/new": new})
    with anyio.fail_after(PATIENCE):
        async with running(given) as (_, client):
            body = {"agent": "mine", "cwd": str(tmp_path)}
            refused = (await client.post("/api/sessions", body, status=424))["error"]
            assert refused["code"] == "quarterdeck/sign-in-required"
            assert "quarterdeck login mine" in refused["message"]
            assert refused["data"] == {"agent": "mine"}


@pytest.mark.parametrize(
    ("message", "code", "expected"),
    [
        ("Authentication required", -32000, "sign in: LOGIN"),
        ("Missing API key for mistral provider.", -32603, "sign in: LOGIN"),
        ("No LLM provider configured. Run `hermes model`", -32603, "sign in: LOGIN"),
        ("401 Unauthorized", None, "sign in: LOGIN"),
        ("Missing environment variable: `FAKE_KEY`.", None, "the hub has FAKE_KEY, but"),
        ("the disk is full", -32603, None),
        ("cannot read the author's file", None, None),
    ],
)
def test_advice_is_given_for_want_of_a_sign_in_only(
    message: str, code: int | None, expected: str | None
) -> None:
    found = advice(message, code, "LOGIN", ["FAKE_KEY"])
    assert (found is None) == (expected is None)
    assert expected is None or (found or "").startswith(expected)


@pytest.mark.parametrize(
    "hostile",
    [
        {"id": 7},
        {"id": "a", "name": 3, "_meta": 3},
        {"id": "a", "type": "env_var", "vars": [3, {"name": 4}]},
        {"id": "a", "type": "terminal", "args": "x", "env": [1]},
        {"id": "a", "_meta": {"terminal-auth": {"command": 3}}},
    ],
)
def test_methods_of_any_shape_are_read(hostile: dict[str, Any]) -> None:
    settings = AgentSettings(command="agent", args=("acp",))
    assert len(offered_methods([hostile], None)) == int(isinstance(hostile["id"], str))
    found = terminal_command("a", [hostile], None, settings)
    assert found is None or found.command == ("agent", "acp")
