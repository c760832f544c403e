"""The ACP registry: its format, hostile documents, and the stored copy."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.agents import AgentCatalogue, RegistryCache
from quarterdeck.agents.catalogue import parse_registry
from quarterdeck.errors import InstallFailed, JsonInvalid
from tests.agents.local_registry import serving_registry

DIGEST = "0" * 64


def agent(**more: Any) -> dict[str, Any]:
    facts = {"id": "mine", "name": "Mine", "version": "1.2.3", "description": "Does it."}
    return {**facts, "distribution": {"npx": {"package": "@me/mine@1.2.3"}}, **more}


def document(*agents: Any) -> bytes:
    return json.dumps({"version": "1.0.0", "agents": agents, "extensions": []}).encode()


def test_each_distribution_is_read() -> None:
    binary = {"linux-x86_64": {"archive": "https://a.example/x.tgz", "cmd": "./x", "args": ["acp"]}}
    verified = {"linux-x86_64": {**binary["linux-x86_64"], "sha256": DIGEST}, "plan9": {}}
    verified.pop("plan9")
    uvx = {"package": "mine-py[acp]==2.0", "args": ["--acp"], "env": {"A": "b"}}
    entries, reasons = parse_registry(
        document(
            agent(),
            agent(id="py", distribution={"uvx": uvx}),
            agent(id="bin", distribution={"binary": verified, "npx": {"package": "x"}}),
            agent(id="bare", distribution={"binary": binary, "npx": {"package": "x@latest"}}),
            agent(id="only", distribution={"binary": binary}),
        )
    )
    assert reasons == []
    found = {entry.name: entry for entry in entries}
    npm, pypi = found["mine"].npm, found["py"].pypi
    assert npm is not None
    assert (npm.package, npm.version) == ("@me/mine", "1.2.3")
    assert pypi is not None
    assert (pypi.package, pypi.version, found["py"].command) == ("mine-py[acp]", "2.0", "mine-py")
    assert found["py"].environment.set == {"A": "b"}
    assert found["bin"].binary["linux-x86_64"].sha256 == DIGEST
    bare = found["bare"].npm
    assert bare is not None
    assert bare.version is None
    assert found["only"].binary["linux-x86_64"].sha256 is None


def test_one_agent_alone_is_a_document_too() -> None:
    entries, _ = parse_registry(json.dumps(agent(newField=1)).encode())
    assert [entry.name for entry in entries] == ["mine"]


def test_an_agent_that_is_listed_twice_is_reported_without_noise(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entries, reasons = parse_registry(document(agent(name="First"), agent(name="Second")))
    assert [entry.title for entry in entries] == ["First"]
    assert reasons == ["agent 'mine' of the registry: it is listed twice; the first counts"]
    path = tmp_path / "registry.json"
    path.write_bytes(document(agent(), agent()))
    assert AgentCatalogue(None, RegistryCache(str(path), tmp_path)).problems == tuple(reasons)
    # Commands have no log: a warning would be printed without its reason.
    assert [each for each in caplog.records if each.levelname != "INFO"] == []


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        7,
        [],
        {},
        agent(id="../up"),
        agent(id="UPPER"),
        agent(id="a" * 100),
        agent(name=""),
        agent(distribution={}),
        agent(distribution={"docker": {"image": "x"}}),
        agent(distribution={"npx": {"package": "--global"}}),
        agent(distribution={"npx": {"package": "a@$(reboot)"}}),
        agent(distribution={"uvx": {"package": "--index-url=http://evil"}}),
        agent(distribution={"npx": {"package": "a", "args": "--acp"}}),
        agent(distribution={"npx": {"package": "a", "args": ["x" * 5000]}}),
        agent(distribution={"npx": {"package": "a", "args": ["x"] * 500}}),
        agent(distribution={"binary": {"linux-x86_64": {"archive": "x"}}}),
        agent(
            distribution={
                "binary": {"linux-x86_64": {"archive": "x", "cmd": "y", "sha256": "../" * 30}}
            }
        ),
    ],
    ids=lambda wrong: json.dumps(wrong)[-60:],
)
def test_an_agent_that_breaks_the_rules_is_left_out_alone(wrong: Any) -> None:
    entries, reasons = parse_registry(document(wrong, agent(id="good")))
    assert [entry.name for entry in entries] == ["good"]
    assert len(reasons) == 1


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b"null", b"\xff", b"[" * 100_000, b" " * (9 << 20), b'{"agents": 1}'],
    ids=lambda content: repr(content[:10]),
)
def test_what_is_no_registry_is_refused(content: bytes) -> None:
    with pytest.raises(JsonInvalid):
        parse_registry(content)


def test_a_document_with_too_many_agents_is_cut() -> None:
    entries, reasons = parse_registry(document(*(agent(id=f"a{n}") for n in range(3000))))
    assert len(entries) == 2000
    assert len(reasons) == 1


async def test_a_registry_is_fetched_once_and_used_offline(tmp_path: Path) -> None:
    with serving_registry() as server:
        server.files["/registry.json"] = document(agent())
        server.etags["/registry.json"] = '"one"'
        url = f"{server.url}/registry.json"
        cache = RegistryCache(url, tmp_path)
        assert "mine" not in AgentCatalogue(None, cache)
        assert await cache.refresh(1.0)
        assert "mine" in AgentCatalogue(None, cache)
        assert not await cache.refresh(2.0)
        assert server.asked[-1] == ("/registry.json", '"one"')
        server.files["/registry.json"] = b"<html>"
        server.etags["/registry.json"] = '"two"'
        with pytest.raises(InstallFailed, match="is no registry"):
            await cache.refresh(3.0)
    with pytest.raises(InstallFailed, match="cannot be fetched"):
        await cache.refresh(4.0)
    again = RegistryCache(url, tmp_path)
    catalogue = AgentCatalogue(None, again)
    assert catalogue.is_listed_only("mine")
    assert again.fetched_at() == 1.0
    assert "mine" not in AgentCatalogue(None, RegistryCache("https://other.example/r", tmp_path))
    assert os.listdir(tmp_path) == ["registry.json"]  # noqa: PTH208 - of one folder


def test_a_stored_registry_that_is_damaged_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "registry.json").write_text('{"source": "https://a.exa')
    catalogue = AgentCatalogue(None, RegistryCache("https://a.example/r.json", tmp_path))
    assert "claude" in catalogue
    assert catalogue.problems == ()


def test_a_registry_in_a_file_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "registry.json"
    path.write_bytes(document(agent()))
    assert "mine" in AgentCatalogue(None, RegistryCache(str(path), tmp_path / "agents"))
    path.write_bytes(b"{")
    catalogue = AgentCatalogue(None, RegistryCache(str(path), tmp_path / "agents"))
    assert "mine" not in catalogue
    assert "cannot be read" in catalogue.problems[0]


def test_the_catalogue_goes_before_the_registry(tmp_path: Path) -> None:
    path = tmp_path / "registry.json"
    path.write_bytes(document(agent(id="claude")))
    found = AgentCatalogue(None, RegistryCache(str(path), tmp_path)).get("claude")
    assert found is not None
    assert found.command == "claude-agent-acp"
