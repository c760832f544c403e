import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quarterdeck.acp import (
    UNSTABLE_FIELDS,
    UNSTABLE_TYPES,
    AcpObject,
    decode,
    encode,
    schema,
    to_dict,
)
from tests.acp.conftest import ROOT
from tests.acp.instances import canonical, instances, typed_definitions
from tools.acp_model import ENVELOPES, Model
from tools.acp_overlay import with_overlay

GENERATED = ("field_rules.py", "methods.py", "schema.py", "unions.py")
STRUCTS = [
    each
    for each in vars(schema).values()
    if isinstance(each, type) and issubclass(each, AcpObject) and each is not AcpObject
]


def test_the_generator_writes_exactly_the_committed_modules(
    schema_folder: Path, tmp_path: Path
) -> None:
    files = [schema_folder / "schema.json", schema_folder / "schema.unstable.json"]
    subprocess.run(
        [sys.executable, ROOT / "tools/gen_acp.py", *files, "--write", tmp_path], check=True
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == list(GENERATED)
    for name in GENERATED:
        committed = (ROOT / "src/quarterdeck/acp" / name).read_text()
        assert (tmp_path / name).read_text() == committed, f"{name} is stale; run tools/gen_acp.py"


def test_every_definition_is_a_type_or_the_body_of_a_variant(unstable: dict[str, Any]) -> None:
    model = Model(with_overlay(unstable))
    homeless = set(unstable["$defs"]) - ENVELOPES - model.merged - set(model.declarations)
    assert homeless == set()
    assert [name for name in model.declarations if not hasattr(schema, name)] == []


@pytest.mark.slow
def test_random_valid_instances_are_read_and_written_exactly(either_schema: dict[str, Any]) -> None:
    changed = []
    for name, expected, tag in typed_definitions(either_schema):
        for instance in instances(either_schema, name, 25):
            original = {**instance, **tag} if tag else instance
            again = msgspec.json.decode(encode(decode(expected, canonical(original))))
            if canonical(again) != canonical(original):
                changed.append((name, original, again))
    assert changed == []


def test_plain_data_is_read_like_text(stable: dict[str, Any]) -> None:
    for name, expected, tag in typed_definitions(stable):
        for instance in instances(stable, name, 2):
            if not isinstance(instance, str):  # a string would be taken for JSON text
                original = {**instance, **tag} if tag else instance
                assert canonical(to_dict(decode(expected, original))) == canonical(original), name


def test_every_struct_is_frozen_and_cheap() -> None:
    assert len(STRUCTS) > 150
    for struct in STRUCTS:
        config = struct.__struct_config__
        assert (config.frozen, config.omit_defaults, config.gc) == (True, True, False), struct
        assert set(struct.__struct_fields__).isdisjoint(struct.__match_args__), "only keywords"


def test_what_is_stable_is_what_the_stable_schema_has(stable: dict[str, Any]) -> None:
    names = set(Model(stable).declarations)
    assert {"SessionNotification", "AgentMessageChunk", "SessionConfigOptionBoolean"} <= names
    assert names.isdisjoint(UNSTABLE_TYPES)
    assert {"Usage", "ForkSessionRequest", "SessionModelState"} <= UNSTABLE_TYPES
    assert "models" in UNSTABLE_FIELDS["NewSessionResponse"]
    assert "usage" in UNSTABLE_FIELDS["PromptResponse"]


def test_enums_name_the_values_known_today() -> None:
    assert schema.STOP_REASON_VALUES == (
        "end_turn",
        "max_tokens",
        "max_turn_requests",
        "refusal",
        "cancelled",
    )


def test_every_capability_an_agent_may_offer_is_a_field(stable: dict[str, Any]) -> None:
    offered = {
        "loadSession": True,
        "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
        "mcpCapabilities": {"http": True, "sse": True},
        "sessionCapabilities": {
            "additionalDirectories": {},
            "close": {},
            "delete": {},
            "list": {},
            "resume": {},
        },
        "auth": {"logout": {}},
    }
    assert offered.keys() == stable["$defs"]["AgentCapabilities"]["properties"].keys() - {"_meta"}
    read = decode(schema.AgentCapabilities, offered)
    assert isinstance(read.session_capabilities, schema.SessionCapabilities)
    assert isinstance(read.session_capabilities.resume, schema.SessionResumeCapabilities)
    assert to_dict(read) == offered


def test_every_capability_a_client_may_offer_is_a_field(stable: dict[str, Any]) -> None:
    offered = {
        "fs": {"readTextFile": True, "writeTextFile": True},
        "terminal": True,
        "session": {"configOptions": {"boolean": {}}, "compaction": {}, "notices": {}},
        "auth": {"terminal": True},
        "elicitation": {"form": {}, "url": {}},
    }
    assert offered.keys() == stable["$defs"]["ClientCapabilities"]["properties"].keys() - {"_meta"}
    assert to_dict(decode(schema.ClientCapabilities, offered)) == offered
