"""Agents that are installed through a hub, from a registry in a file."""

from __future__ import annotations

import hashlib
import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

from quarterdeck.agents.installs import this_platform
from quarterdeck.hub import HubOptions
from tests.agents.local_registry import packed
from tests.hub.api.kit import PATIENCE, options, running, scripted
from tests.hub.runners import runner_of


def registry(
    folder: Path, version: str = "1.0.0", *, digest: str | None = None, **more: Any
) -> str:
    """Write a registry with one agent, which plays a script; return its path."""
    agent = scripted({"say": f"hello from {version}"}, **more)
    words = shlex.join([agent.command, *agent.args])
    content = packed({"mine/run": f"#!/bin/sh\nexec {words}\n"})
    (folder / "mine.tgz").write_bytes(content)
    target = {
        "archive": "mine.tgz",
        "cmd": "./mine/run",
        "sha256": digest or hashlib.sha256(content).hexdigest(),
    }
    facts = {"id": "mine", "name": "Mine", "version": version, "description": "It plays."}
    document = {**facts, "distribution": {"binary": {this_platform(): target}}}
    (folder / "registry.json").write_text(json.dumps({"version": "1", "agents": [document]}))
    return str(folder / "registry.json")


def given(tmp_path: Path) -> HubOptions:
    return replace(options(tmp_path / "home"), registry=registry(tmp_path))


async def installed(client: Any, name: str = "mine", **body: Any) -> Any:
    path = f"/api/agents/known/{name}/install"
    await client.post(path, body, status=202)

    def has_ended(found: Any) -> bool:
        return all(each.get("state", "running") != "running" for each in found["installs"])

    found = await client.until("/api/agents/installs", has_ended)
    return next(each for each in found["installs"] if each["name"] == name)


async def said(client: Any, session: str, key: str) -> str:
    await client.prompt(session, key)
    assert (await client.ended(session, key))["state"] == "done"
    events = (await client.get(f"/api/sessions/{session}/history"))["events"]
    texts = [e["payload"]["content"]["text"] for e in events if e["type"] == "agent-message-chunk"]
    return str(texts[-1])


async def test_an_agent_is_installed_used_updated_and_removed(tmp_path: Path) -> None:
    with anyio.fail_after(PATIENCE):
        async with running(given(tmp_path)) as (hub, client):
            stages: list[Any] = []
            runner_of(hub).host.subscribe(None, 0, lambda e: stages.append((e.type, e.payload)))
            body = {"agent": "mine", "cwd": str(tmp_path)}
            refused = await client.post("/api/sessions", body, status=409)
            assert "quarterdeck agents install mine" in refused["error"]["message"]
            done = await installed(client)
            assert (done["state"], done["changes"]) == ("done", ["mine 1.0.0: installed"])
            reported = [p["stage"] for kind, p in stages if kind == "install-progress"]
            assert reported == ["resolving", "verifying", "extracting", "installed"]
            first = await client.session("mine", tmp_path)
            assert await said(client, first, "k1") == "hello from 1.0.0"

            registry(tmp_path, "1.1.0")
            hub.runner.reconfigure(hub.options.runner)
            known = (await client.get("/api/agents/known"))["agents"]
            (mine,) = [each for each in known if each["name"] == "mine"]
            assert (mine["installedVersion"], mine["testedVersion"]) == ("1.0.0", "1.1.0")
            assert (await installed(client))["changes"] == ["mine 1.0.0 → 1.1.0"]
            assert await said(client, first, "k2") == "hello from 1.0.0"  # it keeps its version
            for agent in (await client.get("/api/agents"))["agents"]:
                await client.call("DELETE", f"/api/agents/{agent['agentId']}", status=204)
            assert await said(client, first, "k3") == "hello from 1.1.0"

            await client.call("DELETE", "/api/agents/known/mine/install", status=204)
            await client.call("DELETE", "/api/agents/known/mine/install", status=409)
            diagnostics = [p["code"] for kind, p in stages if kind == "diagnostic"]
            assert "agent/definition-changed" not in diagnostics


async def test_a_failure_is_a_sentence_and_an_unknown_name_has_a_suggestion(tmp_path: Path) -> None:
    with anyio.fail_after(PATIENCE):
        options = given(tmp_path)
        registry(tmp_path, digest="0" * 64)
        async with running(options) as (_, client):
            failed = await installed(client)
            assert failed["state"] == "failed"
            assert "wrong checksum and was not installed; try again" in failed["reason"]
            path = "/api/agents/known/miine/install"
            refused = await client.post(path, status=404)
            assert "did you mean mine?" in refused["error"]["message"]
            await client.post("/api/agents/known/mine/install", {"version": "--global"}, status=400)
            assert (await client.post("/api/agents/registry"))["changed"]


async def test_another_registry_is_used_without_a_restart(tmp_path: Path) -> None:
    with anyio.fail_after(PATIENCE):
        async with running(options(tmp_path / "home")) as (hub, client):

            async def names() -> set[str]:
                known = (await client.get("/api/agents/known"))["agents"]
                return {each["name"] for each in known}

            assert "mine" not in await names()
            hub.reconfigure(replace(hub.options, registry=registry(tmp_path)))
            assert "mine" in await names()
            assert (await installed(client))["state"] == "done"
            hub.reconfigure(replace(hub.options, registry=""))
            await client.post("/api/agents/registry", {}, status=400)
