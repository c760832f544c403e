"""The generated types of ACP 2, against the schema that they come from."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, assert_type

import msgspec
import pytest

from quarterdeck.acp import Handlers, Unknown, decode, encode, open_peer, to_dict, v2
from quarterdeck.errors import SchemaMismatch
from quarterdeck.wire import memory_pair
from tests.acp.conftest import ROOT
from tests.acp.instances import canonical, instances, typed_definitions
from tests.acp.test_methods import of_kind
from tests.acp.test_schema import GENERATED
from tools.acp_model import ENVELOPES, Model
from tools.acp_overlay import with_overlay


def test_the_generator_writes_exactly_the_committed_modules(
    schema_folder_v2: Path, tmp_path: Path
) -> None:
    files = [schema_folder_v2 / "schema.json", schema_folder_v2 / "schema.unstable.json"]
    subprocess.run(
        [sys.executable, ROOT / "tools/gen_acp.py", *files, "--write", tmp_path], check=True
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == list(GENERATED)
    for name in GENERATED:
        committed = (ROOT / "src/quarterdeck/acp/v2" / name).read_text()
        assert (tmp_path / name).read_text() == committed, f"{name} is stale; run tools/gen_acp.py"


def test_every_definition_is_a_type_or_the_body_of_a_variant(
    either_schema_v2: dict[str, Any],
) -> None:
    model = Model(with_overlay(either_schema_v2, 2))
    homeless = set(either_schema_v2["$defs"]) - ENVELOPES - model.merged - set(model.declarations)
    assert homeless == set()
    assert [name for name in model.declarations if not hasattr(v2.schema, name)] == []


@pytest.mark.slow
def test_random_valid_instances_are_read_and_written_exactly(
    either_schema_v2: dict[str, Any],
) -> None:
    changed = []
    for name, expected, tag in typed_definitions(either_schema_v2, 2):
        for instance in instances(either_schema_v2, name, 25):
            original = {**instance, **tag} if tag else instance
            again = msgspec.json.decode(encode(decode(expected, canonical(original))))
            if canonical(again) != canonical(original):
                changed.append((name, original, again))
    assert changed == []


def test_our_calls_are_those_of_the_schema(schema_folder_v2: Path) -> None:
    document = json.loads((schema_folder_v2 / "schema.unstable.json").read_text())
    stable = json.loads((schema_folder_v2 / "schema.json").read_text())
    methods = {
        (each.side, each.name): each
        for table in (
            v2.methods.AGENT_METHODS,
            v2.methods.CLIENT_METHODS,
            v2.methods.PROXY_METHODS,
        )
        for each in table.values()
    }
    notes = {
        (each.side, each.name): each
        for table in (
            v2.methods.AGENT_NOTES,
            v2.methods.CLIENT_NOTES,
            v2.methods.PROTOCOL_NOTES,
            v2.methods.PROXY_NOTES,
        )
        for each in table.values()
    }
    assert set(methods) == of_kind(document, "Request", "Response")
    assert set(notes) == of_kind(document, "Notification")
    in_stable = of_kind(stable, "Request", "Response", "Notification")
    ours = {key for key, method in methods.items() if method.stable}
    assert ours | {key for key, note in notes.items() if note.stable} == in_stable
    assert v2.PROTOCOL_VERSION == 2


def test_types_of_the_two_versions_do_not_mix() -> None:
    call = {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "t"}
    assert isinstance(decode(v2.schema.SessionUpdate, call), Unknown)
    update = {"sessionUpdate": "tool_call_update", "toolCallId": "c", "locations": None}
    read = decode(v2.schema.SessionUpdate, update)
    assert isinstance(read, v2.schema.ToolCallProgress)
    assert to_dict(read) == update


def test_malformed_fields_are_tolerated_where_the_schema_of_that_version_says_so() -> None:
    info = {"sessionId": "s", "cwd": "/w", "title": 7}
    assert to_dict(decode(v2.schema.SessionInfo, info)) == {"sessionId": "s", "cwd": "/w"}
    with pytest.raises(SchemaMismatch, match="SessionInfo lacks sessionId"):
        decode(v2.schema.SessionInfo, {"cwd": "/w"})


async def test_calls_of_version_2_are_typed_on_both_sides() -> None:
    here, there = memory_pair()
    handlers = Handlers()

    async def create(request: v2.schema.NewSessionRequest) -> v2.schema.NewSessionResponse:
        assert request.cwd == "/w"
        return v2.schema.NewSessionResponse(session_id="s")

    handlers.answer(v2.methods.SESSION_NEW, create)
    async with open_peer(there, handlers), open_peer(here, Handlers()) as agent:
        answer = await agent.call(v2.methods.SESSION_NEW, v2.schema.NewSessionRequest(cwd="/w"))
        assert_type(answer, v2.schema.NewSessionResponse)
        assert answer.session_id == "s"
