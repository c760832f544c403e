"""MCP servers of sessions: by configuration, by project, for one session; secrets stay secret."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.agents import AgentSettings, McpServerSettings, parse_server
from quarterdeck.agents.mcp_servers import literal_secret, problem_of
from quarterdeck.errors import Misused
from tests.hub.api.kit import PATIENCE, client_of, options, paired, running, scripted

SECRET = "correct-horse-mcp"


def recording(file: Path, **more: Any) -> AgentSettings:
    """Return an agent whose input is written to a file."""
    plays = scripted({"say": "hi"}, **more)
    words = ("-c", 'tee -a "$0" | "$@"', str(file), plays.command, *plays.args)
    return AgentSettings(command="/bin/sh", args=words)


def received(file: Path, method: str) -> list[Any]:
    messages = [json.loads(line) for line in file.read_text().splitlines()]
    return [each["params"]["mcpServers"] for each in messages if each.get("method") == method]


async def test_sessions_get_the_servers_of_their_folder_and_secrets_are_not_kept(
    tmp_path: Path,
) -> None:
    shop, input_file = tmp_path / "shop", tmp_path / "input"
    shop.mkdir()
    everywhere = McpServerSettings(command="docs-mcp", env={"TOKEN": "a ${MCP_TOKEN}"})
    here = McpServerSettings(command="shop-mcp", projects=(str(shop),))
    given = options(tmp_path / "home", mine=recording(input_file))
    environ = {**given.environ, "MCP_TOKEN": SECRET}
    given = replace(given, mcp={"docs": everywhere, "shop": here}, environ=environ)
    with anyio.fail_after(PATIENCE):
        async with running(given) as (_, client):
            session = await client.session("mine", tmp_path)
            await client.session("mine", shop)
            first, second = received(input_file, "session/new")
            assert [each["name"] for each in first] == ["docs"]
            assert first[0]["env"] == [{"name": "TOKEN", "value": f"a {SECRET}"}]
            assert [each["name"] for each in second] == ["docs", "shop"]
            own = {"name": "docs", "command": "other", "args": [], "env": []}
            body = {"agent": "mine", "cwd": str(tmp_path), "mcpServers": [own]}
            await client.post("/api/sessions", body, status=201)
            assert received(input_file, "session/new")[-1] == [own]
        async with running(given) as (_, client):  # opened again with the values of now
            await client.prompt(session, "k1")
            assert (await client.ended(session, "k1"))["state"] == "done"
            assert received(input_file, "session/resume")[-1] == first
    stored = b"".join(
        each.read_bytes() for each in (tmp_path / "home").rglob("*") if each.is_file()
    )
    assert SECRET.encode() not in stored


async def test_a_variable_that_is_not_set_is_a_sentence(tmp_path: Path) -> None:
    missing = McpServerSettings(url="https://a.example/mcp", headers={"A": "${SURELY_NOT_SET}"})
    given = replace(options(tmp_path / "home", mine=scripted({"say": "hi"})), mcp={"a": missing})
    with anyio.fail_after(PATIENCE):
        async with running(given) as (_, client):
            body = {"agent": "mine", "cwd": str(tmp_path)}
            refused = await client.post("/api/sessions", body, status=409)
            assert "needs the variable SURELY_NOT_SET" in refused["error"]["message"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=run --x 'y z'", {"name": "a", "command": "run", "args": ["--x", "y z"], "env": []}),
        (
            "a=T=${X} run",
            {"name": "a", "command": "run", "args": [], "env": [{"name": "T", "value": "1"}]},
        ),
        ("a=https://b.example/mcp", {"type": "http", "name": "a", "url": "https://b.example/mcp"}),
    ],
)
def test_a_server_on_the_command_line(text: str, expected: dict[str, Any]) -> None:
    assert parse_server(text, {"X": "1"}).items() >= expected.items()


@pytest.mark.parametrize(
    "text", ["", "a", "a=", "=run", "a='", "a=T=1", "a=T=${MISSING} run", "a=T=1 https://b"]
)
def test_what_is_no_server_is_misuse(text: str) -> None:
    with pytest.raises(Misused):
        parse_server(text, {})


@pytest.mark.parametrize(
    "text",
    [
        *("a=run --token abc", "a=run --api-key=abc", "a=run -e TOKEN=abc"),
        *("a=https://me:abc@b.example", "a=https://b.example?api_key=abc"),
        *("a=run --header 'Authorization: Bearer abc'", "a=sh -c 'run --token abc'"),
    ],
)
def test_a_credential_in_what_the_log_stores_is_misuse(text: str) -> None:
    with pytest.raises(Misused, match=r"credential; the log stores .* as \$\{NAME\}"):
        parse_server(text, {})


@pytest.mark.parametrize(
    "text",
    [
        *("a=run --no-auth", "a=run --auth --verbose", "a=run --key-file k", "a=run --tokens 5"),
        "a=TOKEN=abc sh -c 'run --token \"$TOKEN\"'",
    ],
)
def test_what_only_looks_like_a_credential_is_accepted(text: str) -> None:
    assert parse_server(text, {})["name"] == "a"


@pytest.mark.parametrize(
    "wrong",
    [
        McpServerSettings(),
        McpServerSettings(command="a", url="https://b"),
        McpServerSettings(url="ftp://b"),
        McpServerSettings(url="https://"),
        McpServerSettings(url="https://[b"),
        McpServerSettings(url="https://b", args=("x",)),
        McpServerSettings(command="a", headers={"A": "b"}),
        McpServerSettings(command="a", projects=("relative",)),
    ],
)
def test_a_wrong_server_in_the_configuration_is_refused(wrong: McpServerSettings) -> None:
    assert problem_of(wrong)


async def test_servers_are_listed_with_the_folders_that_get_them(tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    everywhere = McpServerSettings(command="docs-mcp", args=("--all",), env={"T": "${MCP_TOKEN}"})
    here = McpServerSettings(
        url="https://a.example/mcp",
        headers={"A": "Bearer ${SURELY_NOT_SET}"},
        projects=(str(shop),),
    )
    given = options(tmp_path / "home")
    environ = {**given.environ, "MCP_TOKEN": SECRET}
    given = replace(given, mcp={"docs": everywhere, "shop": here}, environ=environ)
    async with running(given) as (_, client):
        listed = (await client.get(f"/api/mcp?path={tmp_path}"))["servers"]
        assert [(each["name"], each["isUsed"]) for each in listed] == [
            ("docs", True),
            ("shop", False),
        ]
        docs, shop_server = (await client.get(f"/api/mcp?path={shop}"))["servers"]
        assert (docs["command"], docs["variables"], docs["missing"]) == (
            "docs-mcp --all",
            ["MCP_TOKEN"],
            [],
        )
        assert (shop_server["isUsed"], shop_server["missing"]) == (True, ["SURELY_NOT_SET"])
        assert SECRET not in str([docs, shop_server])


async def test_a_session_gets_the_chosen_servers_and_one_of_its_own(tmp_path: Path) -> None:
    input_file = tmp_path / "input"
    can = {"sessionCapabilities": {"resume": {}}, "mcpCapabilities": {"http": True}}
    given = options(tmp_path / "home", mine=recording(input_file, capabilities=can))
    environ = {**given.environ, "MCP_TOKEN": SECRET}
    servers = {name: McpServerSettings(command=f"{name}-mcp") for name in ("docs", "files")}
    given = replace(given, mcp=servers, environ=environ)
    own = {"name": "docs", "command": "other-mcp", "env": {"TOKEN": "${MCP_TOKEN}"}}
    web = {"name": "web", "url": "https://a.example", "headers": {"A": "Bearer ${MCP_TOKEN}"}}
    with anyio.fail_after(PATIENCE):
        async with running(given) as (_, client):
            body: dict[str, Any] = {"agent": "mine", "cwd": str(tmp_path)}
            body["mcp"] = {"configured": ["files"]}
            await client.post("/api/sessions", body, status=201)
            body["mcp"] = {"configured": [], "added": [own, web]}
            session = (await client.post("/api/sessions", body, status=201))["sessionId"]
            chosen, added = received(input_file, "session/new")
            assert [each["name"] for each in chosen] == ["files"]
            assert [(each["name"], each.get("command")) for each in added] == [
                ("docs", "other-mcp"),
                ("web", None),
            ]
            assert added[0]["env"][0]["value"] == SECRET
            assert added[1]["headers"][0]["value"] == f"Bearer {SECRET}"
            body["mcp"] = {"configured": ["nothing"]}
            await client.post("/api/sessions", body, status=400)
        async with running(given) as (_, client):  # opened again with the values of now
            await client.prompt(session, "k1")
            assert (await client.ended(session, "k1"))["state"] == "done"
            assert received(input_file, "session/resume")[-1] == added
    stored = b"".join(
        each.read_bytes() for each in (tmp_path / "home").rglob("*") if each.is_file()
    )
    assert SECRET.encode() not in stored


async def test_a_secret_that_is_written_out_is_refused_with_a_sentence(tmp_path: Path) -> None:
    given = options(tmp_path / "home", mine=scripted({"say": "hi"}))
    async with running(given) as (_, client):
        own = {"name": "docs", "command": "docs-mcp", "env": {"TOKEN": SECRET}}
        body = {"agent": "mine", "cwd": str(tmp_path), "mcp": {"added": [own]}}
        refused = (await client.post("/api/sessions", body, status=400))["error"]
        assert refused["code"] == "quarterdeck/literal-secret"
        assert "TOKEN has a literal value" in refused["message"]
        assert SECRET not in refused["message"]
        twice = {**body, "mcp": {"added": [own, own]}}
        await client.post("/api/sessions", twice, status=400)
        both = {**body, "mcpServers": [{"name": "a", "command": "b", "args": [], "env": []}]}
        await client.post("/api/sessions", both, status=400)


async def test_only_an_admin_device_adds_servers(tmp_path: Path) -> None:
    given = options(tmp_path / "home", mine=scripted({"say": "hi"}))
    async with running(given) as (_, owner):
        token = await paired(owner, "approve")
        async with client_of(tmp_path / "home", str(owner.http.base_url), token) as phone:
            own = {"name": "docs", "command": "docs-mcp"}
            body: dict[str, Any] = {"agent": "mine", "cwd": str(tmp_path), "mcp": {"added": [own]}}
            await phone.post("/api/sessions", body, status=403)
            body["mcp"] = {"configured": []}
            await phone.post("/api/sessions", body, status=201)


@pytest.mark.parametrize(
    ("settings", "is_refused"),
    [
        (McpServerSettings(command="a", env={"A": "${B}"}), False),
        (McpServerSettings(command="a", env={"A": "b ${B}"}), True),
        (McpServerSettings(command="a", env={"A": ""}), True),
        (McpServerSettings(command="a", args=("--root", ".", "--author", "x")), False),
        (McpServerSettings(command="a", args=("--token=x",)), True),
        (McpServerSettings(command="a", args=("--github-api-key", "x")), True),
        (McpServerSettings(url="https://a/mcp?q=1", headers={"A": "Bearer ${B}"}), False),
        (McpServerSettings(url="https://a", headers={"A": "Bearer x"}), True),
        (McpServerSettings(url="https://u:p@a/mcp"), True),
        (McpServerSettings(url="https://a/mcp?access_token=x"), True),
        (McpServerSettings(url="https://a/mcp?key=x"), True),
        (McpServerSettings(url="https://x@a/mcp"), True),
        (McpServerSettings(url="https://a/mcp?monkey=x&path=y"), False),
        (McpServerSettings(command="docker", args=("run", "-e", "GITHUB_TOKEN=x", "i")), True),
        (McpServerSettings(command="docker", args=("run", "-e", "GITHUB_PAT=x", "i")), True),
        (McpServerSettings(command="docker", args=("run", "-e", "GITHUB_TOKEN", "i")), False),
        (McpServerSettings(command="docker", args=("run", "-e", "LOG=x", "--env=Y=1")), False),
        (McpServerSettings(command="npx", args=("mcp-remote", "Authorization: Bearer x")), True),
        (McpServerSettings(command="npx", args=("mcp-remote", "--header=X-Api-Key: x")), True),
        (McpServerSettings(command="sh", args=("-c", "A=1 TOKEN=x serve")), True),
        (
            McpServerSettings(command="sh", args=("-c", 'TOKEN="$HUB_TOKEN" serve --author=me')),
            False,
        ),
        (McpServerSettings(command="a", args=("--keyboard=us", "--path=/x", "monkey=1")), False),
    ],
)
def test_what_may_be_a_secret_is_found(settings: McpServerSettings, *, is_refused: bool) -> None:
    assert (literal_secret(settings) is not None) == is_refused


async def test_servers_that_an_agent_cannot_use_are_left_out(tmp_path: Path) -> None:
    input_file = tmp_path / "input"
    given = options(tmp_path / "home", mine=recording(input_file))
    there = McpServerSettings(url="https://a.example/mcp")
    given = replace(given, mcp={"docs": there, "files": McpServerSettings(command="files-mcp")})
    async with running(given) as (_, client):
        await client.session("mine", tmp_path)
        (first,) = received(input_file, "session/new")
        assert [each["name"] for each in first] == ["files"]
        added = {"added": [{"name": "web", "url": "https://a.example/mcp"}]}
        body = {"agent": "mine", "cwd": str(tmp_path), "mcp": added}
        refused = (await client.post("/api/sessions", body, status=400))["error"]["message"]
        assert "mine cannot use MCP servers with a URL of this kind" in refused
