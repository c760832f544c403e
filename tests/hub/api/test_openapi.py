"""The API's document: made from the route table, and true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from quarterdeck.hub import Hub, hub_endpoints
from quarterdeck.hub.api.processes import process_endpoints
from quarterdeck.hub.editors import acp_endpoints
from tests.hub.api.kit import Json, options, paired, running, scripted
from tests.hub.api.processes import hub_process

pytestmark = pytest.mark.anyio

ELSEWHERE = ("devices",)
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
)
PARAMETERS = '[parameters]\n"path.id" = "sess-1"\n"path.key" = "k1"\n"path.name" = "mine"\n'


async def test_the_document_has_every_way_into_the_hub(tmp_path: Path) -> None:
    given = options(tmp_path / "home")
    async with running(given, parts=(acp_endpoints,)) as (hub, client):
        document = await client.get("/openapi.json")
        assert "/acp/rpc" in document["paths"]
        told = {
            (method.upper(), path)
            for path, operations in document["paths"].items()
            for method in operations
        }
        assert told == {(each.method, each.path) for each in hub_endpoints(hub)}
        assert document["openapi"] == "3.1.0"
        names = [
            operation["operationId"]
            for operations in document["paths"].values()
            for operation in operations.values()
        ]
        assert len(names) == len(set(names))


async def test_the_chapter_on_the_hub_names_every_call_but_those_of_other_chapters(
    tmp_path: Path,
) -> None:
    chapter = (Path(__file__).parents[3] / "docs" / "use" / "hub.md").read_text()
    named = set(re.findall(r"`((?:GET|POST|PUT|PATCH|DELETE) /\S+)`", chapter))
    of_up = process_endpoints(cast("Any", None))  # which `up` adds; no call is made
    async with Hub(options(tmp_path / "home"), parts=(of_up,)) as hub:
        there = {
            f"{each.method} {each.path}"
            for each in hub_endpoints(hub)
            if each.kind == "http" and each.tag not in ELSEWHERE
        }
    assert named == there


async def test_a_method_that_does_nothing_is_refused_as_everything_is(tmp_path: Path) -> None:
    async with running(options(tmp_path / "home")) as (_, client):
        answer = await client.http.put("/api/agents", json={})
        assert answer.status_code == 405
        assert answer.headers["allow"] == "GET, POST"
        assert answer.json()["error"]["code"] == "quarterdeck/invalid"
        nothing = await client.get("/api/nothing", status=404)
        assert "/openapi.json" in nothing["error"]["message"]


WRONG_QUERIES = [
    ("/api/sessions?stauts=active", "status"),
    ("/api/sessions?status=a&status=b", "twice"),
    ("/api/agents?all=yes", "takes no parameters"),
    ("/api/decisions?limit=0", "limit"),
    ("/api/decisions?limit=many", "limit"),
    ("/api/decisions?before=null", "before"),
]


async def test_a_query_that_is_not_as_it_should_be_is_refused_in_a_sentence(
    tmp_path: Path,
) -> None:
    async with running(options(tmp_path / "home")) as (_, client):
        for path, word in WRONG_QUERIES:
            refused = await client.get(path, status=400)
            assert word in refused["error"]["message"]


WRONG_BODIES = [
    *(b"", b"{", b"[]", b"null", b'"text"', b"[" * 100_000, b'{"cwd": 1}'),
    *(b'{"cwd": "/", "cdw": "/"}', b'{"cwd": "a/b", "agent": "demo"}'),
    *(b'{"cwd": "/\\ud83d", "agent": "demo"}', b'{"cwd": "/\\u0000", "agent": "demo"}'),
]


async def test_a_body_that_is_not_as_it_should_be_is_refused_in_a_sentence(
    tmp_path: Path,
) -> None:
    async with running(options(tmp_path / "home")) as (_, client):
        headers = {"content-type": "application/json"}
        for body in WRONG_BODIES:
            answer = await client.http.post("/api/sessions", content=body, headers=headers)
            assert answer.status_code == 400
            assert answer.json()["error"]["code"] == "quarterdeck/invalid"


def endless(document: Json) -> list[str]:
    """Return the paths of streams and WebSockets: they have tests of their own."""
    return [
        path
        for path, operations in document["paths"].items()
        for operation in operations.values()
        if "101" in operation["responses"]
        or "text/event-stream" in operation["responses"].get("200", {}).get("content", {})
    ]


@pytest.mark.slow
async def test_whatever_is_sent_the_answers_are_those_of_the_document(tmp_path: Path) -> None:
    """Have schemathesis send hundreds of requests, right and wrong ones."""
    home, config = tmp_path / "home", tmp_path / "schemathesis.toml"
    config.write_text(PARAMETERS)
    async with hub_process(home, scripted({"say": "hi"})) as hub:
        await hub.client.session("mine", tmp_path)
        document = await hub.client.get("/openapi.json")
        token = await paired(hub.client, "admin")
        command = [
            *(str(Path(sys.executable).with_name("st")), "--config-file", str(config), "run"),
            *(f"{hub.url}/openapi.json", "--checks", ",".join(CHECKS)),
            *("-H", f"Authorization: Bearer {token}"),
            *("--phases", "examples,coverage,fuzzing", "--max-examples", "5", "--no-color"),
            # Any command would be run, and the tests' own token would be revoked.
            *("--exclude-operation-id", "post-agents", "--exclude-path", "/api/logout"),
            *(each for path in endless(document) for each in ("--exclude-path", path)),
        ]
        ran = await anyio.run_process(command, check=False, stderr=subprocess.STDOUT, cwd=tmp_path)
        assert ran.returncode == 0, ran.stdout.decode()
        assert await hub.client.get("/healthz") == {"status": "ok"}
